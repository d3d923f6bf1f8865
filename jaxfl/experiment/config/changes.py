"""Which options differ from those of a stopped run or from the defaults."""

import dataclasses
import json
from typing import Any

from jaxfl.experiment.config.composite import option, typed
from jaxfl.experiment.config.hints import as_typed, marked
from jaxfl.experiment.config.notes import NO_SCORE, RESUMABLE
from jaxfl.experiment.config.setting import Config

# What may differ when a run goes on; a label is only a name.
MAY_CHANGE = marked(Config, RESUMABLE) | {"label"}


def differences(was: dict[str, Any], config: Config, done: int) -> list[str]:
    """The options of a stopped run that are others now and may not change, in words.

    Args:
      was: the options when the run was stopped, as JSON holds them.
      config: of the run now.
      done: the number of rounds that the run has behind it.
    """
    defaults = {field.name: field.default for field in dataclasses.fields(config)}
    now = json.loads(json.dumps(dataclasses.asdict(config)))
    changes = []
    if config.rounds < done:
        changes.append(f"--rounds is {config.rounds} and {done} are done")
    if config.schedule == "cosine" and config.rounds != was["rounds"]:
        changes.append(
            f"--rounds was {was['rounds']} and is {config.rounds}, and --schedule cosine ends with "
            "them"
        )
    # An option that is younger than the checkpoint had its default.
    was = json.loads(json.dumps({name: was.get(name, defaults[name]) for name in now}))
    for name in sorted(now.keys() - MAY_CHANGE - {"hyper"}):
        if was[name] != now[name]:
            title = name if name == "algorithm" else option(name)
            changes.append(f"{title} was {was[name]} and is {now[name]}")
    for name in sorted(was["hyper"].keys() | now["hyper"].keys()):
        before = was["hyper"].get(name, "not given")
        after = now["hyper"].get(name, "not given")
        if before != after:
            changes.append(f"hyper-parameter {name} was {before} and is {after}")
    return changes


def changed_options(config: Config) -> dict[str, str]:
    """The options of a run that are not the defaults, as they stand on the command line.

    The algorithm and its hyper-parameters are among them; the label and plug-ins are not.

    Args:
      config: of the run.

    Returns:
      Option or hyper-parameter -> its value.
    """
    values = {
        field.name: as_typed(getattr(config, field.name))
        for field in dataclasses.fields(config)
        if field.name not in ("algorithm", "hyper", "label", "plugin")
        and getattr(config, field.name) != field.default
    }
    hyper = {name: as_typed(value) for name, value in config.hyper.items()}
    return {"algorithm": config.algorithm} | typed(values) | hyper


def without_seeds(config: Config) -> str:
    """What decides about the scores of a run but its seeds, as text to compare.

    Example:
      >>> without_seeds(Config(seed=1, keep_checkpoints=3)) == without_seeds(Config(seeds=2))
      True
    """
    omissions = marked(Config, NO_SCORE) | {"seed", "seeds"}
    names = [one.name for one in dataclasses.fields(config) if one.name not in omissions]
    values = {name: getattr(config, name) for name in names}
    return repr(values | {"hyper": sorted(config.hyper.items())})
