"""Whole runs: a config in, a directory of metrics, arrays and pictures out.

Where several processes run together, each calls these functions alike and the first one writes.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from jaxfl import mesh
from jaxfl.errors import check
from jaxfl.experiment import files, plots, report
from jaxfl.experiment.budget import equalise
from jaxfl.experiment.build import build, gather, malicious
from jaxfl.experiment.config import Config, Setting, load_config
from jaxfl.experiment.metrics import History
from jaxfl.experiment.run import Program, compile_run, run
from jaxfl.experiment.validate import check_config

__all__ = ["Config", "Setting", "compare", "execute", "load_config"]

Follow = Callable[[Config, dict[str, Any] | None], None]  # (config, a line and its measure; at first None)


def silent(config: Config, line: dict[str, Any] | None) -> None:
    """Follows a run without a word."""


def execute(config: Config, out: Path, *, overwrite: bool = False, follow: Follow = silent) -> dict[str, Any]:
    """One run from beginning to end; nothing is written before all is checked, loaded and compiled.

    Args:
      config: what to run.
      out: the directory to write, see docs/files.md.
      overwrite: replace a run that it holds.
      follow: called when the run begins and after each evaluation.

    Returns:
      The content of `summary.json`.

    Raises:
      InputError: the config is wrong, does not fit the data, or the directory holds a run.
    """
    check_free([out], overwrite)
    built = build(config)
    follow(config, None)
    return _record(compile_run(built), out, overwrite, follow)


def check_free(directories: list[Path], overwrite: bool) -> None:
    """As `files.check_free`, in the process that will write."""
    if mesh.leads():
        for directory in directories:
            files.check_free(directory, overwrite)


def _record(program: Program, out: Path, overwrite: bool, follow: Follow) -> dict[str, Any]:
    """Executes a compiled run and writes its directory."""
    built = program.built
    if mesh.leads():
        files.begin(out, built, overwrite)
    sizes = mesh.fetch(built.data.federation.sizes)
    measure = "accuracy" if built.data.source.classes else "rmse"
    history = History(built.config, sizes.reshape(built.config.seeds, -1), malicious(built.config), measure)
    for record in run(program):
        line = history.add(record)
        if mesh.leads():
            files.append(out, line)
        follow(built.config, line | {"measure": measure})
    if mesh.leads():
        files.finish(out, built, history, program.seconds)
    return history.summary(program.seconds)


def compare(
    configs: list[Config],
    out: Path,
    *,
    overwrite: bool = False,
    equal_budget: bool = False,
    follow: Follow = silent,
) -> dict[str, dict[str, Any]]:
    """Runs of several algorithms in `out/ALGORITHM`, with a table and a picture of them all in `out`.

    Args:
      configs: of one setting; they share its clients.
      out: the directory to write, see docs/files.md.
      overwrite: replace a comparison that it holds.
      equal_budget: every algorithm takes as many gradients, see `budget.equalise`.
      follow: as in `execute`.

    Returns:
      algorithm -> the content of its `summary.json`.

    Raises:
      InputError: as `execute`, for the first config that is wrong, before anything is run.
    """
    for config in configs:
        check_config(config)
    check(bool(configs), "nothing to compare: give a config for each algorithm")
    check(len({config.algorithm for config in configs}) == len(configs), "an algorithm is named twice: name each once")
    directories = [out / config.algorithm for config in configs]
    check_free([out, *directories], overwrite)
    data = gather(configs[0])
    every = [build(config, data) for config in (equalise(configs, data) if equal_budget else configs)]
    summaries = {}
    for built, directory in zip(every, directories, strict=True):
        follow(built.config, None)
        program = compile_run(built)
        if built is every[0] and mesh.leads():
            files.create(out, (*files.COMPARISON_FILES, files.GRAPHS), overwrite)
        summaries[built.config.algorithm] = _record(program, directory, overwrite, follow)
    if not mesh.leads():
        return summaries
    mixed = {directory.name: files.last_graph(directory) for directory in directories}
    mixed = {label: last for label, last in mixed.items() if last is not None}
    if mixed:
        files.write(out / files.GRAPHS, plots.graphs(mixed, data.source, data.parts[0]))
    return summarise(report.load(directories), out)


def summarise(runs: dict[str, dict[str, Any]], out: Path) -> dict[str, dict[str, Any]]:
    """Writes the comparison of finished runs, as `report.load` returns them, into `out`; returns their summaries."""
    summaries = {label: found["summary"] for label, found in runs.items()}
    files.write_json(out / "comparison.json", report.comparison(summaries))
    files.write(out / "comparison.md", report.markdown(summaries))
    files.write(out / "comparison.png", plots.comparison(runs))
    return summaries
