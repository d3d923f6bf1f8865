"""What a run writes into its directory when it begins and when it is finished."""

import dataclasses
from pathlib import Path

import numpy as np

from jaxfl.experiment.config import load_config, to_json
from jaxfl.experiment.session import kept
from jaxfl.experiment.session.build import Built
from jaxfl.experiment.session.history import History
from jaxfl.experiment.store import files


def begin(directory: Path, built: Built, overwrite: bool) -> None:
    """Opens the directory of a run: the picture of the partition, and the config."""
    from jaxfl.experiment.show.partition import draw_partition

    files.create(directory, files.RUN_FILES, overwrite)
    picture = draw_partition(built.data.source, built.data.parts[0], built.config)
    files.write_file(directory / "partition.png", picture)
    # From now on the run can be resumed.
    files.write_file(directory / "config.json", to_json(built.config))


def reopen(directory: Path, rounds: int) -> None:
    """Opens a run for more rounds; from now on it counts as stopped.

    Options of its config stay as they were given: another number of devices is of this time only.
    """
    config = load_config(directory / "config.json")
    files.remove(directory / "summary.json")
    files.write_file(directory / "config.json", to_json(dataclasses.replace(config, rounds=rounds)))


def vanished(directory: Path, history: History, checkpoints: list[Path]) -> list[str]:
    """The files that another program has removed or changed since this run wrote them.

    The metrics are written again.

    Args:
      directory: of the run.
      history: of the run.
      checkpoints: those that this run has written, the oldest first.
    """
    metrics = directory / "metrics.jsonl"
    content = files.json_lines(history.lines)
    expected = [directory / name for name in ("config.json", "partition.png")]
    gone = [path for path in (*expected, *checkpoints[-history.config.keep :]) if not path.exists()]
    if not metrics.is_file() or metrics.read_text() != content:
        files.write_file(metrics, content)
        gone.append(metrics)
    return [path.relative_to(directory).as_posix() for path in gone]


def finish(
    directory: Path,
    built: Built,
    history: History,
    compile_seconds: float,
    models: dict[str, np.ndarray],
) -> None:
    """Closes the directory of a run: its arrays, models, pictures and, last, the summary."""
    from jaxfl.experiment.show.curves import draw_curves
    from jaxfl.experiment.show.graphs import Graph, draw_graph

    files.write_npz(directory / "clients.npz", history.clients())
    curves = draw_curves({built.config.name: history.lines}, history.measure)
    files.write_file(directory / "curves.png", curves)
    if models:
        files.write_npz(directory / kept.FILE, models, compressed=False)
    last = history.last_graph()
    if last is not None:
        files.write_npz(directory / "graph.npz", history.graph())
        data = built.data
        graph = Graph(*last)
        picture = draw_graph(graph, data.source, data.parts[0], built.config, history.malicious)
        files.write_file(directory / "graph.png", picture)
    files.write_json(directory / "summary.json", history.summary(compile_seconds))
