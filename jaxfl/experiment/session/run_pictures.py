"""The pictures of a run: who holds what, the scores by round, and the graph."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from jaxfl.experiment.config import Config
from jaxfl.experiment.session.build import Built
from jaxfl.experiment.session.graph_numbers import are_layers
from jaxfl.experiment.session.make_model import layers_by_depth
from jaxfl.experiment.store import files
from jaxfl.experiment.store.graph_file import GraphFile, open_graph
from jaxfl.experiment.store.records import Line
from jaxfl.experiment.tables.heading import data_line, graph_title, setting_line

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from jaxfl.experiment.pictures.client_colours import Clients

FRAMES = 40  # at most, of a picture that moves
MILLISECONDS = 300  # a frame


class Style(NamedTuple):
    """How pictures are written."""

    formats: tuple[str, ...] = ("png",)  # of `files.PICTURE_FORMATS`; gif, the graph by round
    title: bool = True  # write the setting above them
    panels: bool = False  # also write each panel as a file of its own, without a title


STYLE = Style()


def draw_run(
    directory: Path,
    config: Config,
    built: Built,
    lines: list[Line],
    style: Style = STYLE,
    out: Path | None = None,
) -> None:
    """Draws what there is to see of a run: at first the partition, in the end its rounds too.

    Args:
      directory: of the run, which has its mixing weights.
      config: of the run.
      built: the run.
      lines: of `metrics.jsonl`; none when the run begins.
      style: of the pictures.
      out: the directory of the pictures of a finished run, if not that of the run.
    """
    from jaxfl.experiment.pictures.curves import draw_curves
    from jaxfl.experiment.pictures.partition_picture import draw_partition

    target = out or directory
    if out is not None or not (directory / "partition.png").exists():
        draw = partial(draw_partition, built.data.source, built.data.parts[0])
        _draw(target, "partition", draw, data_line(built.options.data), style)
    if not lines:
        return
    title = f"{config.name}: {setting_line([config])}"
    draw = partial(draw_curves, lines, built.metrics[0], algorithm=config.algorithm)
    _draw(target, "curves", lambda title: draw(title=title), title, style)
    graph = open_graph(directory)
    if graph is not None:
        _draw_graph(target, config, built, graph, style)


def drawn_clients(built: Built) -> "Clients":
    """What pictures of graphs show of the clients of a run, in its first seed."""
    from jaxfl.experiment.pictures.client_colours import clients_of

    return clients_of(built.data.source, built.data.parts[0], built.groups[0], built.malicious)


def _draw(
    directory: Path, name: str, draw: Callable[[str], "Figure"], title: str, style: Style
) -> None:
    """Writes a picture, and its panels if they are asked for; the style may leave out titles."""
    from jaxfl.experiment.pictures.drawing import write_panels, write_picture

    write_picture(directory, name, draw(title if style.title else ""), style.formats)
    if style.panels:
        write_panels(directory, name, partial(draw, ""), style.formats)


def _draw_graph(
    directory: Path, config: Config, built: Built, graph: GraphFile, style: Style
) -> None:
    """Writes the pictures of the mixing weights of the first seed."""
    from jaxfl.experiment.pictures.depth import draw_depth
    from jaxfl.experiment.pictures.drawing import gif, write_picture
    from jaxfl.experiment.pictures.graphs import Graph, draw_graph, evenly_spaced

    clients = drawn_clients(built)

    def title(place: int) -> str:
        return graph_title(config, int(graph.rounds[place]))

    def graphs(places: list[int]) -> Iterator[Graph]:
        by_name = (graph.weights(name, places) for name in graph.names)
        for place, *matrices in zip(places, *by_name, strict=True):
            yield Graph(dict(zip(graph.names, matrices, strict=True)), graph.ids[place])

    end = len(graph.ids) - 1
    (last,) = graphs([end])
    _draw(directory, "graph", partial(draw_graph, last, clients), title(end), style)
    if len(graph.names) > 1 and are_layers(
        graph.names, layers_by_depth(built.options.model, built.data.source)
    ):
        figure = draw_depth(last, clients, title(end) if style.title else "")
        write_picture(directory, "graph_by_layer", figure, style.formats)
    if "gif" in style.formats:
        places = evenly_spaced(len(graph.ids), FRAMES)
        frames = [
            draw_graph(one, clients, title(place) if style.title else "")
            for one, place in zip(graphs(places), places, strict=True)
        ]
        files.write_file(directory / "graph.gif", gif(frames, MILLISECONDS))
