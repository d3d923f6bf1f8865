"""Digests of what a run reads, by which `resume` knows that nothing of it has changed."""

from pathlib import Path

from jaxfl.core.errors import InputError, check
from jaxfl.experiment.config import Config
from jaxfl.experiment.config.paths import files_of
from jaxfl.experiment.store.manifest import digest_file
from jaxfl.experiment.store.records import Digests


def digest_inputs(config: Config) -> dict[str, str]:
    """The SHA-256 of each file that a run reads beside its data set, by the option that names it.

    Raises:
      InputError: a file cannot be read.
    """
    digests = {}
    for name, path in files_of(config).items():
        try:
            digests[name] = digest_file(path)
        except OSError as error:
            raise InputError(
                f"the file of {name}, {path}, cannot be read ({error.strerror}): restore it"
            ) from error
    return digests


def changed_inputs(was: dict[str, str], now: dict[str, str]) -> list[str]:
    """Which of the files that a run reads are others than before, in words.

    Args:
      was: `digest_inputs` of the run when it began.
      now: of the run now.
    """
    changes = []
    for name in sorted(was.keys() | now.keys()):
        if name not in now:
            changes.append(f"{name} was given and is not")
        elif name not in was:
            changes.append(f"{name} was not given and is")
        elif was[name] != now[name]:
            changes.append(f"what the file of {name} holds has changed")
    return changes


def digests_of(configs: list[Config], data: list[str]) -> Digests:
    """The digests of all that some runs read.

    Args:
      configs: of the runs.
      data: the digests of their clients' data.
    """
    files = {}
    for config in configs:
        digests = digest_inputs(config)
        for name, path in files_of(config).items():
            # Runs of one search may name several graphs; a plug-in may move.
            key = name if name.startswith("--plugin") else f"{name} ({path})"
            files[key] = digests[name]
    return {"data": sorted(set(data)), "files": files}


def check_inputs(place: Path, was: Digests, now: Digests) -> None:
    """Checks that what a run or several runs read is what it was when they began.

    Args:
      place: the file that says what it was.
      was: the digests in that file.
      now: those of now.

    Raises:
      InputError: an example or a file has changed; the message names it.
    """
    changes = changed_inputs(was["files"], now["files"])
    if was["data"] != now["data"]:
        changes.append("the examples of the clients have changed")
    check(
        not changes,
        f"{'; '.join(changes)} since {place} was written: restore it, or run anew with --overwrite",
    )
