"""Tables of the sets of each client: how often they hold the truth, and how large they are."""

import numpy as np

from jaxfl.experiment.reading.conformal import (
    CALIBRATIONS,
    Calibrated,
    Calibration,
    Coverage,
    is_survival,
)
from jaxfl.experiment.tables.sections import Section
from jaxfl.experiment.tables.tables import Cells, Meaning


def coverage_section(label: str, found: Calibrated, alpha: float) -> Section:
    """A row for each client, and for each way to calibrate the coverage and the size of its sets.

    Args:
      label: of the run.
      found: of `conformal.calibrate`.
      alpha: the share of sets that may miss the truth.
    """
    ways: list[Calibration] = [
        way for way in CALIBRATIONS if way != "graph" or found.graph is not None
    ]
    names = found.run.names
    survival = is_survival(found.run)
    size = "labels" if found.classes else "bound" if survival else "width"
    titles = [
        "validation",
        "test",
        *(f"{way}: {what}" for way in ways for what in ("covers", size)),
    ]
    rows, few = [], []
    for client, scores in enumerate(found.scores):
        name = names[client] if names else str(client)
        each = [found.coverage(client, way, alpha) for way in ways]
        few += [name] if np.isinf(each[0].threshold) else []
        cells = [str(len(scores)), str(len(found.run.test(client).y))]
        rows.append((name, [*cells, *(cell for one in each for cell in _cells(one))]))
    meaning: Meaning = [
        (
            "",
            f"covers: the share of the test examples whose set holds the truth, {1 - alpha:.0%} is "
            "wanted",
        ),
        (
            "",
            {
                "labels": "labels: the mean of a set",
                "width": "width: of an interval, the mean",
                "bound": "bound: the mean time until which an example is free of the event; the "
                "truth is the observed time",
            }[size],
        ),
        (
            "",
            "calibrated on the client's own validation examples (own), on those of all clients "
            "(all), or on these by the weights of the graph (graph)",
        ),
    ]
    lines = (
        [
            f"Too few validation examples for {1 - alpha:.0%}, so that a set holds everything: "
            f"{', '.join(few)}; own needs {int(np.ceil(1 / alpha)) - 1} or more."
        ]
        if few
        else []
    )
    heading = f"{label}: sets that hold the truth for {1 - alpha:.0%}"
    cells = Cells(titles, rows, frozenset())
    return Section(heading, cells, meaning, [], first="client", lines=tuple(lines))


def _cells(one: Coverage) -> list[str]:
    if np.isnan(one.covered):
        return ["-", "-"]
    return [f"{100 * one.covered:.0f} %", "all" if np.isinf(one.size) else f"{one.size:.2f}"]
