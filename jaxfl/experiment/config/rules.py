"""Whether options fit each other, the algorithm and the data.

The range of each option stands in `fields`, and so do the options that it needs or excludes. What
may stand in data at all is checked where they are read, for users of Python too: `data.arrays`.
"""

import inspect
from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np

from jaxfl.algorithms import ALGORITHMS
from jaxfl.core.errors import check, check_name
from jaxfl.core.options import (
    COUNT_OR_ZERO,
    FLOAT32_MAX,
    options_of,
    takes_fractions,
    takes_numbers,
)
from jaxfl.data import Source
from jaxfl.data.source import many_labels
from jaxfl.experiment.config.fields import (
    DataOptions,
    ParticipationOptions,
    ScoreOptions,
    UploadOptions,
)
from jaxfl.experiment.config.hints import as_typed, check_field, value_of
from jaxfl.experiment.config.training_fields import ModelOptions, TrainingOptions, base_of
from jaxfl.models import MODELS
from jaxfl.simulation.metrics import (
    CLASS,
    METRICS,
    check_first,
    default_metric,
    entry_of,
    label_of,
    metric_of,
    needs_bins,
)
from jaxfl.uplink import FLIPPED

# What a model may take.
NAMES, NUMBERS = "names of words or users", "numbers"


def check_seeds(seed: int, seeds: int) -> None:
    """Raises an `InputError` if the last seed is too large for 32 bits."""
    check(
        seed + seeds <= 2**31, f"--seed is {seed}: expected {seeds} numbers below 2^31 from there"
    )


def count_unseen(options: ParticipationOptions, clients: int) -> int:
    """How many clients take part in no round: at least one if there are to be any."""
    return max(1, round(options.unseen * clients)) if options.unseen else 0


def check_benign(
    upload: UploadOptions, participation: ParticipationOptions, clients: int | None
) -> None:
    """Raises an `InputError` if no benign client is left for the rounds, or none is malicious."""
    ids = upload.malicious
    check(
        len(set(ids)) == len(ids),
        f"clients of --attack name a client twice ({as_typed(ids)}): name each id once",
    )
    if clients is None:
        return
    check(
        max(ids, default=0) < clients,
        f"clients of --attack are {as_typed(ids)}: expected ids of the {clients} clients, from 0 "
        f"to {clients - 1}",
    )
    check(
        len(ids) < clients,
        f"clients of --attack are all {clients} clients: leave at least one benign client",
    )
    count = round(upload.attack_ratio * clients)
    check(
        upload.attack is None or bool(ids) or count < clients,
        f"ratio of --attack is {upload.attack_ratio}: expected a fraction that leaves benign "
        "clients",
    )
    check(
        upload.attack is None or bool(ids) or count > 0 or upload.attack_ratio == 0,
        f"ratio of --attack is {upload.attack_ratio}, which of {clients} clients is nobody: raise "
        "it, or give 0",
    )
    benign = clients - ((len(ids) or count) if upload.attack else 0)
    check(
        count_unseen(participation, clients) < benign,
        f"--unseen is {participation.unseen}: expected a fraction that leaves at least one of the "
        f"{benign} benign clients for the rounds",
    )


def check_noise(upload: UploadOptions, training: TrainingOptions) -> None:
    """Raises an `InputError` if noise, in units of its clip, would be infinite in 32 bits."""
    pairs = {
        "--clip": (upload.clip, upload.noise),
        "--example-clip": (training.example_clip, training.example_noise),
    }
    for name, (clip, noise) in pairs.items():
        check(
            clip is None or clip * noise <= FLOAT32_MAX,
            f"noise of {name} is {noise:g} times {clip}, which is beyond 32 bits: lower one of the "
            "two",
        )


def check_hyper(algorithm: str, hyper: dict[str, Any]) -> None:
    """Checks the names and values of hyper-parameters by the signature of the algorithm's factory.

    Raises:
      InputError: the algorithm has no such hyper-parameter, or it takes no such value.
    """
    parameters = options_of(ALGORITHMS[algorithm])
    for name, value in hyper.items():
        check(
            bool(parameters),
            f"{algorithm} has no hyper-parameter {name!r}: it has none at all, leave out --hyper",
        )
        check_name(f"hyper-parameter of {algorithm}", name, parameters)
        hint = parameters[name].hint
        if takes_numbers(hint) and not takes_fractions(hint):  # steps, clusters, layers
            hint = Annotated[hint, COUNT_OR_ZERO]  # where the factory names no range of its own
        check_field(f"hyper-parameter {name} of {algorithm}", hint, value)


