"""Pictures of scores and of measures of the weights: by round, of several runs, of a search."""

import textwrap
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

from jaxfl.core.options import checked
from jaxfl.experiment.pictures.drawing import (
    COLOURS,
    MALICIOUS,
    OTHERS,
    canvas,
    colour_of,
    finish_rounds,
    label_ends,
    line_styles,
    literal,
)
from jaxfl.experiment.pictures.last_round import draw_last_round
from jaxfl.experiment.store import files
from jaxfl.experiment.store.records import Line, Runs, TrialEntry
from jaxfl.experiment.tables.grouping import Group, comparable_groups, heading
from jaxfl.experiment.tables.pooling import pool_seeds
from jaxfl.experiment.tables.scores import (
    FEW,
    TITLES,
    alone_name,
    alone_value,
    coloured_runs,
    measure_of,
    most_mixed,
    ranked,
    score_by_round,
    score_limits,
    spans_magnitudes,
)
from jaxfl.experiment.tables.wording import called, called_runs, titles_called
from jaxfl.simulation.evaluation import Stage
from jaxfl.simulation.metrics import metric_of
from jaxfl.simulation.statistics import Statistic

# The measures that lie between 0 and 1, with their names in the picture and their colours.
SHARES = {
    "self_weight": ("own weight", COLOURS[7]),
    "second_singular_value": ("2nd singular value", COLOURS[4]),
    "group_agreement": ("groups found", COLOURS[2]),
    "edge_precision": ("edge precision", COLOURS[9]),
    "edge_recall": ("edge recall", COLOURS[0]),
    "malicious_weight": ("malicious weight", MALICIOUS),
}


@checked
def draw_curves(
    lines: Sequence[Line],
    measure: str = "accuracy",
    *,
    title: str = "",
    algorithm: str | None = None,
) -> Figure:
    """Scores, training loss and measures of the weights by round; bands: deviation over seeds.

    Args:
      lines: the run's lines of `metrics.jsonl`.
      measure: the metric of the scores.
      title: of the whole picture.
      algorithm: whose colour the lines have; black if not given.
    """
    of_graph = graph_measures(lines)
    figure, panels = canvas(2, rows=2 if of_graph else 1, width=5.4)
    for panel, name in zip(panels, files.PANELS["curves"], strict=False):
        panel.set_label(name)
    scores, loss, *further = panels
    rounds = [line["round"] for line in lines]
    colour = colour_of(algorithm) if algorithm else "black"
    mark = {"marker": "o", "markersize": 3} if len(rounds) < 40 else {}
    kinds: tuple[tuple[str, Stage, Statistic, dict[str, Any]], ...] = (
        (TITLES["deployed"], "deployed", "mean", {"color": colour, "linestyle": "-"}),
        (TITLES["trained"], "trained", "mean", {"color": colour, "linestyle": ":"}),
        (TITLES["fine_tuned"], "fine_tuned", "mean", {"color": colour, "linestyle": ":"}),
        ("worst clients", "deployed", "worst10", {"color": "0.55", "linestyle": "--"}),
    )
    ends = {}
    styles = {}
    axis_values = []
    for label, stage, name, style in kinds:
        values, spread = score_by_round(lines, stage, name, measure)
        if not np.isfinite(values).any():
            continue
        scores.plot(rounds, values, **style, **mark)
        _draw_band(scores, rounds, values, spread, style["color"])
        ends[label] = values[-1]
        styles[label] = style
        axis_values.append(values - spread)
    _set_score_limits(scores, axis_values, measure)
    scores.set(xlabel="round", title=literal(f"test {metric_of(measure).name}"))
    losses = [np.nan if line["loss"] is None else line["loss"] for line in lines]
    loss.plot(rounds, losses, color=colour, **mark)
    # A loss may be 0 throughout, for example where all examples have one label.
    loss.set(xlabel="round", title="training loss, mean over clients")
    if loss.dataLim.y1 > 0:
        loss.set_yscale("log")
        loss.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        loss.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        loss.yaxis.set_minor_formatter(NullFormatter())
    for panel in (scores, loss):
        finish_rounds(panel, rounds)
    label_ends(scores, ends, styles)
    if of_graph:
        draw_graph_measures(further, rounds, of_graph)
    if title:
        figure.suptitle(literal(title), fontsize=9)
    return figure


