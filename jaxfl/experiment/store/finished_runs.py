"""Finds finished runs in directories, and reads what tables and pictures show of them."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jaxfl.core.errors import InputError, check
from jaxfl.experiment.config import Config, load_finished_config
from jaxfl.experiment.store.files import read_arrays
from jaxfl.experiment.store.graph_file import open_graph
from jaxfl.experiment.store.read_records import read_comparison, read_lines, read_summary
from jaxfl.experiment.store.records import RunRecord, Runs


def load_finished(directories: list[Path], *, clients: bool = False) -> Runs:
    """The finished runs in the directories and in their direct subdirectories.

    Where a directory holds a comparison, only the subdirectories of its runs count: others are
    older, or none of its business.

    Args:
      directories: of runs or comparisons.
      clients: read the scores of the clients too.

    Returns:
      A label each -> the run. The label is the name of the run, or its directory if that name
      occurs twice.

    Raises:
      InputError: no finished run there, files that are none, or runs whose scores cannot be
        compared.
    """
    runs: list[RunRecord] = []
    check(bool(directories), "no directories: give those of runs or comparisons")
    for directory in directories:
        check(
            os.path.isdir(directory),
            f"{directory} is no directory: give the --out directory of a run or a comparison",
        )
        below = _run_names(directory)
        paths = sorted(
            file.parent
            for file in (*directory.glob("summary.json"), *directory.glob("*/summary.json"))
            if file.parent == directory or below is None or file.parent.name in below
        )
        hint = (
            "it holds a search, which --html FILE shows as a page"
            if (directory / "sweep.json").exists()
            else "give the --out directory of one"
        )
        check(bool(paths), f"{directory} holds no finished run (no summary.json): {hint}")
        runs += [read_run(run, clients=clients) for run in paths]
    measures = sorted({run.summary["measure"] for run in runs})
    check(
        len(measures) == 1,
        f"these runs are scored by {' and '.join(measures)}: give runs of one measure",
    )
    names = [run.name for run in runs]
    return {
        run.name if run.name and names.count(run.name) == 1 else str(run.directory): run
        for run in runs
    }


def is_search(directory: Path) -> bool:
    """Whether the directory holds a search, and no runs."""
    return (directory / "sweep.json").is_file() and not any(
        (directory / name).is_file() for name in ("summary.json", "comparison.json")
    )


def read_run(directory: Path, *, clients: bool = False) -> RunRecord:
    """The finished run in a directory.

    Args:
      directory: of the run.
      clients: read the scores of the clients too.

    Raises:
      InputError: it holds no finished run.
    """
    summary = read_summary(directory / "summary.json", "leave it out")
    return RunRecord(
        summary,
        read_lines(directory / "metrics.jsonl", "leave it out"),
        _config(directory),
        summary.get("label", summary["algorithm"]),
        directory,
        _client_scores(directory) if clients else None,
    )


def _client_scores(run: Path) -> np.ndarray | None:
    """The last test scores of a run's deployed models [C], NaN for clients that do not count.

    None for a run of several seeds, whose scores are paired by seed.
    """
    file = run / "clients.npz"
    arrays = read_arrays(file)
    try:
        scores = arrays["deployed_test"]
        return np.where(arrays["unseen"], np.nan, scores[-1]) if scores.ndim == 2 else None
    except (LookupError, ValueError) as error:
        raise InputError(f"{file} is damaged: run again") from error


def last_graph(run: Path) -> tuple[dict[str, np.ndarray], np.ndarray] | None:
    """The weights [M, M] of a finished run by name and their clients [M]; None if it has none.

    They are those of the last round, of the first seed.
    """
    graph = open_graph(run)
    if graph is None:
        return None
    last = [len(graph.ids) - 1]
    return {name: next(graph.weights(name, last)) for name in graph.names}, graph.ids[-1]


def _config(run: Path) -> Config | None:
    """The config of a run; None if it is missing or damaged."""
    try:
        config = load_finished_config(run / "config.json")
    except InputError:
        return None
    return config if config.dataset.isprintable() else None


def _run_names(directory: Path) -> set[str] | None:
    """The subdirectories of the comparison that the directory holds; None if it holds none."""
    file = directory / "comparison.json"
    if not file.exists():
        return None
    return {run["directory"] for run in read_comparison(file)}


def numbers_of(line: Mapping[str, Any], above: str = "") -> dict[str, float | int]:
    """The numbers of a line by name; those of each seed and lists of clients are left out."""
    numbers: dict[str, float | int] = {}
    for name, value in line.items():
        if isinstance(value, dict):
            numbers |= numbers_of(value, f"{above}{name}_")
        elif value is None or isinstance(value, int | float):
            numbers[f"{above}{name}"] = np.nan if value is None else value
    return numbers