def check_foreign(algorithm: str, hyper: dict[str, Any]) -> None:
    """Checks the name and the hyper-parameters of a method that is not known here.

    Raises:
      InputError: the name cannot be printed, or a value is neither a number, a text nor a list of
        them.
    """
    check(algorithm.isprintable(), f"algorithm is {algorithm!r:.80}: expected a name")
    for name, value in hyper.items():
        values = value if isinstance(value, list) else [value]
        check(
            all(one is None or isinstance(one, bool | int | float | str) for one in values),
            f"hyper-parameter {name} of {algorithm} is {value!r:.80}: expected a number, a text or "
            "a list of them",
        )


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
    check(
        source.own_test is None or data.test_fraction == DataOptions.test_fraction,
        f"--test-fraction is {data.test_fraction}, and {data.dataset} says which rows test: leave "
        "it out",
    )
    check(
        data.split != "stratified" or source.classes > 0 or source.survival,
        f"--split stratified divides each label in proportion, and the targets of {data.dataset} "
        "are numbers: choose random",
    )
    check(
        data.split != "stratified" or source.one_label or source.survival,
        f"--split stratified divides each label in proportion, and {many_labels(source.y_train)}: "
        "choose random",
    )


def check_arrays(options: ModelOptions, source: Source) -> None:
    """Raises an `InputError` if a model of the library is to take inputs of several arrays."""
    if not source.several_inputs:
        return
    names = [] if options.model is None else options.architectures
    modules = [getattr(MODELS[base_of(name)], "__module__", "") for name in names]
    check(
        bool(modules) and not any(one.startswith("jaxfl.models.") for one in modules),
        f"the inputs of the data are the arrays {', '.join(source.x_train)}, and models of the "
        "library take one: give a model of your own (--plugin FILE --model NAME)",
    )


def check_model(options: ModelOptions, source: Source) -> None:
    """Raises an `InputError` if the model takes names in place of numbers, or numbers for names.

    A model that embeds names, of words or of users and items, takes a vocabulary. One that does
    both has the vocabulary None by default.
    """
    if source.several_inputs:
        return
    for name in options.architectures:
        parameters = inspect.signature(MODELS[base_of(name)]).parameters
        taken = [NUMBERS]
        if "vocabulary" in parameters:
            taken = [NAMES, NUMBERS] if parameters["vocabulary"].default is None else [NAMES]
        check(
            (NAMES if source.vocabulary else NUMBERS) in taken,
            f"model {name} takes {' or '.join(taken)}, the data hold "
            f"{'names' if source.vocabulary else 'numbers'}: choose another of {', '.join(MODELS)}",
        )


def check_architectures(
    options: ModelOptions, participation: ParticipationOptions, clients: int
) -> None:
    """Checks a model of several names, of which the clients have one each.

    Raises:
      InputError: a name twice, more names than clients, or what needs one model of all clients.
    """
    names = options.architectures
    if len(names) == 1:
        return
    check(len(set(names)) == len(names), f"--model {options.model} names a model twice: once each")
    check(
        len(names) <= clients,
        f"--model {options.model} has {len(names)} models for {clients} clients: name fewer",
    )
    given = {
        "--init": options.init,
        "--pretrained": options.pretrained,
        "side of --model": options.side,
        "--unseen": participation.unseen or None,
    }
    for option, value in given.items():
        check(
            value is None,
            f"{option} is {value}, and clients have the models {', '.join(names)}: it needs one "
            "model of all clients, leave it out",
        )


