"""The figures of the report, beside that of the claims."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from experiments.board.page import means
from experiments.board.rows import Row
from experiments.board.settings import SETTINGS
from experiments.partitions import true_weights
from experiments.what_holds.numbers import PLAIN, PROMISE, SYSTEMS, Harm
from experiments.what_holds.published import Column
from jaxfl.experiment.pictures.drawing import canvas, colour_of

NAMED = (*PLAIN, *SYSTEMS, PROMISE)


def distances(
    rows: list[Row], every: list[Row], fashion: dict[str, dict[str, Any]], partitions: list[str]
) -> Figure:
    """How many points each of some methods is below the best one of all, by setting and data.

    Args:
      rows: of the board, one a method that is shown.
      every: all rows of the board.
      fashion: results of all methods on Fashion-MNIST, by partition.
      partitions: their names.
    """
    names = [row["method"] for row in rows]
    digits = _scores(every).max(axis=0) - _scores(rows)
    scores = {
        method: [100 * np.mean(found[name]["accuracy"]) for name in partitions]
        for method, found in fashion.items()
    }
    best = np.max(list(scores.values()), axis=0)
    missing = np.full(len(partitions), np.nan)
    images = np.array([best - scores.get(name, missing) for name in names])
    figure, panels = canvas(2, width=4.6, height=0.26 * len(rows) + 1.2)
    parts = (("digits", digits, list(SETTINGS)), ("Fashion-MNIST", images, partitions))
    for panel, (title, below, settings) in zip(panels, parts, strict=True):
        image = panel.imshow(np.minimum(below, 30), cmap="YlOrRd", aspect="auto", vmin=0, vmax=30)
        labels = [name.replace(" ", "\n") for name in settings]
        panel.set_xticks(range(len(settings)), labels, fontsize=9)
        panel.set_yticks(range(len(rows)), names, fontsize=9)
        panel.set_title(title, fontsize=10)
        panel.xaxis.tick_top()
        panel.spines[:].set_visible(False)
        panel.tick_params(length=0)
        for (line, column), value in np.ndenumerate(below):
            colour = "white" if value > 18 else "black"
            text = "-" if np.isnan(value) else f"{value:.1f}"
            panel.text(column, line, text, ha="center", va="center", fontsize=8, color=colour)
    panels[1].set_yticks([])
    bar = figure.colorbar(image, ax=panels[1], shrink=0.6)
    bar.set_label("points below the best method", fontsize=9)
    return figure


def _scores(rows: list[Row]) -> np.ndarray:
    """Mean accuracy by method and setting [methods, settings]."""
    return np.array(
        [
            [means(row["settings"][name], name, "deployed").mean() for name in SETTINGS]
            for row in rows
        ]
    )


def harm(found: list[Harm]) -> Figure:
    """The clients that are worse and better off than alone, by method."""
    some = [one for one in found if one.method in NAMED and one.method != "local"]
    some.sort(key=lambda one: one.worse)
    figure, (panel,) = canvas(1, width=6.4, height=2.6)
    places = range(len(some))
    panel.barh(places, [-one.worse for one in some], color="#D55E00", label="worse than alone")
    panel.barh(places, [one.better for one in some], color="#0072B2", label="better than alone")
    panel.set_yticks(places, [one.method for one in some], fontsize=9)
    panel.axvline(0, color="0.3", linewidth=0.8)
    panel.set_xlabel("clients, %", fontsize=9)
    ticks = np.arange(-80, 101, 20)
    panel.set_xticks(ticks, [str(abs(tick)) for tick in ticks], fontsize=8)
    panel.set_xlim(-max(one.worse for one in some) - 5, max(one.better for one in some) + 5)
    figure.legend(frameon=False, fontsize=8, loc="outside upper right", ncols=2)
    return figure


def price(rows: list[Row]) -> Figure:
    """Mean accuracy over what a client sends and receives; the size is that of its gradients."""
    figure, (panel,) = canvas(1, width=6.4, height=3.4)
    for row in rows:
        entries = [row["settings"][name] for name in SETTINGS]
        score = np.mean(
            [means(row["settings"][name], name, "deployed").mean() for name in SETTINGS]
        )
        floats = np.mean([entry["floats"] for entry in entries])
        gradients = np.mean([entry["gradients"] for entry in entries])
        name = row["method"]
        is_named = name in NAMED
        panel.scatter(
            max(floats, 1e3),
            score,
            s=gradients / 40,
            color=colour_of(name) if is_named else "0.8",
            zorder=2 if is_named else 1,
            alpha=0.8,
            label=name if is_named else None,
        )
    panel.set_xscale("log")
    figure.legend(frameon=False, fontsize=8, loc="outside right center")
    panel.grid(alpha=0.25)
    panel.set_xlabel("numbers that a client sends and receives in 20 rounds", fontsize=9)
    panel.set_ylabel("mean accuracy, %", fontsize=9)
    return figure


def graphs(
    results: dict[str, dict[str, Any]], true: dict[str, list[int] | None], methods: Sequence[str]
) -> Figure:
    """The weights of the last round by partition and method, first seed, below the true groups.

    Args:
      results: of methods, by partition.
      true: the group of each client, by partition; None where all clients differ.
      methods: whose graphs are drawn.
    """
    rows = ("true groups", *methods)
    figure, panels = canvas(len(true), width=1.3, height=1.3, rows=len(rows))
    grid = np.reshape(np.array(panels, object), (len(rows), len(true)))
    for (line, column), panel in np.ndenumerate(grid):
        partition = list(true)[column]
        panel.set(xticks=[], yticks=[])
        panel.spines[:].set_visible(True)
        weights = true_weights(true[partition])
        if line:
            weights = np.array(results[rows[line]][partition]["weights"])
        if weights is None:
            panel.text(0.5, 0.5, "all differ", ha="center", va="center", fontsize=8)
            panel.spines[:].set_visible(False)
        else:
            panel.imshow(weights, cmap="Blues", vmin=0, vmax=max(weights.max(), 1e-9))
        if line == 0:
            panel.set_title(partition, fontsize=9)
        if column == 0:
            panel.set_ylabel(rows[line], fontsize=9)
    return figure


def published(columns: Sequence[Column]) -> Figure:
    """Columns of the papers' tables: the plain methods, the best other one and the paper's own."""
    figure, (panel,) = canvas(1, width=8.6, height=0.27 * len(columns) + 1.1)
    for place, column in enumerate(reversed(columns)):
        others = [*column.plain.values(), *([] if column.other is None else [column.other])]
        panel.plot([min(*others, column.own), max(*others, column.own)], [place] * 2, color="0.85")
        for method, score in column.plain.items():
            panel.plot(score, place, "o", color=colour_of(method), markersize=6)
        if column.other is not None:
            panel.plot(column.other, place, "s", color="0.55", markersize=5)
        panel.plot(column.own, place, "D", color="black", fillstyle="none", markersize=8)
    panel.set_yticks(range(len(columns)), [one.name for one in reversed(columns)], fontsize=8)
    panel.grid(alpha=0.25, axis="x")
    panel.set_xlabel("accuracy, %", fontsize=9)
    plain = {
        method: Line2D([], [], color=colour_of(method), marker="o", ls="", label=method)
        for method in PLAIN
    }
    other = Line2D([], [], color="0.55", marker="s", ls="", label="best other method")
    own = Line2D(
        [], [], color="black", marker="D", fillstyle="none", ls="", label="the paper's method"
    )
    figure.legend(
        handles=[*plain.values(), other, own],
        frameon=False,
        fontsize=8,
        ncols=5,
        loc="outside upper right",
    )
    return figure
