"""Interactive figures of finished runs and searches, by plotly (the extra `report`).

A view is what a panel of the page shows at a time: {"name", "figure"}, and with a slider "frames",
the data of each step. Colours are those of the pictures; the page adapts them to a dark screen.
"""

import json
from collections import Counter
from collections.abc import Collection, Sequence
from html import escape
from typing import Any

import numpy as np
import plotly.graph_objects as go
from matplotlib.colors import to_hex, to_rgb

from jaxfl.experiment.pictures.drawing import (
    DASHES_AND_TWO_DOTS,
    LONG_DASHES,
    LONG_DASHES_AND_DOTS,
    MALICIOUS,
    OTHERS,
    SPARSE_DOTS,
    colour_of,
    line_styles,
    shorten,
)
from jaxfl.experiment.store.records import Runs, TrialEntry
from jaxfl.experiment.tables.scores import (
    FEW,
    alone_name,
    alone_value,
    coloured_runs,
    lines_by,
    measure_of,
    ranked,
    score_by_round,
    score_limits,
    score_text,
    spans_magnitudes,
)
from jaxfl.experiment.tables.tables import metrics_of
from jaxfl.simulation.evaluation import Stage
from jaxfl.simulation.metrics import metric_of
from jaxfl.simulation.statistics import Statistic

View = dict[str, Any]
DASHES = {
    "-": "solid",
    "--": "dash",
    "-.": "dashdot",
    ":": "dot",
    LONG_DASHES: "longdash",
    LONG_DASHES_AND_DOTS: "longdashdot",
    SPARSE_DOTS: "1px, 6px",
    DASHES_AND_TWO_DOTS: "8px, 3px, 2px, 3px, 2px, 3px",
}
KINDS: tuple[tuple[str, Stage, Statistic], ...] = (  # of curves: name, stage and score
    ("deployed models", "deployed", "mean"),
    ("worst clients", "deployed", "worst10"),
    ("trained models", "trained", "mean"),
    ("fine-tuned models", "fine_tuned", "mean"),
)


def curve_views(runs: Runs, highlight: Collection[str] = ()) -> list[View]:
    """Scores and training loss by round, with bands of the deviation over seeds.

    By each further metric of the runs there is one view: of the deployed models, or of one run.

    Args:
      runs: of one measure.
      highlight: labels or methods that are in colour among many.
    """
    measure, *others = metrics_of(runs)
    if len(runs) == 1:
        views = [_curves_of_one(runs, metric) for metric in (measure, *others)]
    else:
        views = [_score_curves(runs, kind, measure, highlight) for kind in KINDS]
        views += [_score_curves(runs, KINDS[0], metric, highlight) for metric in others]
    all_views = [view for view in (*views, _loss_curves(runs, highlight)) if view is not None]
    for view in all_views:
        layout = view["figure"]["layout"]
        layout["xaxis"] |= _round_axis(runs)
        layout["hovermode"] = "x unified" if len(runs) <= FEW else "closest"
    return all_views


def _round_axis(runs: Runs) -> dict[str, Any]:
    """The axis of rounds: no further than the rounds, and no ticks between them."""
    rounds = [line["round"] for run in runs.values() for line in run.lines]
    span = max(rounds) - min(rounds)
    room = max(0.02 * span, 0.1)
    ticks = {"dtick": 1} if span <= 10 else {}
    return {"range": [min(rounds) - room, max(rounds) + room]} | ticks


def _score_curves(
    runs: Runs, kind: tuple[str, Stage, Statistic], measure: str, highlight: Collection[str]
) -> View | None:
    title, stage, name = kind
    metric = metric_of(measure)
    figure = make_figure(f"test {metric.name}, {title}", "round")
    axis_values = []
    for label, style in styles_of(runs, highlight).items():
        rounds = [line["round"] for line in runs[label].lines]
        lines = lines_by(runs[label], measure)
        values, spread = score_by_round(lines, stage, name, measure)
        if not np.isfinite(values).any():
            continue
        in_colour = style.pop("in_colour")
        if in_colour:
            axis_values.append(values - spread)
            _add_band(figure, label, rounds, values, spread, style["color"])
        texts = [score_text(measure, line, stage, name) for line in lines]
        _add_curve(figure, label, rounds, listed(values), texts, style, in_colour)
    if not figure.data:
        return None
    figure.update_yaxes(range=score_limits(axis_values, measure))
    is_first = measure == measure_of(runs)
    return make_view(title if is_first else f"{title} by {metric.title}", figure)


def _curves_of_one(runs: Runs, measure: str) -> View | None:
    """All scores of one run, as its picture has them."""
    (run,) = runs.values()
    colour = to_hex(colour_of(run.summary["algorithm"]))
    metric = metric_of(measure)
    figure = make_figure(f"test {metric.name}", "round")
    rounds = [line["round"] for line in run.lines]
    lines = lines_by(run, measure)
    axis_values = []
    for (title, stage, name), dash in zip(KINDS, ("solid", "dash", "dot", "dot"), strict=True):
        values, spread = score_by_round(lines, stage, name, measure)
        if np.isfinite(values).any():
            axis_values.append(values - spread)
            style = {"color": "#8c8c8c" if name == "worst10" else colour, "dash": dash}
            _add_band(figure, title, rounds, values, spread, style["color"])
            texts = [score_text(measure, line, stage, name) for line in lines]
            _add_curve(figure, title, rounds, listed(values), texts, style, True)
    figure.update_yaxes(range=score_limits(axis_values, measure))
    behind = "" if measure == run.summary["measure"] else f" by {metric.title}"
    return make_view(f"test scores{behind}", figure) if figure.data else None