def draw_comparison(
    runs: Runs,
    highlight: Collection[str] = (),
    *,
    names: Mapping[str, str] | None = None,
    title: bool = True,
) -> Figure:
    """Scores of several runs: by round, and those of the last round.

    Where no run was evaluated twice, there are bars of the last round alone. Runs with other
    clients have panels of their own, one below the other. Bands and bars are the deviation over
    seeds. Of many runs the best are in colour, local training and FedAvg, and those to highlight;
    the others are grey.

    Args:
      runs: of `store.finished_runs.load_finished`.
      highlight: labels or methods that are in colour among many.
      names: what runs and metrics are called, of `tables.wording.parse_names`.
      title: whether the setting of the runs stands above; where there are several settings, what
        tells them apart stands there in any case.

    Raises:
      InputError: two runs are called the same.
    """
    groups = comparable_groups(pool_seeds(runs))
    names = names or {}
    titles = titles_called(names, runs)
    by_round = any(len(run.lines) > 1 for run in runs.values())
    heights = [_height(len(group.runs), by_round) for group in groups]
    figure = Figure(figsize=(11.8 if by_round else 6.4, sum(heights)), layout="constrained")
    parts = figure.subfigures(len(groups), 1, squeeze=False, height_ratios=heights)[:, 0]
    chosen = {*highlight, *(called(name, names) for name in highlight)}
    for subfigure, group in zip(parts, groups, strict=True):
        metric = metric_of(measure_of(group.runs))
        score = titles.get(metric.title, metric.name)
        line = heading(group) if title else group.setting
        renamed = Group(line, called_runs(group.runs, names))
        _draw_group(subfigure, renamed, chosen, score, by_round)
    return figure


def _height(runs: int, by_round: bool) -> float:
    """The inches of a row of panels, by the number of runs that are named in it."""
    smallest = 4.2 if by_round else 1.4 + 0.35 * min(runs, FEW)
    return max(smallest, 1.4 + 0.21 * runs)


def _draw_group(
    subfigure: SubFigure, group: Group, highlight: Collection[str], score: str, by_round: bool
) -> None:
    """The runs of one group in two panels, or in one.

    Args:
      subfigure: to draw on.
      group: the runs, with the title above them.
      highlight: labels or methods that are in colour among many.
      score: what their score is called.
      by_round: whether there is a panel of the scores by round.
    """
    runs = group.runs
    labels = list(ranked(runs))
    styles = line_styles({label: runs[label].summary["algorithm"] for label in labels})
    highlights = coloured_runs(labels, runs, highlight)
    for label in labels:
        if label not in highlights:
            styles[label] = {"color": OTHERS, "linestyle": "-"}
    panels = subfigure.subplots(1, 2 if by_round else 1, squeeze=False)[0]
    for panel, name in zip(panels[::-1], files.PANELS["comparison"][::-1], strict=False):
        panel.spines[["top", "right"]].set_visible(False)
        panel.set_label(name)
    if by_round:
        _draw_rounds(panels[0], labels, runs, styles, highlights, score)
    draw_last_round(panels[-1], labels, runs, styles, score, bars=not by_round)
    if group.setting:
        letters = int(14 * subfigure.figure.get_size_inches()[0])
        subfigure.suptitle(literal(textwrap.fill(group.setting, letters)), fontsize=9)


def _draw_rounds(
    curves: Axes,
    labels: list[str],
    runs: Runs,
    styles: dict[str, dict[str, Any]],
    highlights: set[str],
    score: str,
) -> None:
    """The scores of the deployed models by round.

    Args:
      curves: the panel.
      labels: of the runs, the best first.
      runs: by their labels.
      styles: of their lines.
      highlights: labels of the runs that are in colour, with their names at their ends.
      score: what their score is called.
    """
    measure = measure_of(runs)
    ends: dict[str, float] = {}
    axis_values = []
    every_round: list[int] = []
    for depth, label in enumerate(reversed(labels)):  # the best is drawn last
        lines = runs[label].lines
        rounds = [line["round"] for line in lines]
        every_round += rounds
        values, spread = score_by_round(lines, "deployed", "mean", measure)
        style = styles[label]
        top = depth + (len(labels) if label in highlights else 0)
        marker = "o" if len(lines) < 5 else None
        width = 1.8 if label in highlights else 1.0
        curves.plot(rounds, values, **style, linewidth=width, marker=marker, zorder=2 + top)
        if label in highlights:
            _draw_band(curves, rounds, values, spread, style["color"])
            ends[label] = values[-1] if len(values) else np.nan
            axis_values.append(values - spread)
    _set_score_limits(curves, axis_values, measure)
    curves.set(xlabel="round", title=literal(f"test {score} of the deployed models"))
    finish_rounds(curves, every_round)
    label_ends(curves, ends, styles)


