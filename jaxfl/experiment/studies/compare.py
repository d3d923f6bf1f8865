"""Runs of several algorithms on the same clients, with a table and a picture of them all."""

from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from jaxfl import mesh
from jaxfl.errors import check
from jaxfl.experiment.config import Config, resolve
from jaxfl.experiment.session import output
from jaxfl.experiment.session.build import Built, build
from jaxfl.experiment.session.clients import Data, gather
from jaxfl.experiment.session.program import compile_run
from jaxfl.experiment.session.run import Follow, record_run, silent
from jaxfl.experiment.store import files
from jaxfl.experiment.store.finished import load_finished, write_comparison
from jaxfl.experiment.studies.budget import equalise


def compare(
    configs: list[Config],
    out: Path,
    *,
    overwrite: bool = False,
    equal_budget: bool = False,
    follow: Follow = silent,
) -> dict[str, dict[str, Any]]:
    """Runs several algorithms in `out/ALGORITHM`, with a table and a picture of them all in `out`.

    A run with a label is in `out/LABEL`, where `-` stands for what a directory should not be named.

    Args:
      configs: of one setting; they share its clients. An algorithm may occur several times, under
        labels that differ.
      out: the directory to write, see docs/files.md.
      overwrite: replace a comparison that it holds.
      equal_budget: every algorithm takes as many gradients, see `budget.equalise`.
      follow: as in `execute`.

    Returns:
      The name of each run (its label or algorithm) -> the content of its `summary.json`.

    Raises:
      InputError: as `execute`, for the first config that is wrong, before anything is run.
    """
    names = [files.directory_name(config.name) for config in configs]
    check(bool(configs), "nothing to compare: give a config for each algorithm")
    twice = [name for name, count in Counter(map(str.casefold, names)).items() if count > 1]
    check(
        not twice,
        f"two runs would be written to {''.join(twice[:1])}: name each algorithm once, or give "
        "each run a label of its own",
    )
    files.check_free([out, *(out / name for name in names)], overwrite)
    first = resolve(configs[0])
    data = gather(first)
    every = [first, *(resolve(config, first.source) for config in configs[1:])]
    if equal_budget:
        every = equalise(every, data)
    ready = [build(resolved, data) for resolved in every]
    with ExitStack() as held:
        return _run_all(ready, data, out, overwrite, follow, held)


def _run_all(
    ready: list[Built], data: Data, out: Path, overwrite: bool, follow: Follow, held: ExitStack
) -> dict[str, dict[str, Any]]:
    """Executes the runs one after the other, and writes the comparison.

    The directory is locked in `held` as soon as the first program is compiled.
    """
    summaries = {}
    graphs = {}
    formats = ready[0].config.format
    directories = {
        built.config.name: out / files.directory_name(built.config.name) for built in ready
    }
    for place, built in enumerate(ready):
        name = built.config.name
        follow(built.config, None)
        program = compile_run(built)
        if place == 0:
            held.enter_context(files.locked(out))
            if mesh.is_main_process():
                files.create(out, (*files.COMPARISON_FILES, *files.GRAPHS), overwrite)
        with files.locked(directories[name]):
            if mesh.is_main_process():
                output.begin(directories[name], built, overwrite)
            history = record_run(program, directories[name], follow)
        summaries[name] = history.summary(program.seconds)
        last = history.last_graph()
        if last is not None:
            graphs[name] = last
    if not mesh.is_main_process():
        return summaries
    if graphs:
        from jaxfl.experiment.show.graphs import Graph, draw_graphs
        from jaxfl.experiment.store.pictures import write_picture

        last = {name: Graph(*graph) for name, graph in graphs.items()}
        figure = draw_graphs(last, output.drawn_clients(ready[0]))
        write_picture(out, "graphs", figure, formats)
    return write_comparison(load_finished(list(directories.values())), out, formats)
