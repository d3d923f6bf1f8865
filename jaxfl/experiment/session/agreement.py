"""Whether processes that run together were given the same options and the same data."""

from collections.abc import Sequence
from typing import Any

import jax

from jaxfl.experiment.config import Config, Resolved
from jaxfl.experiment.config.composite import option
from jaxfl.experiment.config.hints import hints, marked
from jaxfl.experiment.config.notes import PATH
from jaxfl.experiment.config.paths import is_file
from jaxfl.experiment.config.setting import SettingOptions
from jaxfl.experiment.store.digests import digest_inputs, digest_own
from jaxfl.simulation import processes


def check_agreement(runs: Sequence[Resolved[Config]]) -> None:
    """Checks that all processes that run together compute the same; each must call it.

    Where two of them differed, each would train its own clients in its own way, or wait for the
    other. Folders and files may have other names on each host, but must hold the same.

    Args:
      runs: what this process was asked for, of one data set.

    Raises:
      InputError: another process was asked for something else; all processes raise it.

    Example:
      >>> check_agreement([resolve(Config(algorithm="fedavg"))])
    """
    if jax.process_count() > 1:
        processes.check_alike(_facts(runs))


def _facts(runs: Sequence[Resolved[Config]]) -> dict[str, Any]:
    """What the processes must have in common, by what a message calls it."""
    configs = [run.config for run in runs]
    same = [name for name in hints(Config) if name not in {"data_dir", *marked(Config, PATH)}]
    settings = hints(SettingOptions)
    facts: dict[str, Any] = {
        option(name) if name in settings else name: [getattr(one, name) for one in configs]
        for name in same
    }
    facts["hyper"] = [
        {name: value for name, value in one.hyper.items() if not is_file(value)} for one in configs
    ]
    facts["what the files of options hold"] = [digest_inputs(one) for one in configs]
    source = runs[0].source
    facts["the data"] = digest_own(
        [source.x_train, source.y_train, source.x_test, source.y_test, source.owners]
    )
    return facts
