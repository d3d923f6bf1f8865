"""Checks of a run before anything is computed or written: its options, its algorithm, and whether they fit its data.

What may stand in data at all is checked where they are read, of users of Python too: `data.arrays`.
"""

import inspect
import math
import re
import typing
from typing import Any

from jaxfl.algorithms import ALGORITHMS
from jaxfl.data import PARTITIONS, Source
from jaxfl.data.augment import AUGMENTATIONS
from jaxfl.data.sources import check_known
from jaxfl.errors import InputError, check, check_name
from jaxfl.experiment.config import Config, Setting
from jaxfl.experiment.hints import accepts, expected
from jaxfl.hints import alternatives, describe
from jaxfl.models import MODELS
from jaxfl.types import AlgorithmFactory
from jaxfl.uplink import ATTACKS, FLIPPED

MOST_HYPER = 10_000  # of servers, clusters, steps, epochs
# beyond any experiment; a number typed by mistake would fill the memory before it fails
MOST = 1_000_000


def check_config(config: Config) -> None:
    """Checks everything that can be known without loading data; what is left open for them to choose is None.

    Raises:
      InputError: a name that does not exist, a number out of range, a hyper-parameter that the
        algorithm lacks.
    """
    check_name("algorithm", config.algorithm, ALGORITHMS)
    check_setting(config)
    check_hyper(config.algorithm, ALGORITHMS[config.algorithm], config.hyper)


def check_setting(config: Setting) -> None:
    """Checks everything but the algorithm; see `check_config`."""
    check_known(config.dataset, config.data_dir)
    for what, table in (
        ("partition", PARTITIONS),
        ("model", MODELS),
        ("augment", (*AUGMENTATIONS, "none")),
    ):
        if getattr(config, what) is not None:
            check_name(what, getattr(config, what), table)
    for name in ("rounds", "eval_every", "keep", "seeds", "batch_size", "classes_per_client"):
        check_count(name, getattr(config, name))
    for name, most in (
        ("clients", MOST),
        ("max_examples", 2**31),
        ("local_steps", MOST),
        ("local_epochs", MOST),
        ("checkpoint_every", MOST),
        ("chunk", MOST),
        ("devices", 1024),
    ):
        if isinstance(getattr(config, name), int):
            check_count(name, getattr(config, name), most)
    for name in ("seed", "attack_seed"):
        check(
            getattr(config, name) >= 0,
            f"{option(name)} is {getattr(config, name)}: expected 0 or more",
        )
    check(
        config.attack_seed < 2**31,
        f"--attack-seed is {config.attack_seed}: expected a number below 2^31",
    )
    check(
        config.seed + config.seeds <= 2**31,
        f"--seed is {config.seed}: expected a number below 2^31",
    )
    check(
        config.local_steps is None or config.local_epochs is None,
        "both --local-steps and --local-epochs are given: choose one",
    )
    check(
        0 < config.participation <= 1,
        f"--participation is {config.participation}: expected a fraction in (0, 1], 1 for every client",
    )
    for name, low, high in (
        ("val", 0, 1),
        ("own", 0, 1),
        ("lr", 0, math.inf),
        ("momentum", 0, 1),
        ("weight_decay", 0, math.inf),
        ("attack_ratio", 0, 1),
    ):
        value = getattr(config, name)
        check(
            low <= value < high, f"{option(name)} is {value}: expected a number in [{low}, {high})"
        )
    check(
        0 < config.beta < math.inf,
        f"--beta is {config.beta}: expected a positive number, smaller for more skew",
    )
    check(
        config.topology in (3, 4, 5), f"--topology is {config.topology}: expected 3, 4 or 5 nodes"
    )
    if config.attack is not None:
        check_name("attack", config.attack, ATTACKS)
        check(
            config.clients is None or round(config.attack_ratio * config.clients) < config.clients,
            f"--attack-ratio is {config.attack_ratio}: expected a fraction that leaves honest clients",
        )
    check_uploads(config)


