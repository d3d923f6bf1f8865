"""The part of a report's page about times to an event: curves by site and by predicted risk."""

from collections.abc import Sequence

import numpy as np
from matplotlib.colors import to_hex

from jaxfl.core.errors import InputError
from jaxfl.experiment.html import document
from jaxfl.experiment.html.curve_views import View, make_figure, make_view, plain
from jaxfl.experiment.pictures.drawing import COLOURS
from jaxfl.experiment.reading.load import FinishedRun
from jaxfl.experiment.reading.survival_curves import kaplan_meier

SITES = 10  # at most, whose curves are drawn
CLIENTS = 100  # at most, whose test examples are predicted
THIRDS = ("lowest third of the risks", "middle third", "highest third")
FREE = "free of the event"


def survival_parts(groups: Sequence[tuple[str, dict[str, FinishedRun]]]) -> list[document.Part]:
    """Kaplan-Meier curves of the clients, and of thirds of the test examples by predicted risk.

    Args:
      groups: runs with the same clients by their labels, with what names the group.

    Returns:
      Nothing where targets are no times to an event, or the data set is not at hand.
    """
    views: list[View] = []
    for name, runs in groups:
        known = {
            label: run
            for label, run in runs.items()
            if run.summary.get("inputs", {}).get("survival")
        }
        if not known:
            continue
        behind = f", {name}" if len(groups) > 1 else ""
        try:
            views.append(_by_client(next(iter(known.values())), f"by client{behind}"))
            views += [_by_risk(run, f"by risk: {label}{behind}") for label, run in known.items()]
        except InputError as error:
            body = document.paragraph(f"The times are not known here: {error}", "caption")
            return [document.Part("survival", "Who is free of the event", body)]
    if not views:
        return []
    body = document.panel("share free of the event by time", views, "curves", 420)
    note = (
        "Kaplan-Meier estimates. By client: all its examples. By risk: the test examples of all "
        "clients, each client's in three thirds by the risk that its own model predicts; the "
        "curves of a model that says something lie apart."
    )
    body += document.paragraph(note, "caption")
    return [document.Part("survival", "Who is free of the event", body)]


def _by_client(run: FinishedRun, title: str) -> View:
    figure = make_figure(FREE, "time")
    for client in range(min(run.config.clients or 0, SITES)):
        y = np.concatenate([run.train(client).y, run.val(client).y, run.test(client).y])
        name = run.names[client] if run.names else f"client {client}"
        _add(figure, f"{name} ({int(y[:, 1].sum())} of {len(y)})", y, client)
    return make_view(title, figure)


def _by_risk(run: FinishedRun, title: str) -> View:
    figure = make_figure(FREE, "time")
    thirds: list[list[np.ndarray]] = [[], [], []]
    for client in range(min(run.config.clients or 0, CLIENTS)):
        x, y, _ = run.test(client)
        if len(y) < len(THIRDS):
            continue
        order = np.argsort(run.predict(client, x), kind="stable")
        for third, rows in zip(thirds, np.array_split(order, len(THIRDS)), strict=True):
            third.append(y[rows])
    for place, (name, parts) in enumerate(zip(THIRDS, thirds, strict=True)):
        if parts:
            y = np.concatenate(parts)
            _add(figure, f"{name} ({int(y[:, 1].sum())} of {len(y)})", y, place)
    return make_view(title, figure)


def _add(figure, name: str, y: np.ndarray, place: int) -> None:
    """A curve, whose name has the numbers of events and of examples."""
    times, free = kaplan_meier(y)
    figure.add_scatter(
        x=times.tolist(),
        y=free.tolist(),
        name=plain(name),
        mode="lines",
        line={"shape": "hv", "color": to_hex(COLOURS[place % len(COLOURS)])},
    )
    figure.update_yaxes(range=[0, 1.02])
