"""Pictures of a run, as PNG bytes. Figures are built without pyplot: no global state, no display."""

import io
import textwrap
from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from jaxfl.data import Source
from jaxfl.data.federate import group_order, label_counts
from jaxfl.data.partition import Parts
from jaxfl.experiment.config import Config, Setting
from jaxfl.experiment.report import MEASURES, ranked

COLOURS = matplotlib.colormaps["tab10"].colors
GROUPS = matplotlib.colormaps["turbo"]
LIAR = "crimson"
OFFSET = {"textcoords": "offset points"}
MANY = 40  # above so many clients they are not named one by one


def png(figure: Figure) -> bytes:
    """The figure as a PNG file."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=120)
    return buffer.getvalue()


def canvas(columns: int, width: float = 5.0, height: float = 4.2) -> tuple[Figure, Sequence[Axes]]:
    """A figure with panels side by side."""
    figure = Figure(figsize=(columns * width, height), layout="constrained")
    panels = figure.subplots(1, columns, squeeze=False)[0]
    for panel in panels:
        panel.spines[["top", "right"]].set_visible(False)
    return figure, list(panels)


def curves(runs: dict[str, list[dict[str, Any]]], measure: str = "accuracy") -> bytes:
    """Scores and training loss by round.

    Args:
      runs: label -> the run's lines of `metrics.jsonl`.
      measure: what the scores are, of `report.MEASURES`.
    """
    figure, (accuracy, loss) = canvas(2)
    for colour, (label, lines) in zip(_colours(len(runs)), runs.items(), strict=True):
        rounds = [line["round"] for line in lines]
        mark = (
            {"color": colour, "marker": "o", "markersize": 3}
            if len(rounds) < 40
            else {"color": colour}
        )
        before, after = (_values(lines, stage, "mean", measure) for stage in ("before", "after"))
        accuracy.plot(rounds, before, label=label if len(runs) > 1 else "deployed", **mark)
        accuracy.plot(
            rounds,
            after,
            linestyle=":",
            label=None if len(runs) > 1 else "after fine-tuning",
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
            label=label,
            **mark,
        )
    _score_axis(accuracy, "y", measure)
    accuracy.set(xlabel="round", title=f"test {MEASURES[measure][0]}, mean over clients")
    loss.set(xlabel="round", title="training loss, mean over clients", yscale="log")
    for panel in (accuracy, loss):
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
        panel.grid(alpha=0.25)
    accuracy.legend(frameon=False, loc="lower right" if measure == "accuracy" else "upper right")
    return png(figure)


def comparison(runs: dict[str, dict[str, Any]]) -> bytes:
    """Several runs: accuracy of the deployed models by round, and the last round before and after fine-tuning.

    Args:
      runs: label -> {"summary": ..., "lines": ...}, as `report.load` returns them.
    """
    measure = next(iter(runs.values()))["summary"]["measure"]
    labels = list(ranked({label: run["summary"] for label, run in runs.items()}))
    crowded = len(labels) > 12  # the bars then name the colours of the curves
    figure, (accuracy, bars) = canvas(
        2, width=6.0 if crowded else 5.0, height=max(4.2, 1.2 + 0.27 * len(labels))
    )
    name, shown, digits = MEASURES[measure]
    places = np.arange(len(labels))[::-1]
    for colour, place, label in zip(_colours(len(labels)), places, labels, strict=True):
        run, lines = runs[label], runs[label]["lines"]
        rounds, marker = [line["round"] for line in lines], "o" if len(lines) < 5 else None
        accuracy.plot(
            rounds,
            _values(lines, "before", "mean", measure),
            color=colour,
            label=label,
            marker=marker,
        )
        before, after = (
            shown(run["summary"]["final"][stage]["mean"] or 0) for stage in ("before", "after")
        )
        bars.barh(place + 0.19, before, 0.36, color=colour)
        bars.barh(place - 0.19, after, 0.36, color=colour, alpha=0.35)
        for height, value in ((place + 0.19, before), (place - 0.19, after)):
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
    bars.set(title="last round: deployed, and fine-tuned (pale)")
    bars.set_xlim(0, 1.1 * bars.get_xlim()[1])
    bars.set_yticks(places, labels, fontsize=8 if crowded else None)
    bars.set_ylim(-0.8, len(labels) - 0.2)
    return png(figure)


def graph(
    weights: np.ndarray,
    ids: np.ndarray,
    source: Source,
    parts: Parts,
    config: Config,
    malicious: np.ndarray,
) -> bytes:
    """Mixing weights of a round: a heat map and a network, clients with the same labels side by side.

    Args:
      weights: [M, M] (receiver, sender).
      ids: the clients of the rows [M].
      source: the data set.
      parts: rows of each of the C clients.
      config: for the title.
      malicious: which clients attack [C]; they stand last, in red.
    """
    counts = label_counts(source, parts)
    order = group_order(counts)
    place = np.argsort(
        np.concatenate([order[~malicious[order]], order[malicious[order]]])
    )  # of each client
    order = np.argsort(place[ids])
    weights, ids = weights[np.ix_(order, order)], ids[order]

    figure, (heat, network) = canvas(2, width=5.2, height=4.8)
    image = heat.imshow(weights, cmap="Blues", vmin=0)
    figure.colorbar(image, ax=heat, shrink=0.8, label="weight")
    heat.set(xlabel="sender", ylabel="receiver", title="mixing weights")
    if len(ids) <= MANY:
        heat.set_xticks(range(len(ids)), ids, fontsize=8, rotation=90 if len(ids) > 20 else 0)
        heat.set_yticks(range(len(ids)), ids, fontsize=8)
        for label in (*heat.get_xticklabels(), *heat.get_yticklabels()):
            label.set_color(LIAR if malicious[int(label.get_text())] else "black")
    heat.spines[:].set_visible(False)

    angles = np.pi / 2 - 2 * np.pi * np.arange(len(ids)) / len(ids)
    points = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    mutual = (weights + weights.T) / 2
    strongest = max((mutual - np.diag(np.diag(mutual))).max(), 1e-9)
    pairs = [(i, j) for i in range(len(ids)) for j in range(i) if mutual[i, j] > 0.01 * strongest]
    strength = np.array([mutual[i, j] for i, j in pairs]) / strongest
    lines = LineCollection(
        [points[[i, j]] for i, j in pairs], linewidths=4 * strength, color="0.25"
    )
    lines.set_alpha(0.15 + 0.75 * strength if len(pairs) else None)
    network.add_collection(lines)
    colours = GROUPS(0.05 + 0.9 * _mean_label(counts)[ids] / max(source.classes - 1, 1))
    large = len(ids) <= MANY
    rims = [LIAR if malicious[client] else "white" for client in ids]
    widths = np.where(malicious[ids], 3.5, 1.5)
    network.scatter(
        *points.T, s=380 if large else 40, c=colours, edgecolors=rims, linewidths=widths, zorder=2
    )
    for client, point in zip(ids, points, strict=True):
        if large:
            network.text(
                *point,
                str(client),
                ha="center",
                va="center",
                fontsize=8,
                color="white",
                weight="bold",
            )
    meaning = (
        "colour: labels held; red rim: malicious" if malicious.any() else "colour: labels held"
    )
    network.set(
        title=f"who learns from whom\n({meaning})",
        xlim=(-1.2, 1.2),
        ylim=(-1.2, 1.2),
        aspect="equal",
    )
    network.axis("off")
    figure.suptitle(
        f"{config.algorithm} on {config.dataset}, {config.partition}, round {config.rounds}"
    )
    return png(figure)


def graphs(found: dict[str, tuple[np.ndarray, np.ndarray]], source: Source, parts: Parts) -> bytes:
    """Mixing weights of several algorithms side by side, clients with the same labels next to each other.

    Algorithms whose weights are equal share a panel.

    Args:
      found: label -> weights [M, M] (receiver, sender) and the clients of its rows [M].
      source: the data set.
      parts: rows of each of the C clients.
    """
    place = np.argsort(group_order(label_counts(source, parts)))  # of each client
    groups: list[list[str]] = []
    for label, (weights, ids) in found.items():
        alike = [g for g in groups if _alike(found[g[0]], (weights, ids))]
        alike[0].append(label) if alike else groups.append([label])
    columns = min(6, len(groups))
    rows = -(-len(groups) // columns)
    figure = Figure(figsize=(2.1 * columns, 2.3 * rows), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for panel in panels[len(groups) :]:
        panel.axis("off")
    for panel, group in zip(panels, groups, strict=False):
        weights, ids = found[group[0]]
        order = np.argsort(place[ids])
        panel.imshow(
            weights[np.ix_(order, order)],
            cmap="Blues",
            vmin=0,
            vmax=max(weights.max(), 1 / len(ids)),
        )
        others = f" and {len(group) - 1} more" if len(group) > 1 else ""
        panel.set_title(f"{group[0]}{others}\nlargest {weights.max():.2f}", fontsize=8)
        panel.set_xticks([])
        panel.set_yticks([])
    figure.supylabel("receiver", fontsize=9)
    shared = [f"{group[0]}: also {', '.join(group[1:])}" for group in groups if len(group) > 1]
    figure.supxlabel(
        "\n".join(["sender", *(textwrap.fill(line, 22 * columns) for line in shared)]), fontsize=9
    )
    return png(figure)


def _alike(one: tuple[np.ndarray, np.ndarray], other: tuple[np.ndarray, np.ndarray]) -> bool:
    """Whether two graphs have the same clients and, to three digits, the same weights."""
    return np.array_equal(one[1], other[1]) and np.allclose(one[0], other[0], atol=5e-4)


def sweep(trials: list[dict[str, Any]]) -> bytes:
    """Validation scores of a search against each value that was varied, the best trial in red.

    Args:
      trials: of `sweep.search`, the best first.
    """
    names = list(trials[0]["point"])
    figure, panels = canvas(len(names), width=4.0, height=3.4)
    scores = [np.nan if trial["val"] is None else trial["val"] for trial in trials]
    for panel, name in zip(panels, names, strict=True):
        values = [trial["point"][name] for trial in trials]
        numbers = all(type(value) in (int, float) for value in values)
        places = values if numbers else [str(value) for value in values]
        panel.scatter(places, scores, s=18, color="0.5")
        panel.scatter(places[:1], scores[:1], s=40, color=LIAR)
        if numbers and min(values) > 0 and max(values) > 30 * min(values):
            panel.set_xscale("log")
        panel.set(xlabel=name, title="validation score")
        panel.grid(alpha=0.25)
    return png(figure)


def partition(source: Source, parts: Parts, config: Setting) -> bytes:
    """Who holds what: a disc for each client and label, its area the number of examples.

    Args:
      source: the data set.
      parts: rows of its training set for each client.
      config: for the title.
    """
    counts = label_counts(source, parts)
    order = group_order(counts)
    counts = counts[order]
    clients, classes = counts.shape
    figure, (panel, bars) = canvas(2, width=5.5, height=4.4)
    client, label = np.nonzero(counts)
    area = 260 * min(1.0, 20 / max(clients, classes)) ** 2 * counts[client, label] / counts.max()
    panel.scatter(
        client, label, s=area, c=GROUPS(0.05 + 0.9 * label / max(classes - 1, 1)), linewidths=0
    )
    panel.set(
        xlabel="client",
        ylabel="label",
        title="examples of each label (area)",
        ylim=(-0.7, classes - 0.3),
    )
    panel.yaxis.set_major_locator(MaxNLocator(integer=True))
    panel.grid(alpha=0.2)
    bars.bar(range(clients), counts.sum(axis=1), color="0.6")
    bars.set(xlabel="client", title="examples")
    for axis in (panel, bars):
        axis.set_xlim(-0.7, clients - 0.3)
        if clients <= MANY:
            axis.set_xticks(range(clients), order, fontsize=8, rotation=90 if clients > 20 else 0)
    figure.suptitle(f"{config.dataset}, {config.partition}, {clients} clients")
    return png(figure)


def _score_axis(panel: Axes, which: str, measure: str) -> None:
    if measure == "accuracy":
        getattr(panel, f"{which}axis").set_major_formatter(PercentFormatter(100))
        getattr(panel, f"set_{which}lim")(0, 102)


def _values(lines: list[dict[str, Any]], stage: str, name: str, measure: str) -> list[float]:
    shown = MEASURES[measure][1]
    return [np.nan if line[stage][name] is None else shown(line[stage][name]) for line in lines]


def _colours(count: int) -> list:
    return (
        list(COLOURS[:count])
        if count <= 10
        else list(matplotlib.colormaps["turbo"](np.linspace(0, 1, count)))
    )


def _mean_label(counts: np.ndarray) -> np.ndarray:
    return counts @ np.arange(counts.shape[1]) / np.maximum(counts.sum(axis=1), 1)
