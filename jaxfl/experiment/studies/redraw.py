"""The pictures of finished runs and searches in other formats: `jaxfl report --format pdf`."""

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path

from jaxfl.core.errors import InputError, check
from jaxfl.experiment.config import Config, resolve
from jaxfl.experiment.config.json_text import config_from
from jaxfl.experiment.session.build import Built, build
from jaxfl.experiment.session.gather import gather
from jaxfl.experiment.session.run_pictures import STYLE, Style, draw_run, drawn_clients
from jaxfl.experiment.store import files
from jaxfl.experiment.store.finished_runs import last_graph
from jaxfl.experiment.store.read_records import read_plan, read_search
from jaxfl.experiment.store.records import Runs, TrialEntry
from jaxfl.experiment.tables.grouping import comparable_groups
from jaxfl.experiment.tables.heading import setting_line


def folders_of(runs: Runs, out: Path) -> dict[str, Path]:
    """Where the pictures of runs are drawn: of one run in `out`, else in a folder for each.

    Args:
      runs: of `load_finished`.
      out: a directory.
    """
    if len(runs) == 1:
        return dict.fromkeys(runs, out)
    # Where several runs have one name, the label is a path, of which the end tells them apart.
    ends = {
        label: (label,) if run.name == label else Path(label).parts for label, run in runs.items()
    }
    length = next(
        n for n in itertools.count(1) if len({(*end[-n:],) for end in ends.values()}) == len(runs)
    )
    return {
        label: out / files.directory_name("-".join(end[-length:])) for label, end in ends.items()
    }


def build_finished(runs: Runs) -> dict[str, Built]:
    """The parts of finished runs, whose data sets are read again; nothing is trained or written.

    Args:
      runs: of `load_finished`.

    Raises:
      InputError: a run without its config.json, or data that are not there.
    """
    ready = {}
    for label, run in runs.items():
        if run.config is None:
            raise InputError(f"{label} has no config.json of jaxfl: leave it out, or run it again")
        resolved = resolve(run.config)
        ready[label] = build(resolved, gather(resolved))
    return ready


def redraw(
    runs: Runs, ready: Mapping[str, Built], out: Path, style: Style, *, overwrite: bool = False
) -> None:
    """Draws the pictures of finished runs, of their graphs and of who holds what.

    Args:
      runs: of `load_finished`.
      ready: of `build_finished`.
      out: a directory, see `folders_of`.
      style: of the pictures.
      overwrite: replace pictures that are there.

    Raises:
      InputError: there are pictures, and they are not to be replaced.
    """
    folders = folders_of(runs, out)
    names = [name for name in files.RUN_FILES if name.rpartition(".")[2] in style.formats]
    there = [folder / name for folder in folders.values() for name in names]
    there = [file for file in there if file.exists()]
    check(
        overwrite or not there,
        f"{', '.join(map(str, there[:1]))} exists: choose another --out, or add --overwrite",
    )
    directories = {}
    for label, run in runs.items():
        if run.config is not None and run.directory is not None:
            files.make_directory(folders[label])
            draw_run(run.directory, run.config, ready[label], run.lines, style, folders[label])
            directories[label] = run.directory
    if len(runs) > 1 and len(comparable_groups(runs)) == 1:
        draw_graphs_of(directories, out, next(iter(ready.values())), style)


def draw_graphs_of(
    directories: dict[str, Path], out: Path, first: Built, style: Style = STYLE
) -> None:
    """Draws the last graphs of several runs side by side, if there are any.

    Args:
      directories: of the runs, by name.
      out: the directory of the picture.
      first: one of the runs, whose clients are those of all.
      style: of the picture, which has no panels.
    """
    from jaxfl.experiment.pictures.drawing import write_picture
    from jaxfl.experiment.pictures.graphs import Graph, draw_graphs

    graphs = {name: last_graph(run) for name, run in directories.items()}
    by_name = {name: Graph(*graph) for name, graph in graphs.items() if graph is not None}
    if by_name:
        write_picture(out, "graphs", draw_graphs(by_name, drawn_clients(first)), style.formats)


def redraw_search(directory: Path, out: Path, style: Style) -> None:
    """Draws the picture of a finished search.

    Args:
      directory: of the search.
      out: the directory of the picture.
      style: of the picture.
    """
    plan = directory / files.PLAN
    config = config_from(read_plan(plan)["config"], plan)
    draw_search(config, read_search(directory / "sweep.json")["trials"], out, style)


def draw_search(
    config: Config, trials: Sequence[TrialEntry], out: Path, style: Style = STYLE
) -> None:
    """Draws the validation scores of a search.

    Args:
      config: of the search.
      trials: the best first.
      out: the directory of the picture.
      style: of the picture, which has no panels.
    """
    from jaxfl.experiment.pictures.curves import draw_sweep
    from jaxfl.experiment.pictures.drawing import write_picture

    title = f"{config.algorithm}: {setting_line([config])}" if style.title else ""
    write_picture(out, "sweep", draw_sweep(trials, title, config.metric), style.formats)
