"""What options say together, and whether they fit the algorithm and the data.

The range of each option stands in `fields`. What may stand in data at all is checked where they are
read, for users of Python too: `data.arrays`.
"""

import inspect
from typing import Annotated, Any

import numpy as np

from jaxfl.algorithms import ALGORITHMS
from jaxfl.core.errors import check, check_name
from jaxfl.core.options import COUNT_OR_ZERO, parameters, takes_fractions, takes_numbers
from jaxfl.data import Source
from jaxfl.experiment.config.fields import (
    ClockOptions,
    DataOptions,
    RunOptions,
    TrainingOptions,
    UploadOptions,
    as_typed,
    check_field,
    option,
    value_of,
)
from jaxfl.models import MODELS
from jaxfl.uplink import FLIPPED, check_scale


def check_steps(training: TrainingOptions) -> None:
    """Raises an `InputError` if both local steps and local epochs are given."""
    check(
        training.local_steps is None or training.local_epochs is None,
        "both --local-steps and --local-epochs are given: choose one",
    )


def check_seeds(seed: int, seeds: int) -> None:
    """Raises an `InputError` if the last seed is too large for 32 bits."""
    check(
        seed + seeds <= 2**31, f"--seed is {seed}: expected {seeds} numbers below 2^31 from there"
    )


def check_benign(upload: UploadOptions, clients: int | None) -> None:
    """Raises an `InputError` if all clients or none are malicious, or they are named wrongly."""
    ids = upload.malicious
    for name in ("attack_ratio", "attack_seed"):
        value = getattr(upload, name)
        check(
            not ids or value == getattr(UploadOptions, name),
            f"{option(name)} is {value}, and --malicious names the clients: leave out one of them",
        )
    check(
        len(set(ids)) == len(ids),
        f"--malicious names a client twice ({as_typed(ids)}): name each id once",
    )
    if clients is None:
        return
    check(
        max(ids, default=0) < clients,
        f"--malicious is {as_typed(ids)}: expected ids of the {clients} clients, from 0 to "
        f"{clients - 1}",
    )
    check(
        len(ids) < clients,
        f"--malicious names all {clients} clients: leave at least one benign client",
    )
    drawn = round(upload.attack_ratio * clients)
    check(
        upload.attack is None or bool(ids) or drawn < clients,
        f"--attack-ratio is {upload.attack_ratio}: expected a fraction that leaves benign clients",
    )
    check(
        upload.attack is None or bool(ids) or drawn > 0 or upload.attack_ratio == 0,
        f"--attack-ratio is {upload.attack_ratio}, which of {clients} clients is nobody: raise "
        "it, or give 0",
    )


def count_unseen(options: RunOptions, clients: int) -> int:
    """How many clients take part in no round: at least one if there are to be any."""
    return max(1, round(options.unseen * clients)) if options.unseen else 0


def check_unseen(setting: Any) -> None:
    """Raises an `InputError` if no benign client is left for the rounds."""
    if setting.clients is None:
        return
    drawn = round(setting.attack_ratio * setting.clients)
    attacking = len(setting.malicious) or drawn if setting.attack else 0
    benign = setting.clients - attacking
    check(
        count_unseen(setting, setting.clients) < benign,
        f"--unseen is {setting.unseen}: expected a fraction that leaves at least one of the "
        f"{benign} benign clients for the rounds",
    )


def check_strength(upload: UploadOptions) -> None:
    """Raises an `InputError` if a strength is given for an attack that has none."""
    if upload.attack is not None:
        check_scale(upload.attack, upload.attack_scale)


def check_noise(upload: UploadOptions, training: TrainingOptions) -> None:
    """Raises an `InputError` if there is noise without clipping, or clipping of both kinds."""
    check(
        upload.clip is not None or upload.noise == 0,
        "--noise is given without --clip, its unit: give both",
    )
    check(
        training.example_clip is not None or training.example_noise == 0,
        "--example-noise is given without --example-clip, its unit: give both",
    )
    check(
        upload.clip is None or training.example_clip is None,
        "both --clip and --example-clip are given: choose whether clients or single examples are "
        "to be protected",
    )


def check_scored(options: RunOptions) -> None:
    """Raises an `InputError` if clients are to be scored whose models a round has not trained."""
    check(
        options.score_after != "trained"
        or options.eval_on == "participants"
        or options.participation == 1,
        "--score-after trained scores the models of the clients of a round: give --eval-on "
        "participants too, or --participation 1",
    )
    check(
        options.score_after != "trained" or not options.unseen,
        "--score-after trained scores the models of the clients of a round, and those of --unseen "
        "are in none: give --score-after fine_tuned",
    )