def _add_band(
    figure: go.Figure,
    label: str,
    rounds: list[int],
    values: np.ndarray,
    spread: np.ndarray,
    colour: str,
) -> None:
    """The deviation over seeds, if there are several."""
    if spread.any():
        figure.add_scatter(
            x=rounds + rounds[::-1],
            y=listed([*(values + spread), *(values - spread)[::-1]]),
            fill="toself",
            fillcolor=f"rgba({_rgb(colour)}, 0.15)",
            line={"width": 0},
            mode="lines",
            hoverinfo="skip",
            showlegend=False,
            legendgroup=label,
        )


def _loss_curves(runs: Runs, highlight: Collection[str]) -> View | None:
    figure = make_figure("training loss, mean over clients", "round")
    for label, style in styles_of(runs, highlight).items():
        lines = runs[label].lines
        losses = [line["loss"] for line in lines]
        in_colour = style.pop("in_colour")
        if any(loss is not None and loss > 0 for loss in losses):
            texts = ["-" if loss is None else f"{loss:.4g}" for loss in losses]
            rounds = [line["round"] for line in lines]
            _add_curve(figure, label, rounds, losses, texts, style, in_colour)
    figure.update_yaxes(type="log", dtick="D2")
    return make_view("training loss", figure) if figure.data else None


def _add_curve(
    figure: go.Figure,
    label: str,
    rounds: list[int],
    values: list[float | None],
    texts: list[str],
    style: dict[str, str],
    in_colour: bool,
) -> None:
    figure.add_scatter(
        x=rounds,
        y=values,
        customdata=texts,
        name=plain(label),
        mode="lines+markers" if len(rounds) < 40 else "lines",
        line=style | {"width": 2.2 if in_colour else 1.2},
        marker={"size": 5},
        showlegend=in_colour,
        legendgroup=label,
        hovertemplate="%{customdata}",
    )


def styles_of(runs: Runs, highlight: Collection[str]) -> dict[str, dict[str, Any]]:
    """Colour and dash of the line of each run, the best run first, and whether it is in colour."""
    labels = list(ranked(runs))
    styles = line_styles({label: runs[label].summary["algorithm"] for label in labels})
    highlights = coloured_runs(labels, runs, highlight)
    return {
        label: {
            "color": to_hex(styles[label]["color"] if label in highlights else OTHERS),
            "dash": DASHES[styles[label]["linestyle"]] if label in highlights else "solid",
            "in_colour": label in highlights,
        }
        for label in labels
    }


def search_views(trials: Sequence[TrialEntry], metrics: Sequence[str] = ()) -> list[View]:
    """Validation scores against each value that was varied, the best trial in red.

    Args:
      trials: of `sweep.json`, the best first.
      metrics: that are named for the search; the scores are of the first one.
    """
    views = []
    title_of_scores = f"validation {alone_name(metrics)}"
    scores = [
        None if trial["val"] is None else alone_value(metrics, trial["val"]) for trial in trials
    ]
    texts = [
        "<br>".join(plain(f"{name} = {value}") for name, value in trial["point"].items())
        for trial in trials
    ]
    for name in trials[0]["point"]:
        values = [trial["point"][name] for trial in trials]
        numbers = all(type(value) in (int, float) for value in values)
        figure = make_figure(title_of_scores, plain(name))
        for title, selection, colour, size in (
            ("trials", slice(1, None), "#7f8c9b", 9),
            ("best", slice(0, 1), MALICIOUS, 13),
        ):
            figure.add_scatter(
                x=[value if numbers else plain(str(value)) for value in values][selection],
                y=scores[selection],
                customdata=texts[selection],
                name=title,
                mode="markers",
                marker={"color": to_hex(colour), "size": size},
                hovertemplate=f"%{{customdata}}<br>{escape(title_of_scores)} %{{y:.4f}}",
            )
        axis = "log" if spans_magnitudes(values) else "linear" if numbers else "category"
        figure.update_layout(hovermode="closest", xaxis={"type": axis})
        views.append(make_view(name, figure))
    return views


def plain(text: str) -> str:
    """The text as plotly shows it letter by letter: no tags, and not too long for a legend."""
    return escape(shorten(text, 48), quote=False)


def distinct(names: list[str], numbers: Sequence[int]) -> list[str]:
    """The names, with a number behind those that are the same: an axis would unite them.

    Args:
      names: as an axis shows them.
      numbers: of what they name.

    Example:
      >>> distinct(["north...east", "west", "north...east"], [4, 7, 9])
      ['north...east (4)', 'west', 'north...east (9)']
    """
    counts = Counter(names)
    return [
        f"{name} ({number})" if counts[name] > 1 else name
        for name, number in zip(names, numbers, strict=True)
    ]


def make_figure(title: str, below: str) -> go.Figure:
    """An empty figure with the titles of its axes; the one below may have tags of plotly."""
    figure = go.Figure()
    figure.update_layout(
        template="none",
        margin={"l": 64, "r": 12, "t": 16, "b": 48},
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.02, "x": 0},
        xaxis={"title": {"text": below}, "automargin": True, "zeroline": False},
        yaxis={
            "title": {"text": escape(title, quote=False)},
            "automargin": True,
            "zeroline": False,
        },
    )
    return figure


def make_view(name: str, figure: go.Figure) -> View:
    """The view of a figure, as JSON has it."""
    return {"name": name, "figure": json.loads(str(figure.to_json(engine="json")))}


def listed(values: Sequence[float] | np.ndarray) -> list[float | None]:
    """The values as JSON has them: null where they are not finite."""
    return [float(value) if np.isfinite(value) else None for value in values]


def _rgb(colour: str) -> str:
    return ", ".join(str(round(255 * channel)) for channel in to_rgb(colour))
