"""The scores of the last round of several runs side by side."""

import statistics
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from jaxfl.experiment.pictures.drawing import OTHERS, literal, shorten
from jaxfl.experiment.store.records import Runs
from jaxfl.experiment.tables.scores import FEW, TITLES, by_seed, measure_of, score_of
from jaxfl.simulation.evaluation import Stage
from jaxfl.simulation.metrics import metric_of
from jaxfl.simulation.statistics import Statistic

OFFSET: dict[str, Any] = {"textcoords": "offset points"}


def draw_last_round(
    panel: Axes,
    labels: list[str],
    runs: Runs,
    styles: dict[str, dict[str, Any]],
    score: str,
    bars: bool,
) -> None:
    """A row for each run: the mean over clients, the worst clients, the mean after training.

    Args:
      panel: to draw on.
      labels: of the runs, the best first.
      runs: by their labels.
      styles: of their lines.
      score: what their score is called.
      bars: whether the mean is a bar.
    """
    metric = metric_of(measure_of(runs))
    scale, digits = metric.shown, metric.format
    places = np.arange(len(labels))[::-1]
    kinds: tuple[tuple[str, Stage, Statistic, str, float], ...] = (
        ("mean over clients", "deployed", "mean", "o", 1.0),
        ("worst clients", "deployed", "worst10", "|", 1.0),
        (TITLES["trained"], "trained", "mean", "s", 0.45),
        (TITLES["fine_tuned"], "fine_tuned", "mean", "D", 0.45),
    )
    small = len(labels) > FEW
    for place, label in zip(places, labels, strict=True):
        final = runs[label].summary["final"]
        colour = styles[label]["color"]
        if colour == OTHERS:
            colour = "0.6"
        for _, stage, name, marker, alpha in kinds:
            value = score_of(final, stage, name)
            if value is None:  # it was not scored
                continue
            seeds = [scale(seed) for seed in by_seed(final, stage, name)]
            spread = statistics.stdev(seeds) if seeds else None
            if bars and marker == "o":
                panel.barh(place, scale(value), height=0.6, color=colour, alpha=0.35)
            size = {"o": 7, "|": 10, "s": 4, "D": 4}[marker] * (0.75 if small else 1)
            panel.errorbar(
                scale(value),
                place,
                xerr=spread,
                fmt=marker,
                color=colour,
                markersize=size,
                alpha=alpha,
                elinewidth=1.2,
                capsize=2.5 if name == "mean" else 0,
            )
            if (stage, name) == ("deployed", "mean"):
                text = f"{scale(value):{digits}}" + (f" ±{spread:{digits}}" if spread else "")
                size = 6 if small else 8
                if bars:
                    at = {"xy": (0, place), "xytext": (4, 0), "va": "center"}
                else:
                    above = (0, 5 if small else 7)
                    at = {"xy": (scale(value), place), "xytext": above, "ha": "center"}
                panel.annotate(text, fontsize=size, **at, **OFFSET)
    panel.set_yticks(
        places, [literal(shorten(label, 30)) for label in labels], fontsize=7 if small else 9
    )
    panel.set_ylim(-0.7, len(labels) - 0.2)
    panel.grid(alpha=0.25)
    panel.set_title(literal(f"{score}, last round"))
    finals = [run.summary["final"] for run in runs.values()]
    for name, stage, _, marker, alpha in kinds:
        if all(score_of(final, stage, "mean") is None for final in finals):
            continue
        style = {"marker": marker, "linestyle": "", "color": "0.4", "alpha": alpha}
        panel.plot([], [], label=name, **style)
    panel.figure.legend(frameon=False, fontsize=8, loc="outside lower right", ncols=3)
