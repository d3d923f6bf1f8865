"""Options that take effect only together with another one."""

import inspect
from collections.abc import Callable
from dataclasses import fields
from typing import Any, NamedTuple

from jaxfl.core.errors import InputError
from jaxfl.data import CONCEPTS, PARTITIONS
from jaxfl.experiment.config.fields import as_typed, option


class Effect(NamedTuple):
    """When an option takes effect."""

    needs: str  # the other option, in words
    active: Callable[[Any], bool]  # of the options; true if it is not known yet


def _of_partitions(name: str) -> Effect:
    """An option that some partitions take."""
    takers = [
        partition
        for partition, function in PARTITIONS.items()
        if name in inspect.signature(function).parameters
    ]
    return Effect(
        f"--partition {' or '.join(takers)}", lambda data: data.partition in (*takers, None)
    )


def _of_concepts(name: str) -> Effect:
    """An option that some concepts take as their argument `name`."""
    takers = [
        concept
        for concept, function in CONCEPTS.items()
        if name in inspect.signature(function).parameters
    ]
    return Effect(f"--concept {' or '.join(takers)}", lambda data: data.concept in takers)


ATTACKED = Effect("--attack", lambda upload: upload.attack is not None)
DRAWN = Effect(
    "--attack",
    lambda upload: upload.attack is not None and not upload.malicious,
)
# Options that take effect only together with another one.
EFFECTS = {
    "classes_per_client": _of_partitions("classes_per_client"),
    "beta": _of_partitions("beta"),
    "topology": _of_partitions("topology"),
    "concept_groups": _of_concepts("groups"),
    "feature_noise": _of_concepts("level"),
    "momentum": Effect("--optimizer sgd", lambda training: training.optimizer == "sgd"),
    "decay": Effect(
        "--schedule exponential or step",
        lambda training: training.schedule in ("exponential", "step"),
    ),
    "decay_every": Effect("--schedule step", lambda training: training.schedule == "step"),
    "own": Effect("--test own", lambda data: data.test in ("own", None)),
    "attack_ratio": DRAWN,
    "attack_seed": DRAWN,
    "malicious": ATTACKED,
    "attack_scale": ATTACKED,
    "least_work": Effect("--stragglers", lambda run: run.stragglers > 0),
    "drop_stragglers": Effect("--stragglers", lambda run: run.stragglers > 0),
    "speed_seed": Effect("--speeds", lambda setting: setting.speeds is not None),
    "arrivals": Effect(
        "--speeds or --durations",
        lambda setting: setting.speeds is not None or setting.durations is not None,
    ),
    "delta": Effect(
        "--noise or --example-noise", lambda setting: setting.noise or setting.example_noise
    ),
    "top_k": Effect("--compress topk", lambda upload: upload.compress == "topk"),
}


def idle(options: Any) -> list[str]:
    """The options without effect whose values are not the defaults.

    Args:
      options: of the data or of a run.
    """
    defaults = {field.name: field.default for field in fields(options)}
    return [
        name
        for name, effect in EFFECTS.items()
        if name in defaults
        and getattr(options, name) != defaults[name]
        and not effect.active(options)
    ]


def check_effects(options: Any) -> None:
    """Raises an `InputError` if an option is given that has no effect.

    The default passes, because `config.json` has a value for every option.

    Args:
      options: complete options of the data or of a run.
    """
    for name in idle(options):
        value = getattr(options, name)
        raise InputError(
            f"{option(name)} is {as_typed(value)}, and has no effect without "
            f"{EFFECTS[name].needs}: leave it out, or give both"
        )
