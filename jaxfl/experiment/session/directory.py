"""What a run writes into its directory when it begins and when it is finished."""

import dataclasses
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from jaxfl.experiment.config import Config, load_config, to_json
from jaxfl.experiment.config.paths import MODELS
from jaxfl.experiment.session.build import Built
from jaxfl.experiment.session.history import History
from jaxfl.experiment.session.models import lost_snapshots
from jaxfl.experiment.store import files, graph_file, npz
from jaxfl.experiment.store.records import Digests
from jaxfl.experiment.tables.heading import data_line, graph_title, setting_line

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from jaxfl.experiment.pictures.clients import Clients

FRAMES = 40  # at most, of a picture that moves
MILLISECONDS = 300  # a frame


def begin(directory: Path, built: Built, digests: Digests, overwrite: bool) -> None:
    """Opens the directory of a run.

    Args:
      directory: to write: the picture of the partition, the digests and the config.
      built: the run.
      digests: of what it reads.
      overwrite: replace a run that the directory holds.
    """
    from jaxfl.experiment.pictures.partition import draw_partition

    files.create(directory, files.EVERYTHING, overwrite)
    draw = partial(draw_partition, built.data.source, built.data.parts[0])
    _draw(directory, "partition", draw, data_line(built.config), built.config)
    files.write_json(directory / files.INPUTS, digests)
    # From now on the run can be resumed.
    files.write_file(directory / "config.json", to_json(built.config))


def reopen(directory: Path, rounds: int) -> None:
    """Opens a run for more rounds; from now on it counts as stopped.

    Options of its config stay as they were given: another number of devices is of this time only.
    """
    config = load_config(directory / "config.json")
    files.remove(directory / "summary.json")
    files.write_file(directory / "config.json", to_json(dataclasses.replace(config, rounds=rounds)))


def vanished_files(directory: Path, history: History, checkpoints: list[Path]) -> list[str]:
    """The files that another program has removed or changed since this run wrote them.

    The metrics are written again.

    Args:
      directory: of the run.
      history: of the run.
      checkpoints: those that this run has written, the oldest first.
    """
    metrics = directory / "metrics.jsonl"
    content = files.json_lines(history.lines)
    candidates = [directory / "config.json", *checkpoints[-history.config.keep :]]
    losses = [path for path in candidates if not path.exists()]
    losses += history.archive.lost()
    every = history.config.keep_models_every
    losses += lost_snapshots(directory, every, history.lines[-1]["round"])
    # In whatever format, for a run that goes on may have another one than when it began.
    partitions = [directory / name for name in files.RUN_FILES if name.startswith("partition.")]
    if not any(path.exists() for path in partitions):
        losses.append(partitions[0])
    if not metrics.is_file() or metrics.read_text() != content:
        files.write_file(metrics, content)
        losses.append(metrics)
    return [path.relative_to(directory).as_posix() for path in losses]


def finish(
    directory: Path,
    built: Built,
    history: History,
    compile_seconds: float,
    models: dict[str, np.ndarray],
) -> None:
    """Closes the directory of a run: its arrays, models, pictures and, last, the summary."""
    from jaxfl.experiment.pictures.curves import draw_curves

    config = built.config
    files.write_npz(directory / "clients.npz", history.clients())
    title = f"{config.name}: {setting_line([config])}"

    def draw(title: str) -> "Figure":
        curves = (history.lines, history.measure)
        return draw_curves(*curves, title=title, algorithm=config.algorithm)

    _draw(directory, "curves", draw, title, config)
    if models:
        files.write_npz(directory / MODELS, models, compressed=False)
    if not history.archive.lost():
        _write_weights(directory, built, history)
    files.write_json(directory / "summary.json", history.summary(compile_seconds))


def _draw(
    directory: Path, name: str, draw: Callable[[str], "Figure"], title: str, config: Config
) -> None:
    """Writes a picture of a run, and its panels if they are asked for.

    Args:
      directory: of the run.
      name: of the picture.
      draw: makes it with a title.
      title: of the picture, which the config may leave out.
      config: of the run.
    """
    from jaxfl.experiment.pictures.drawing import write_panels, write_picture

    write_picture(directory, name, draw(title if config.title else ""), config.format)
    if config.panels:
        write_panels(directory, name, partial(draw, ""), config.format)


def drawn_clients(built: Built) -> "Clients":
    """What pictures of graphs show of the clients of a run, in its first seed."""
    from jaxfl.experiment.pictures.clients import clients_of

    source = built.data.source
    parts = built.data.parts[0]
    return clients_of(source, parts, built.groups[0], built.malicious)


def _write_weights(directory: Path, built: Built, history: History) -> None:
    """Writes the mixing weights of a run, and pictures of them, if it has any."""
    from jaxfl.experiment.pictures.depth import draw_depth
    from jaxfl.experiment.pictures.drawing import write_picture
    from jaxfl.experiment.pictures.graphs import Graph, draw_graph

    config = built.config
    last, graph = history.last_graph(), history.graph()
    if last is None or graph is None:
        return
    npz.write_parts(directory / graph_file.FILE, graph)
    clients = drawn_clients(built)
    draw = partial(draw_graph, Graph(*last), clients)
    title = graph_title(config, history.lines[-1]["round"])
    _draw(directory, "graph", draw, title, config)
    if history.has_layers:
        figure = draw_depth(Graph(*last), clients, title if config.title else "")
        write_picture(directory, "graph_by_layer", figure, config.format)
    if "gif" in config.format and (stored := graph_file.open_graph(directory)) is not None:
        _write_rounds(directory / "graph.gif", built, stored, clients)


def _write_rounds(
    file: Path, built: Built, graph: graph_file.GraphFile, clients: "Clients"
) -> None:
    """Writes the graph of the first seed by round as a picture that moves."""
    from jaxfl.experiment.pictures.drawing import gif
    from jaxfl.experiment.pictures.graphs import Graph, draw_graph, evenly_spaced

    config = built.config
    places = evenly_spaced(len(graph.ids), FRAMES)
    by_name = zip(*(graph.weights(name, places) for name in graph.names), strict=True)
    frames = [
        draw_graph(
            Graph(dict(zip(graph.names, matrices, strict=True)), graph.ids[place]),
            clients,
            graph_title(config, int(graph.rounds[place])) if config.title else "",
        )
        for place, matrices in zip(places, by_name, strict=True)
    ]
    files.write_file(file, gif(frames, MILLISECONDS))
