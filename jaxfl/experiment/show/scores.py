"""The scores of finished runs as rows: of the terminal's table, of Markdown, of JSON."""

import math
import statistics
from typing import Any

COLUMNS = ("before", "weighted", "worst", "after", "on val", "up", "down", "grads", "s")


MEASURES = {  # of a score: what it is called, and how a stored value is shown
    "accuracy": ("accuracy in %", lambda score: 100 * score, ".1f"),
    # stored as minus the mean squared error
    "rmse": ("RMSE", lambda score: max(-score, 0.0) ** 0.5, ".3f"),
}


def rows(label: str, summary: dict[str, Any]) -> list[tuple[str, list[str]]]:
    """A run's label and cells under `COLUMNS`, and a row of its clients that were never seen."""
    chosen = _score(summary, summary["selected_on_val"]["before"]["mean"])
    amounts = [
        amount(summary["up"]),
        amount(summary["down"]),
        amount(summary["batches"]),
        f"{summary['seconds']:.1f}",
    ]
    found = [(label, [*_scores(summary, summary["final"]), chosen, *amounts])]
    if "unseen" in summary:
        blank = ["-"] * (1 + len(amounts))
        found.append((f"{label}, unseen", [*_scores(summary, summary["unseen"]), *blank]))
    return found


def _scores(summary: dict[str, Any], stages: dict[str, Any]) -> list[str]:
    """The cells of the columns from "before" to "after"."""
    _, shown, digits = MEASURES[summary["measure"]]
    spread = [seed["before"]["mean"] for seed in stages.get("seeds", [])]
    before = _score(summary, stages["before"]["mean"])
    if len(spread) > 1 and None not in spread:
        before += f" ±{statistics.stdev(map(shown, spread)):{digits}}"
    others = (stages["before"]["weighted"], stages["before"]["worst10"], stages["after"]["mean"])
    return [before, *(_score(summary, value) for value in others)]


def _score(summary: dict[str, Any], value: float | None) -> str:
    _, shown, digits = MEASURES[summary["measure"]]
    return "-" if value is None else f"{shown(value):{digits}}"


def amount(floats: int) -> str:
    """A number of floats or batches in thousands, millions or billions."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if floats >= size:
            return f"{floats / size:.3g}{unit}"
    return str(floats)


def caption(summaries: dict[str, dict[str, Any]]) -> str:
    """What the columns mean, for runs of one measure."""
    name = MEASURES[next(iter(summaries.values()))["measure"]][0]
    newcomers = any("unseen" in summary for summary in summaries.values())
    said = (
        f"test {name} of the deployed models before and after local training, mean over clients; "
        "weighted by data; worst tenth of the clients; on val: each client at its own best "
        "validation score; floats sent up and down; gradients computed on batches; seconds "
        "without compiling"
    )
    return said + ("; unseen: clients that took part in no round" if newcomers else "")


def ranked(summaries: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The summaries by the mean score of the deployed models, the best first."""

    def score(label: str) -> float:
        mean = summaries[label]["final"]["before"]["mean"]
        return -math.inf if mean is None else mean

    return {label: summaries[label] for label in sorted(summaries, key=score, reverse=True)}


def markdown(summaries: dict[str, dict[str, Any]]) -> str:
    """The runs as a Markdown table."""
    head = f"| algorithm | {' | '.join(COLUMNS)} |\n|---|{'---:|' * len(COLUMNS)}\n"
    lines = []
    for run, summary in ranked(summaries).items():
        for label, cells in rows(run.replace("|", r"\|"), summary):
            lines.append(f"| {label} | {' | '.join(cells)} |\n")
    said = caption(summaries)
    return head + "".join(lines) + f"\n{said[0].upper()}{said[1:]}.\n"


def comparison_rows(runs: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """The content of `comparison.json`.

    Args:
      runs: label -> {"summary": ..., "directory": ...}, of `store.finished.load_finished`.
    """
    keys = ("algorithm", "measure", "final", "selected_on_val", "seconds", "compile_seconds")
    keys += ("up", "down", "up_bytes", "batches")
    content = []
    for label, found in runs.items():
        summary = found["summary"]
        unseen = {"unseen": summary["unseen"]} if "unseen" in summary else {}
        place = {"run": label, "directory": found["directory"]}
        content.append({key: summary[key] for key in keys} | unseen | place)
    return content