def check_store(options: RunOptions) -> None:
    """Raises an `InputError` if clients on disk are given to what needs all of them in memory."""
    if options.store is None:
        return
    check(
        options.seeds == 1,
        f"--store is given and --seeds is {options.seeds}: run one seed after the other",
    )
    check(
        not options.keep_models,
        "--store keeps the clients on disk, and models.npz would hold the models of all: add "
        "--no-keep-models",
    )


def check_work(options: RunOptions) -> None:
    """Raises an `InputError` if the work of the clients is both given and drawn."""
    check(
        options.work_file is None or options.stragglers == 0,
        "both --work-file and --stragglers are given: choose one",
    )


def check_hyper(algorithm: str, hyper: dict[str, Any]) -> None:
    """Checks the names and values of hyper-parameters by the signature of the algorithm's factory.

    Raises:
      InputError: the algorithm has no such hyper-parameter, or it takes no such value.
    """
    known = parameters(ALGORITHMS[algorithm])
    for name, value in hyper.items():
        check(
            bool(known),
            f"{algorithm} has no hyper-parameter {name!r}: it has none at all, leave out --hyper",
        )
        check_name(f"hyper-parameter of {algorithm}", name, known)
        hint = known[name].hint
        if takes_numbers(hint) and not takes_fractions(hint):  # steps, clusters, layers
            hint = Annotated[hint, COUNT_OR_ZERO]  # where the factory names no range of its own
        check_field(f"hyper-parameter {name} of {algorithm}", hint, value)


def check_label(label: str | None) -> None:
    """Raises an `InputError` if a label cannot be the name of a run."""
    check(
        label is None or (label.isprintable() and 0 < len(label) <= 100 and bool(label.strip())),
        f"label is {label!r:.80}: expected 1 to 100 letters that can be printed",
    )


def check_data(data: DataOptions, source: Source) -> None:
    """Checks complete options of the data against the data set.

    What partitions ask beyond, they check themselves.

    Raises:
      InputError: more clients than examples.
    """
    clients = value_of(data.clients)
    check(
        clients <= len(source.y_train),
        f"--clients is {clients}: {data.dataset} has {len(source.y_train)} training examples, "
        "at most one client an example",
    )


def check_model(training: TrainingOptions, source: Source) -> None:
    """Checks complete options of the training against the data set.

    What models and algorithms ask beyond, they check themselves.

    Raises:
      InputError: a model or an augmentation of other inputs.
    """
    shape = source.x_train.shape[1:]
    check(
        training.augment == "none" or len(shape) == 3,
        f"--augment {training.augment} takes images, not {shape}: choose none",
    )
    check(
        training.pixels == "channels" or source.x_train.dtype == np.uint8,
        f"--pixels {training.pixels} takes images of bytes, the data hold "
        f"{source.x_train.dtype}: leave it out",
    )
    names = takes_names(value_of(training.model))
    check(
        names == bool(source.vocabulary),
        f"model {training.model} takes {'names of words or users' if names else 'numbers'}, the "
        f"data hold {'names' if source.vocabulary else 'numbers'}: choose another of "
        f"{', '.join(MODELS)}",
    )


def check_attack(upload: UploadOptions, dataset: str, source: Source) -> None:
    """Raises an `InputError` if an attack flips labels and the data have none."""
    check(
        upload.attack not in FLIPPED or bool(source.classes),
        f"--attack {upload.attack} flips labels, {dataset} has none: choose another attack",
    )


def takes_names(model: str) -> bool:
    """Whether a model embeds names, of words or of users and items, and needs their number."""
    return "vocabulary" in inspect.signature(MODELS[model]).parameters


def check_clock(options: ClockOptions) -> None:
    """Raises an `InputError` if the times of the clients are given twice."""
    check(
        options.speeds is None or options.durations is None,
        "both --speeds and --durations are given: choose one",
    )


def check_target(options: ClockOptions, classes: int) -> None:
    """Raises an `InputError` if the target is no score of the data.

    Args:
      options: with the target.
      classes: of the data; 0 for numbers as targets.
    """
    check(
        options.target is None or not classes or options.target <= 1,
        f"--target is {options.target}: expected an accuracy in (0, 1], such as 0.8",
    )
