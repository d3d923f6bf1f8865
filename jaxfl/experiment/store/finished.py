"""Reads finished runs from their directories, and writes what a comparison of them says."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from jaxfl.core.errors import InputError, check
from jaxfl.experiment.config import Config, load_config, parse_json
from jaxfl.experiment.store.files import read_arrays
from jaxfl.experiment.tables.scores import comparison_rows
from jaxfl.experiment.tables.tables import table_cells
from jaxfl.simulation.evaluate import STAGES


def load_finished(directories: list[Path], *, clients: bool = False) -> dict[str, dict[str, Any]]:
    """The finished runs in the directories and in their direct subdirectories.

    Where a directory holds a comparison, only the subdirectories of its runs count: others are
    older, or none of its business.

    Args:
      directories: of runs or comparisons.
      clients: read the scores of the clients too.

    Returns:
      A label each (its name, or the directory if that occurs twice) -> its `summary` and `lines`;
      `config`, or None if there is none that this version can read; `name`, the label of the run or
      its algorithm; `directory`, the name of its directory; `path`, where that is; with `clients`
      also `client_scores`, see `_client_scores`.

    Raises:
      InputError: no finished run there, files that are none, or runs whose scores cannot be
        compared.
    """
    found = []
    check(bool(directories), "no directories: give those of runs or comparisons")
    for directory in directories:
        check(
            directory.is_dir(),
            f"{directory} is no directory: give the --out directory of a run or a comparison",
        )
        below = _compared(directory)
        runs = sorted(
            file.parent
            for file in (*directory.glob("summary.json"), *directory.glob("*/summary.json"))
            if file.parent == directory or below is None or file.parent.name in below
        )
        hint = (
            "it holds a search, which --html FILE shows as a page"
            if (directory / "sweep.json").exists()
            else "give the --out directory of one"
        )
        check(bool(runs), f"{directory} holds no finished run (no summary.json): {hint}")
        for run in runs:
            try:
                summary = parse_json((run / "summary.json").read_text())
                lines = [
                    parse_json(text) for text in (run / "metrics.jsonl").read_text().splitlines()
                ]
                _try_out(summary, lines)
            except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
                raise InputError(
                    f"{run} is no run of jaxfl ({error!r:.200}): leave it out"
                ) from error
            content = {"summary": summary, "lines": lines, "config": _config(run)}
            content |= {"directory": run.resolve().name, "path": run}
            if clients:
                content["client_scores"] = _client_scores(run)
            found.append((run, content))
    measures = sorted({content["summary"]["measure"] for _, content in found})
    check(
        len(measures) == 1,
        f"these runs are scored by {' and '.join(measures)}: give runs of one measure",
    )
    names = [
        content["summary"].get("label", content["summary"]["algorithm"]) for _, content in found
    ]
    return {
        name if names.count(name) == 1 else str(run): content | {"name": name}
        for name, (run, content) in zip(names, found, strict=True)
    }


def _try_out(summary: dict[str, Any], lines: list[dict[str, Any]]) -> None:
    """Takes from a run all that will be asked of it, so that errors are raised now."""
    table_cells({"": {"summary": summary}})
    content = comparison_rows({"": {"summary": summary, "directory": ""}})
    json.dumps([content, lines], allow_nan=False)
    scores = [summary["final"][stage]["mean"] for stage in STAGES if stage in summary["final"]]
    scores += [line["loss"] for line in lines]
    for line in lines:
        for part in (line, *line.get("seeds", [])):
            there = [part[stage] for stage in STAGES if stage in part]
            scores += [stage[name] for stage in there for name in ("mean", "worst10")]
    numbers = [line["round"] for line in lines] + [score for score in scores if score is not None]
    if not all(type(number) in (int, float) for number in numbers):
        raise TypeError("rounds and scores are numbers")
    if not summary["algorithm"].isidentifier():
        raise ValueError("its algorithm has no name")
    label = summary.get("label", "none")
    if not (isinstance(label, str) and label.isprintable() and label.strip()):
        raise ValueError("its label is no name")


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
        raise InputError(f"{file} is of an earlier version, or damaged: run again") from error


def last_graph(run: Path) -> tuple[dict[str, np.ndarray], np.ndarray] | None:
    """The weights [M, M] of a finished run by name and their clients [M]; None if it has none.

    They are those of the last round, of the first seed.
    """
    file = run / "graph.npz"
    if not file.exists():
        return None
    arrays = read_arrays(file)
    ids = arrays.pop("ids")
    first = (0, -1) if ids.ndim == 3 else (-1,)
    return {name: weights[first] for name, weights in arrays.items()}, ids[first]


def _config(run: Path) -> Config | None:
    """The config of a run; None if it is missing or of another version."""
    try:
        config = load_config(run / "config.json")
    except InputError:
        return None
    return config if config.dataset.isprintable() else None


def _compared(directory: Path) -> set[str] | None:
    """The subdirectories of the comparison that the directory holds; None if it holds none."""
    file = directory / "comparison.json"
    if not file.exists():
        return None
    try:
        # An earlier version named no directories: they had the names of the algorithms.
        return {
            entry.get("directory", entry["algorithm"]) for entry in parse_json(file.read_text())
        }
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise InputError(
            f"{file} is no comparison of jaxfl ({error!r:.200}): remove it, or name the runs"
        ) from error