def check_training(training: TrainingOptions, source: Source) -> None:
    """Checks complete options of the training against the data set.

    What models and algorithms ask beyond, they check themselves.

    Raises:
      InputError: an augmentation of other inputs, class weights of numbers, or weights of examples
        that are clipped one by one.
    """
    check(
        training.loss is None or source.survival,
        f"--loss {training.loss} is of times to an event, which the targets of the data are not: "
        "leave it out, or prepare them with --time and --event",
    )
    check(
        training.class_weight is None or source.classes > 0,
        f"--class-weight {training.class_weight} balances labels, and the targets of the data are "
        "numbers: leave it out",
    )
    check(
        training.class_weight is None or source.one_label,
        f"--class-weight {training.class_weight} balances one label an example, and "
        f"{many_labels(source.y_train)}: leave it out",
    )
    check(
        training.augment == "none" or not source.each_position,
        f"--augment {training.augment} moves images, and {many_labels(source.y_train)}, which it "
        "would not move with them: choose none",
    )
    check(
        training.example_clip is None or source.weights is None,
        "--example-clip bounds what each example does, and the examples of these data have "
        "weights, which would change that: leave it out, or make the data without weights",
    )
    if source.several_inputs:
        check(
            training.augment == "none" and training.pixels == "channels",
            "--augment and --pixels are of one array of images, and the inputs of the data are "
            "several arrays: leave them out",
        )
        return
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


def check_attack(upload: UploadOptions, dataset: str, source: Source) -> None:
    """Raises an `InputError` if an attack flips labels and the data have none."""
    check(
        upload.attack not in FLIPPED or bool(source.classes),
        f"--attack {upload.attack} flips labels, {dataset} has none: choose another attack",
    )
    check(
        upload.attack not in FLIPPED or source.one_label,
        f"--attack {upload.attack} flips one label an example, and "
        f"{many_labels(source.y_train)}: choose another attack",
    )


def metrics_of(options: ScoreOptions, source: Source) -> tuple[str, ...]:
    """The metrics by which models are scored: those that are named, or that of the data.

    Args:
      options: with the names.
      source: the data.
    """
    return options.metric or (default_metric(source.classes, source.survival),)


def check_metrics(options: ScoreOptions, source: Source) -> None:
    """Raises an `InputError` if a metric is named twice, takes other targets or has no such class.

    Args:
      options: with the names.
      source: the data.
    """
    names = options.metric
    check(
        len(set(names)) == len(names),
        f"--metric names a metric twice ({as_typed(names)}): name each once",
    )
    targets = "times" if source.survival else "labels" if source.classes else "numbers"
    fitting = [name for name, metric in METRICS.items() if metric.targets in ("any", targets)]
    for name in names:
        check(
            entry_of(name) in fitting,
            f"--metric {name} takes {metric_of(name).targets}, the targets of the data are "
            f"{targets}: choose from {', '.join(fitting)}",
        )
    check_first(names)
    of_bins = [name for name in names if needs_bins(name)]
    check(
        not of_bins or bool(source.ends),
        f"--metric {', '.join(of_bins[:1])} is of probabilities, and Cox's model predicts a risk "
        "alone: give --loss hazards",
    )
    _check_classes([name for name in names if entry_of(name).endswith(f":{CLASS}")], source)
    titles = [metric_of(name).title for name in names]
    check(
        len(set(titles)) == len(titles),
        f"tables would call two metrics alike ({', '.join(titles)}): give each its own title",
    )


def _check_classes(names: Sequence[str], source: Source) -> None:
    """Checks the classes of metrics of one class."""
    known = source.class_names
    numbers = f"a number from 0 to {source.classes - 1}"
    words = f"one of {', '.join(known[:20])}{', ...' if known[20:] else ''}, or {numbers}"
    labels: dict[tuple[str, int], str] = {}
    for name in names:
        label = label_of(name, known)
        check(
            label is not None and label < source.classes,
            f"--metric {name}: the data have no such class: expected behind the colon "
            f"{words if known else numbers}",
        )
        other = labels.setdefault((entry_of(name), label or 0), name)
        check(
            other == name, f"--metric names a class twice, as {other} and as {name}: name it once"
        )


def check_target(options: ScoreOptions, source: Source) -> None:
    """Raises an `InputError` if the target is no value of the first metric.

    Args:
      options: with both.
      source: the data.
    """
    one = metric_of(metrics_of(options, source)[0])
    if options.target is None or one.highest is None:
        return
    check(
        options.target <= one.highest,
        f"--target is {options.target}: expected a value of {one.title} of at most "
        f"{one.highest:g}, such as {0.8 * one.highest:g}",
    )
