"""Tables of finished runs: on the terminal, in Markdown, as JSON."""

import json
import math
import statistics
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from jaxfl.errors import InputError, check
from jaxfl.experiment.config import parse_json

COLUMNS = ("before", "weighted", "worst", "after", "on val", "up", "down", "grads", "s")


def load(directories: list[Path]) -> dict[str, dict[str, Any]]:
    """The finished runs in the directories and in their direct subdirectories.

    Where a directory holds a comparison, only the subdirectories of its algorithms count: others
    are older, or none of its business.

    Returns:
      A label each (the algorithm, or the directory if an algorithm occurs twice) -> its `summary`
      and `lines`.

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
        below = compared(directory)
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
                try_out(summary, lines)
            except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
                raise InputError(
                    f"{run} is no run of jaxfl ({error!r:.200}): leave it out"
                ) from error
            found.append((run, {"summary": summary, "lines": lines}))
    measures = sorted({content["summary"]["measure"] for _, content in found})
    check(
        len(measures) == 1,
        f"these runs are scored by {' and '.join(measures)}: give runs of one measure",
    )
    names = [content["summary"]["algorithm"] for _, content in found]
    return {
        name if names.count(name) == 1 else str(run): content
        for name, (run, content) in zip(names, found, strict=True)
    }


def try_out(summary: dict[str, Any], lines: list[dict[str, Any]]) -> None:
    """Takes from a run all that will be asked of it, so that whatever is missing, or is none of ours, is missed now."""
    row(summary)
    json.dumps([comparison({"": summary}), lines], allow_nan=False)
    scores = [summary["final"][stage]["mean"] for stage in ("before", "after")]
    numbers = [line["round"] for line in lines] + [score for score in scores if score is not None]
    numbers += [line["before"]["mean"] for line in lines if line["before"]["mean"] is not None]
    if not all(type(number) in (int, float) for number in numbers):
        raise TypeError("rounds and scores are numbers")
    if not summary["algorithm"].isidentifier():
        raise ValueError("its algorithm has no name")


def compared(directory: Path) -> set[str] | None:
    """The algorithms of the comparison that the directory holds; None if it holds none."""
    file = directory / "comparison.json"
    if not file.exists():
        return None
    try:
        return {entry["algorithm"] for entry in parse_json(file.read_text())}
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise InputError(
            f"{file} is no comparison of jaxfl ({error!r:.200}): remove it, or name the runs"
        ) from error


MEASURES = {  # of a score: what it is called, and how a stored value is shown
    "accuracy": ("accuracy in %", lambda score: 100 * score, ".1f"),
    "rmse": (
        "RMSE",
        lambda score: max(-score, 0.0) ** 0.5,
        ".3f",
    ),  # stored as minus the mean squared error
}


def row(summary: dict[str, Any]) -> list[str]:
    """A run's cells under `COLUMNS`."""
    final, chosen = summary["final"], summary["selected_on_val"]
    _, shown, digits = MEASURES[summary["measure"]]

    def cell(value: float | None) -> str:
        return "-" if value is None else f"{shown(value):{digits}}"

    spread = [seed["before"]["mean"] for seed in final.get("seeds", [])]
    before = cell(final["before"]["mean"])
    if len(spread) > 1 and None not in spread:
        before += f" ±{statistics.stdev(map(shown, spread)):{digits}}"
    return [
        before,
        cell(final["before"]["weighted"]),
        cell(final["before"]["worst10"]),
        cell(final["after"]["mean"]),
        cell(chosen["before"]["mean"]),
        amount(summary["up"]),
        amount(summary["down"]),
        amount(summary["batches"]),
        f"{summary['seconds']:.1f}",
    ]


def amount(floats: int) -> str:
    """A number of floats or batches in thousands, millions or billions."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if floats >= size:
            return f"{floats / size:.3g}{unit}"
    return str(floats)


def caption(summaries: dict[str, dict[str, Any]]) -> str:
    """What the columns mean, for runs of one measure."""
    name = MEASURES[next(iter(summaries.values()))["measure"]][0]
    return (
        f"test {name} of the deployed models before and after fine-tuning, mean over clients; weighted by data; "
        "worst tenth of the clients; on val: each client at its own best validation score; floats sent up and down; "
        "batches whose gradient was taken; seconds without compiling"
    )


def ranked(summaries: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The summaries by the mean score of the deployed models, the best first."""

    def score(label: str) -> float:
        mean = summaries[label]["final"]["before"]["mean"]
        return -math.inf if mean is None else mean

    return {label: summaries[label] for label in sorted(summaries, key=score, reverse=True)}


def table(summaries: dict[str, dict[str, Any]]) -> Table:
    """The runs as a table for the terminal."""
    shown = Table(
        caption=caption(summaries),
        caption_justify="left",
        box=SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
    )
    shown.add_column("algorithm", overflow="fold", min_width=10)
    for name in COLUMNS:
        shown.add_column(name, justify="right", no_wrap=True)
    for label, summary in ranked(summaries).items():
        shown.add_row(Text(label), *row(summary))
    return shown


def markdown(summaries: dict[str, dict[str, Any]]) -> str:
    """The runs as a Markdown table."""
    head = f"| algorithm | {' | '.join(COLUMNS)} |\n|---|{'---:|' * len(COLUMNS)}\n"
    rows = [
        f"| {label} | {' | '.join(row(summary))} |\n"
        for label, summary in ranked(summaries).items()
    ]
    said = caption(summaries)
    return head + "".join(rows) + f"\n{said[0].upper()}{said[1:]}.\n"


def comparison(summaries: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """The content of `comparison.json`."""
    keys = ("algorithm", "measure", "final", "selected_on_val", "seconds", "compile_seconds")
    keys += ("up", "down", "up_bytes", "batches")
    return [
        {key: summary[key] for key in keys} | {"run": label} for label, summary in summaries.items()
    ]
