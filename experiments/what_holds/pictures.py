"""The figures of the report, beside that of the claims."""

import numpy as np
from matplotlib.figure import Figure

from experiments.board.page import means
from experiments.board.rows import Row
from experiments.board.settings import SETTINGS
from experiments.what_holds.numbers import PLAIN, PROMISE, SYSTEMS, Harm
from jaxfl.experiment.pictures.drawing import canvas, colour_of

NAMED = (*PLAIN, *SYSTEMS, PROMISE)


def distances(rows: list[Row], every: list[Row]) -> Figure:
    """How many points each of some methods is below the best one of all, by setting."""
    below = _scores(every).max(axis=0) - _scores(rows)
    figure, (panel,) = canvas(1, width=6.4, height=0.26 * len(rows) + 1.0)
    image = panel.imshow(np.minimum(below, 30), cmap="YlOrRd", aspect="auto")
    panel.set_xticks(range(len(SETTINGS)), SETTINGS, fontsize=9)
    panel.set_yticks(range(len(rows)), [row["method"] for row in rows], fontsize=9)
    panel.xaxis.tick_top()
    panel.spines[:].set_visible(False)
    panel.tick_params(length=0)
    for (line, column), value in np.ndenumerate(below):
        colour = "white" if value > 18 else "black"
        panel.text(column, line, f"{value:.1f}", ha="center", va="center", fontsize=8, color=colour)
    bar = figure.colorbar(image, ax=panel, shrink=0.6)
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
