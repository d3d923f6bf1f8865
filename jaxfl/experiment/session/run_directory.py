"""What a run writes into its directory when it begins and when it is finished."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

from jaxfl.experiment.config import Config, load_config, to_json
from jaxfl.experiment.config.fields import KeepingOptions
from jaxfl.experiment.session.build import Built
from jaxfl.experiment.session.history import History
from jaxfl.experiment.session.models import lost_snapshots
from jaxfl.experiment.store import files, graph_file, npz
from jaxfl.experiment.store.records import Digests, Line

# (directory, config, its run, lines of metrics.jsonl: none when the run begins) makes pictures
Draw = Callable[[Path, Config, Built, list[Line]], None]


def begin(
    directory: Path, config: Config, built: Built, digests: Digests, overwrite: bool, draw: Draw
) -> None:
    """Opens the directory of a run.

    Args:
      directory: to write: the picture of the partition, the digests and the config.
      config: of the run.
      built: the run.
      digests: of what it reads.
      overwrite: replace a run that the directory holds.
      draw: makes the pictures.
    """
    files.create(directory, files.EVERYTHING, overwrite)
    draw(directory, config, built, [])
    files.write_json(directory / files.INPUTS, digests)
    # From now on the run can be resumed.
    files.write_file(directory / "config.json", to_json(config))


def reopen(directory: Path, rounds: int) -> None:
    """Opens a run for more rounds; from now on it counts as stopped.

    Options of its config stay as they were given: another number of devices is of this time only.
    """
    config = load_config(directory / "config.json")
    files.remove(directory / "summary.json")
    files.write_file(directory / "config.json", to_json(dataclasses.replace(config, rounds=rounds)))


def vanished_files(
    directory: Path, history: History, keeping: KeepingOptions, checkpoints: list[Path]
) -> list[str]:
    """The files that another program has removed or changed since this run wrote them.

    The metrics are written again.

    Args:
      directory: of the run.
      history: of the run.
      keeping: what it keeps.
      checkpoints: those that this run has written, the oldest first.
    """
    metrics = directory / "metrics.jsonl"
    content = files.json_lines(history.lines)
    candidates = [directory / "config.json", *checkpoints[-keeping.keep_checkpoints :]]
    losses = [path for path in candidates if not path.exists()]
    losses += history.archive.lost()
    losses += lost_snapshots(directory, keeping.snapshot_every, history.lines[-1]["round"])
    if not metrics.is_file() or metrics.read_text() != content:
        files.write_file(metrics, content)
        losses.append(metrics)
    return [path.relative_to(directory).as_posix() for path in losses]


def write_arrays(directory: Path, history: History) -> None:
    """Writes the arrays of a finished run: the scores of its clients and the mixing weights."""
    files.write_npz(directory / "clients.npz", history.clients())
    if not history.archive.lost() and (graph := history.graph()) is not None:
        npz.write_parts(directory / graph_file.FILE, graph)