def check_uploads(config: Setting) -> None:
    """Checks clipping, noise and compression."""
    for clip, noise in (("clip", "noise"), ("example_clip", "example_noise")):
        norm, times = getattr(config, clip), getattr(config, noise)
        if norm is not None:
            check(0 < norm < math.inf, f"{option(clip)} is {norm}: expected a positive number")
        check(0 <= times < math.inf, f"{option(noise)} is {times}: expected 0 or more")
        check(
            norm is not None or times == 0,
            f"{option(noise)} is given without {option(clip)}, its unit: give both",
        )
    check(
        config.clip is None or config.example_clip is None,
        "both --clip and --example-clip are given: choose whether clients or single examples are to be protected",
    )
    check(
        0 < config.delta < 1,
        f"--delta is {config.delta}: expected a number in (0, 1), far below 1 / clients",
    )
    check(0 < config.top_k <= 1, f"--top-k is {config.top_k}: expected a fraction in (0, 1]")


def check_fits(config: Setting, source: Source) -> None:
    """Checks a complete setting against its data; what partitions, models and algorithms ask beyond, they check.

    Raises:
      InputError: more clients than examples, or a model or an augmentation of other inputs.
    """
    check(
        config.clients <= len(source.y_train),
        f"--clients is {config.clients}: {config.dataset} has {len(source.y_train)} training examples, at most one "
        "client an example",
    )
    shape = source.x_train.shape[1:]
    check(
        config.augment == "none" or len(shape) == 3,
        f"--augment {config.augment} takes images, not {shape}: choose none",
    )
    check(
        config.attack not in FLIPPED or bool(source.classes),
        f"--attack {config.attack} turns labels round, {config.dataset} has none: choose another attack",
    )
    names = "vocabulary" in inspect.signature(MODELS[config.model]).parameters
    check(
        names == bool(source.vocabulary),
        f"model {config.model} takes {'names of words or users' if names else 'numbers'}, the data hold "
        f"{'names' if source.vocabulary else 'numbers'}: choose another of {', '.join(MODELS)}",
    )


def check_count(name: str, value: int, most: int = MOST) -> None:
    """Raises an `InputError` that names the option unless its value is from 1 to `most`."""
    check(value >= 1, f"{option(name)} is {value}: expected 1 or more")
    check(value <= most, f"{option(name)} is {value!r:.40}: expected at most {most:,}")


def option(name: str) -> str:
    """The command-line option of a field."""
    return "--" + name.replace("_", "-")


def hyper_parameters(factory: AlgorithmFactory) -> dict[str, inspect.Parameter]:
    """The hyper-parameters of an algorithm: the keyword arguments of its factory."""
    return {
        name: parameter
        for name, parameter in inspect.signature(factory).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    }


def check_hyper(algorithm: str, factory: AlgorithmFactory, hyper: dict[str, Any]) -> None:
    """Checks names and types of hyper-parameters against the signature of the algorithm's factory.

    Raises:
      InputError: the algorithm has no such hyper-parameter, or it takes no such value.
    """
    known = hyper_parameters(factory)
    hints = typing.get_type_hints(factory)
    for name, value in hyper.items():
        if not known:
            raise InputError(
                f"{algorithm} has no hyper-parameter {name!r}: it has none at all, leave out --hyper"
            )
        check_name(f"hyper-parameter of {algorithm}", name, known)
        check(
            accepts(hints[name], value),
            f"hyper-parameter {name} of {algorithm} is {value!r:.80}: expected {expected(hints[name], value)}",
        )
        counts = type(value) is int and float not in alternatives(hints[name])
        check(
            not counts or 0 <= value <= MOST_HYPER,
            f"hyper-parameter {name} of {algorithm} is {value}: expected a whole number from 0 to {MOST_HYPER:,}",
        )


def first_line(function: Any) -> str:
    """The first line of a function's documentation."""
    return inspect.getdoc(function).splitlines()[0]


def paper(factory: AlgorithmFactory) -> str:
    """Where an algorithm comes from, in a line: its module's documentation."""
    return " ".join(inspect.getdoc(inspect.getmodule(factory)).split())


def personal(factory: AlgorithmFactory) -> str:
    """What is personal and what a client sends: a sentence or two of its documentation, "" if there is none."""
    words = " ".join(inspect.getdoc(factory).split())
    said = re.search(r"(Personal (is|are)|Nothing is personal)[^.]*\.( A client [^.]*\.)?", words)
    return said.group() if said else ""


def describe_factory(factory: AlgorithmFactory) -> str:
    """An algorithm in words: what it does, whose it is, and its hyper-parameters with their defaults and values."""
    hints = typing.get_type_hints(factory)
    lines = [first_line(factory), paper(factory), personal(factory)]
    for name, parameter in hyper_parameters(factory).items():
        lines.append(f"  {name}={parameter.default}: {describe(hints[name])}")
    return "\n".join(lines)
