"""Pictures of scores: by round, of several runs, and of a search."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, PercentFormatter

from jaxfl.experiment.show.drawing import MALICIOUS, canvas, colours, literal, png
from jaxfl.experiment.show.scores import MEASURES, ranked

OFFSET = {"textcoords": "offset points"}


def draw_curves(runs: dict[str, list[dict[str, Any]]], measure: str = "accuracy") -> bytes:
    """Scores and training loss by round.

    Args:
      runs: label -> the run's lines of `metrics.jsonl`.
      measure: what the scores are, of `scores.MEASURES`.
    """
    figure, (accuracy, loss) = canvas(2)
    for colour, (label, lines) in zip(colours(len(runs)), runs.items(), strict=True):
        rounds = [line["round"] for line in lines]
        mark = (
            {"color": colour, "marker": "o", "markersize": 3}
            if len(rounds) < 40
            else {"color": colour}
        )
        before, after = (_values(lines, stage, "mean", measure) for stage in ("before", "after"))
        accuracy.plot(rounds, before, label=literal(label) if len(runs) > 1 else "deployed", **mark)
        if np.isfinite(after).any():
            accuracy.plot(
                rounds,
                after,
                linestyle=":",
                label=None if len(runs) > 1 else "after local training",
                **mark,
            )
        if len(runs) == 1:
            worst = _values(lines, "before", "worst10", measure)
            accuracy.fill_between(
                rounds, worst, before, color=colour, alpha=0.15, label="down to the worst 10 %"
            )
        loss.plot(
            rounds,
            [np.nan if line["loss"] is None else line["loss"] for line in lines],
            label=literal(label),
            **mark,
        )
    _score_axis(accuracy, "y", measure)
    accuracy.set(xlabel="round", title=f"test {MEASURES[measure][0]}, mean over clients")
    # A loss may be 0 throughout, for example where all examples have one label.
    scale = "log" if loss.dataLim.y1 > 0 else "linear"
    loss.set(xlabel="round", title="training loss, mean over clients", yscale=scale)
    for panel in (accuracy, loss):
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
        panel.grid(alpha=0.25)
    accuracy.legend(frameon=False, loc="lower right" if measure == "accuracy" else "upper right")
    return png(figure)


def draw_comparison(runs: dict[str, dict[str, Any]]) -> bytes:
    """Scores of several runs by round, and in the last round before and after local training.

    Args:
      runs: label -> {"summary": ..., "lines": ...}, as `store.finished.load_finished` returns them.
    """
    measure = next(iter(runs.values()))["summary"]["measure"]
    labels = list(ranked({label: run["summary"] for label, run in runs.items()}))
    crowded = len(labels) > 12  # the bars then name the colours of the curves
    figure, (accuracy, bars) = canvas(
        2, width=6.0 if crowded else 5.0, height=max(4.2, 1.2 + 0.27 * len(labels))
    )
    name, shown, digits = MEASURES[measure]
    places = np.arange(len(labels))[::-1]
    for colour, place, label in zip(colours(len(labels)), places, labels, strict=True):
        final, lines = runs[label]["summary"]["final"], runs[label]["lines"]
        rounds = [line["round"] for line in lines]
        marker = "o" if len(lines) < 5 else None
        accuracy.plot(
            rounds,
            _values(lines, "before", "mean", measure),
            color=colour,
            label=literal(label),
            marker=marker,
        )
        for stage, height, alpha in (("before", place + 0.19, 1), ("after", place - 0.19, 0.35)):
            mean = final[stage]["mean"]
            if mean is None:  # it was not scored
                continue
            value = shown(mean)
            bars.barh(height, value, 0.36, color=colour, alpha=alpha)
            bars.annotate(
                f"{value:{digits}}", (value, height), (3, 0), va="center", fontsize=8, **OFFSET
            )
    _score_axis(accuracy, "y", measure)
    accuracy.set(xlabel="round", title=f"test {name} of the deployed models")
    accuracy.xaxis.set_major_locator(MaxNLocator(integer=True))
    accuracy.grid(alpha=0.25)
    if not crowded:
        accuracy.legend(
            frameon=False, loc="lower right" if measure == "accuracy" else "upper right"
        )
    _score_axis(bars, "x", measure)
    bars.set(title="last round: deployed, and after local training (pale)")
    bars.set_xlim(0, 1.1 * bars.get_xlim()[1])
    bars.set_yticks(places, list(map(literal, labels)), fontsize=8 if crowded else None)
    bars.set_ylim(-0.8, len(labels) - 0.2)
    return png(figure)


def draw_sweep(trials: list[dict[str, Any]]) -> bytes:
    """Validation scores of a search against each value that was varied, the best trial in red.

    Args:
      trials: of `studies.sweep.search`, the best first.
    """
    names = list(trials[0]["point"])
    figure, panels = canvas(len(names), width=4.0, height=3.4)
    scores = [np.nan if trial["val"] is None else trial["val"] for trial in trials]
    for panel, name in zip(panels, names, strict=True):
        values = [trial["point"][name] for trial in trials]
        numbers = all(type(value) in (int, float) for value in values)
        places = values if numbers else [str(value) for value in values]
        panel.scatter(places, scores, s=18, color="0.5")
        panel.scatter(places[:1], scores[:1], s=40, color=MALICIOUS)
        if numbers and min(values) > 0 and max(values) > 30 * min(values):
            panel.set_xscale("log")
        panel.set(xlabel=name, title="validation score")
        panel.grid(alpha=0.25)
    return png(figure)


def _score_axis(panel: Axes, which: str, measure: str) -> None:
    if measure == "accuracy":
        getattr(panel, f"{which}axis").set_major_formatter(PercentFormatter(100))
        getattr(panel, f"set_{which}lim")(0, 102)


def _values(lines: list[dict[str, Any]], stage: str, name: str, measure: str) -> list[float]:
    shown = MEASURES[measure][1]
    return [np.nan if line[stage][name] is None else shown(line[stage][name]) for line in lines]
