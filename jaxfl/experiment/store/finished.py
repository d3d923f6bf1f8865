"""Reads finished runs from their directories, and writes what a comparison of them says."""

import json
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from jaxfl.errors import InputError, check
from jaxfl.experiment.config import Config, load_config, parse_json
from jaxfl.experiment.show.scores import comparison_rows
from jaxfl.experiment.show.tables import markdown, table_cells
from jaxfl.experiment.store import files


def load_finished(directories: list[Path]) -> dict[str, dict[str, Any]]:
    """The finished runs in the directories and in their direct subdirectories.

    Where a directory holds a comparison, only the subdirectories of its runs count: others are
    older, or none of its business.

    Returns:
      A label each (that of the run or the algorithm, or the directory if it occurs twice) -> its
      `summary` and `lines`; `config`, or None if there is none that this version can read; and
      `directory`, the name of its directory.

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
        check(
            bool(runs),
            f"{directory} holds no finished run (no summary.json): give the --out directory of one",
        )
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
            found.append((run, content | {"directory": run.resolve().name}))
    measures = sorted({content["summary"]["measure"] for _, content in found})
    check(
        len(measures) == 1,
        f"these runs are scored by {' and '.join(measures)}: give runs of one measure",
    )
    names = [
        content["summary"].get("label", content["summary"]["algorithm"]) for _, content in found
    ]
    return {
        name if names.count(name) == 1 else str(run): content
        for name, (run, content) in zip(names, found, strict=True)
    }


def _try_out(summary: dict[str, Any], lines: list[dict[str, Any]]) -> None:
    """Takes from a run all that will be asked of it, so that errors are raised now."""
    table_cells({"": {"summary": summary}})
    content = comparison_rows({"": {"summary": summary, "directory": ""}})
    json.dumps([content, lines], allow_nan=False)
    scores = [summary["final"][stage]["mean"] for stage in ("before", "after")]
    numbers = [line["round"] for line in lines] + [score for score in scores if score is not None]
    numbers += [line["before"]["mean"] for line in lines if line["before"]["mean"] is not None]
    if not all(type(number) in (int, float) for number in numbers):
        raise TypeError("rounds and scores are numbers")
    if not summary["algorithm"].isidentifier():
        raise ValueError("its algorithm has no name")
    label = summary.get("label", "none")
    if not (isinstance(label, str) and label.isprintable() and label.strip()):
        raise ValueError("its label is no name")


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


def write_comparison(
    runs: dict[str, dict[str, Any]],
    out: Path,
    formats: Sequence[str] = ("png",),
    highlight: Collection[str] = (),
) -> dict[str, dict[str, Any]]:
    """Writes the comparison of finished runs, of `load_finished`, into `out`.

    Args:
      runs: label -> content of a run.
      out: the directory to write.
      formats: of the picture, as `--format`.
      highlight: runs or methods that are in colour among many.

    Returns:
      The summary of each run.
    """
    from jaxfl.experiment.show.curves import draw_comparison
    from jaxfl.experiment.store.pictures import write_picture

    files.write_json(out / "comparison.json", comparison_rows(runs))
    files.write_file(out / "comparison.md", markdown(runs))
    write_picture(out, "comparison", draw_comparison(runs, highlight), formats)
    return {label: found["summary"] for label, found in runs.items()}