def draw_sweep(
    trials: Sequence[TrialEntry], title: str = "", metrics: Sequence[str] = ()
) -> Figure:
    """Validation scores of a search against each value that was varied, the best trial in red.

    Args:
      trials: of `studies.sweep.search`, the best first.
      title: of the picture.
      metrics: that are named for the search; the scores are of the first one.
    """
    names = list(trials[0]["point"])
    figure, panels = canvas(len(names), width=4.2, height=3.6)
    scores = [
        np.nan if trial["val"] is None else alone_value(metrics, trial["val"]) for trial in trials
    ]
    for panel, name in zip(panels, names, strict=True):
        values = [trial["point"][name] for trial in trials]
        numbers = all(type(value) in (int, float) for value in values)
        places = values if numbers else [str(value) for value in values]
        panel.scatter(places, scores, s=22, color="0.45", alpha=0.6, linewidths=0)
        panel.scatter(places[:1], scores[:1], s=45, color=MALICIOUS, label="best")
        if spans_magnitudes(values):
            panel.set_xscale("log")
        panel.set(xlabel=name, ylabel=literal(f"validation {alone_name(metrics)}"))
        panel.grid(alpha=0.25)
    panels[0].legend(frameon=False, fontsize=8)
    if title:
        figure.suptitle(literal(title), fontsize=9)
    return figure


def _set_score_limits(panel: Axes, values: list[np.ndarray], measure: str) -> None:
    limits = score_limits(values, measure)
    if limits is not None:
        panel.set_ylim(*limits)


def _draw_band(
    panel: Axes, rounds: list[int], values: np.ndarray, spread: np.ndarray, colour: Any
) -> None:
    if spread.any():
        panel.fill_between(
            rounds, values - spread, values + spread, color=colour, alpha=0.15, linewidth=0
        )


def graph_measures(lines: Sequence[Line]) -> dict[str, np.ndarray]:
    """The measures of the weights by name [E], of the part of the model that is mixed most.

    Args:
      lines: of `metrics.jsonl`.

    Returns:
      Nothing for a method without weights.
    """
    records = [most_mixed(line.get("graph", {})) for line in lines]
    names = dict.fromkeys(name for record in records for name in record)
    return {name: np.array([record.get(name) for record in records], dtype=float) for name in names}


def draw_graph_measures(
    panels: Sequence[Axes], rounds: list[int], measures: dict[str, np.ndarray]
) -> None:
    """Curves of the measures: the number of collaborators, and those that lie between 0 and 1.

    Args:
      panels: the two in which they are drawn.
      rounds: of the evaluations [E].
      measures: of `graph_measures`.
    """
    mark = {"marker": "o", "markersize": 3} if len(rounds) < 40 else {}
    numbers, shares = panels
    numbers.plot(rounds, measures["collaborators"], color="black", **mark)
    numbers.set(xlabel="round", title="effective number of collaborators, mean over clients")
    numbers.set_ylim(0, 1.05 * max(np.nanmax(measures["collaborators"]), 2.0))
    ends = {}
    styles = {}
    for name, (label, colour) in SHARES.items():
        values = measures.get(name)
        if values is None or not np.isfinite(values).any():
            continue
        shares.plot(rounds, values, color=colour, **mark)
        ends[label] = values[-1]
        styles[label] = {"color": colour}
    low, high = shares.get_ylim()
    shares.set(xlabel="round", title="mixing weights", ylim=(min(low, -0.05), max(high, 1.05)))
    finish_rounds(numbers, rounds)
    finish_rounds(shares, rounds)
    label_ends(shares, ends, styles)
