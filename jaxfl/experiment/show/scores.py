"""Scores of finished runs: how a stored score is shown, who is ranked first, `comparison.json`."""

import math
import statistics
from collections.abc import Sequence
from typing import Any

MEASURES = {  # of a score: what it is called, and how a stored value is shown
    "accuracy": ("accuracy in %", lambda score: 100 * score, ".1f"),
    # stored as minus the mean squared error
    "rmse": ("RMSE", lambda score: max(-score, 0.0) ** 0.5, ".3f"),
}


# label -> content of a run: `summary`, that of summary.json; `config`, its Config, or None if it is
# unknown; and more, see `store.finished.load_finished`.
Runs = dict[str, dict[str, Any]]
STAGES = ("before", "after")  # fine-tuning
# What only some summaries have, and `comparison.json` too.
FURTHER = ("graph", "unseen", "time", "times", "target")


def over_seeds(seeds: list[dict[str, dict]]) -> dict[str, Any]:
    """The mean of the summaries of each seed; with several seeds also `seeds`, the summaries."""
    mean = {
        stage: {name: _mean([seed[stage][name] for seed in seeds]) for name in seeds[0][stage]}
        for stage in seeds[0]
    }
    return mean | ({"seeds": seeds} if len(seeds) > 1 else {})


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def each_seed(stages: dict[str, Any]) -> list[dict[str, Any]]:
    """`before` and `after` of each seed; of the only one, if there is one."""
    return stages.get("seeds", [{stage: stages[stage] for stage in STAGES}])


def by_seed(stages: dict[str, Any], stage: str, name: str) -> list[float]:
    """A stored score of each seed; empty if there is one seed, or a seed without a score.

    Args:
      stages: `final`, `selected_on_val` or `unseen` of a summary, or a line of `metrics.jsonl`.
      stage: "before" or "after".
      name: "mean", "weighted" or "worst10".
    """
    found = [seed[stage][name] for seed in stages.get("seeds", [])]
    return found if len(found) > 1 and None not in found else []


def score_text(measure: str, stages: dict[str, Any], stage: str, name: str) -> str:
    """A score as tables show it, with ± its standard deviation over the seeds; "-" for none.

    Args:
      measure: of `MEASURES`.
      stages: as in `by_seed`.
      stage: as in `by_seed`.
      name: as in `by_seed`.
    """
    _, shown, digits = MEASURES[measure]
    value = stages[stage][name]
    if value is None:
        return "-"
    seeds = [shown(seed) for seed in by_seed(stages, stage, name)]
    return f"{shown(value):{digits}}{spread_text(seeds, digits)}"


def spread_text(seeds: Sequence[float], digits: str) -> str:
    """The standard deviation over seeds behind a number: " ±0.6"; nothing for one seed."""
    return f" ±{statistics.stdev(seeds):{digits}}" if len(seeds) > 1 else ""


def gains(
    measure: str, stages: dict[str, Any], reference: dict[str, Any]
) -> tuple[float, list[float]] | None:
    """How far the deployed models of a run are above those of another run, as scores are shown.

    Args:
      measure: of `MEASURES`; under "rmse" a gain is negative.
      stages: of the run, as in `by_seed`.
      reference: of the other run.

    Returns:
      The difference of the means, and the difference of each seed, which both runs share (empty
      where they do not have the same number of seeds); None if a run has no score.
    """
    shown = MEASURES[measure][1]
    pair = [part["before"]["mean"] for part in (stages, reference)]
    if None in pair:
        return None
    seeds, others = (by_seed(part, "before", "mean") for part in (stages, reference))
    differences = []
    if len(seeds) == len(others):
        differences = [shown(a) - shown(b) for a, b in zip(seeds, others, strict=True)]
    return shown(pair[0]) - shown(pair[1]), differences


def amount(floats: int) -> str:
    """A number of floats or batches in thousands, millions or billions."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if floats >= size:
            return f"{floats / size:.3g}{unit}"
    return str(floats)


def ranked(summaries: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The summaries by the mean score of the deployed models, the best first."""

    def score(label: str) -> float:
        mean = summaries[label]["final"]["before"]["mean"]
        return -math.inf if mean is None else mean

    return {label: summaries[label] for label in sorted(summaries, key=score, reverse=True)}


def most_mixed(graph: dict[str, Any]) -> dict[str, float | None]:
    """The numbers of a graph; where parts of the model have their own, those of the most mixed one.

    Args:
      graph: `graph` of a line of `metrics.jsonl` or of a summary.
    """
    parts = [value for value in graph.values() if isinstance(value, dict)]
    return max(parts, key=lambda part: part.get("collaborators") or 0.0) if parts else graph


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
        further = {key: summary[key] for key in FURTHER if key in summary}
        place = {"run": label, "directory": found["directory"]}
        content.append({key: summary[key] for key in keys} | further | place)
    return content
