"""Tables, records and the picture of what each client is worth to each other one."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxfl.experiment.reading.gains import FEW, Result, mean, undefined_notes
from jaxfl.experiment.reading.load import FinishedRun
from jaxfl.experiment.store import files
from jaxfl.experiment.studies.worth import Worth
from jaxfl.experiment.tables.formats import comma_separated
from jaxfl.experiment.tables.scores import members_text
from jaxfl.experiment.tables.sections import Section
from jaxfl.experiment.tables.tables import Cells, Meaning
from jaxfl.simulation.metrics import metric_of

MATRIX = 8  # clients at most of which a table has a column for each
TOLD = 8  # pairs at most of which a sentence tells
TIED = 1e-5  # a difference of weights up to which all are equal


def write_worth(worth: Worth, label: str, shapley: np.ndarray | None = None) -> list[Path]:
    """Writes `worth.csv` and `worth.png` into the directory of the run.

    Args:
      worth: of `worth.leave_one_out`.
      label: of the run.
      shapley: values of `shapley.shapley_values` [C, C], for the table.

    Returns:
      The files.
    """
    directory = worth.run.directory
    # matplotlib takes long to import, and no other command needs it to start.
    from jaxfl.experiment.pictures.drawing import render
    from jaxfl.experiment.pictures.worth import draw_worth

    figure = draw_worth(
        np.stack([_differences(row) for row in worth.results]),
        worth.graph,
        [_name(worth, client) for client in range(len(worth.results))],
        f"{label}: what each sender is worth to each receiver",
        metric_of(worth.run.summary["measure"]),
    )
    contents = {
        "worth.csv": comma_separated(pair_records(worth, shapley)).encode(),
        "worth.png": render(figure),
    }
    for name, content in contents.items():
        files.write_file(directory / name, content)
    return [directory / name for name in contents]


def pair_records(worth: Worth, shapley: np.ndarray | None = None) -> list[dict[str, Any]]:
    """A record for each receiver and sender; None where a value is not defined.

    Args:
      worth: of `worth.leave_one_out`.
      shapley: values [C, C], if there are any.
    """
    records = []
    for receiver, row in enumerate(worth.results):
        for sender, result in enumerate(row):
            if sender == receiver:
                continue
            record = {
                "client": _name(worth, receiver),
                "without": _name(worth, sender),
                "measure": worth.run.summary["measure"],
                "score": _number(result.score),
                "score_without": _number(worth.without[receiver, sender]),
                "difference": _number(result.difference),
                "low": _number(result.low),
                "high": _number(result.high),
            }
            if worth.graph is not None:
                record["weight"] = _number(worth.graph[receiver, sender])
            if shapley is not None:
                record["shapley"] = _number(shapley[receiver, sender])
            records.append(record)
    return records


def worth_sections(worth: Worth, label: str) -> list[Section]:
    """Two tables: whose part is worth most to each client, and what each is worth to the others.

    Args:
      worth: of `worth.leave_one_out`.
      label: of the run.
    """
    return [_by_receiver(worth, label), _by_sender(worth, label)]


def _by_receiver(worth: Worth, label: str) -> Section:
    metric = metric_of(worth.run.summary["measure"])
    form, count = metric.format, len(worth.results)
    rows = []
    for receiver, row in enumerate(worth.results):
        score = row[receiver].score
        cells = ["-" if math.isnan(score) else f"{score:{form}}"]
        if count <= MATRIX:
            cells += [_gain(result, form) for result in row]
        else:
            known = np.isfinite(_differences(row)).sum()
            # NaN comes last.
            senders = np.argsort(_differences(row))[:known].tolist()
            for sender in (senders[-1], senders[0]) if senders else ():
                cells += [_name(worth, sender), _gain(row[sender], form)]
            cells += ["-"] * (5 - len(cells))
        rows.append((_name(worth, receiver), cells))
    direction = "" if metric.better == "higher" else ", positive where it is lower"
    matrix = count <= MATRIX
    meaning: Meaning = [
        ("all", f"test {metric.name} of the client in the run of all"),
        (
            "",
            f"gain: that less its {metric.name} in the run without the sender{direction}, with + "
            f"or - behind where the 95 % interval excludes 0 ({_kind(worth)})",
        ),
    ]
    names = [_name(worth, sender) for sender in range(count)]
    titles = ["all", *(names if matrix else ["most", "gain", "least", "gain"])]
    return Section(
        f"{label}: what each client gains by each sender, beside a run without it",
        Cells(titles, rows),
        meaning,
        [],
        narrows=False,
        first="client",
        lines=(*_sentences(worth, form), *_undefined(worth)),
    )


def _by_sender(worth: Worth, label: str) -> Section:
    form = metric_of(worth.run.summary["measure"]).format
    rows = []
    for sender in range(len(worth.results)):
        column = [row[sender] for one, row in enumerate(worth.results) if one != sender]
        signs = [_sign(one) for one in column]
        gain = mean(_differences(column)) + 0.0
        cells = [f"{gain:+{form}}", str(signs.count(1)), str(signs.count(-1))]
        if worth.graph is not None:
            cells.append(f"{np.delete(worth.graph[:, sender], sender).mean():.2f}")
        rows.append((_name(worth, sender), cells))
    meaning: list[tuple[str, str]] = [
        ("worth", "gain of the other clients by it, their mean"),
        ("", "better, worse: how many of them are better or worse off with it, by their intervals"),
    ]
    titles = ["worth", "better", "worse"]
    lines = []
    if worth.graph is not None:
        titles.append("weight")
        meaning.append(("weight", "of its model in that of another client, their mean"))
        agreement = rank_correlation(worth)
        if math.isfinite(agreement):
            lines.append(
                f"Rank correlation of the weights with the gains, mean over receivers: "
                f"{agreement:+.2f}."
            )
    return Section(
        f"{label}: what each client is worth to the others",
        Cells(titles, rows),
        meaning,
        [],
        narrows=False,
        first="client",
        lines=tuple(lines),
    )


def shapley_section(run: FinishedRun, values: np.ndarray, label: str) -> Section:
    """Shapley values of each sender to each receiver, and their sum.

    Args:
      run: that of all clients.
      values: of `shapley.shapley_values` [C, C].
      label: of the run.
    """
    metric = metric_of(run.summary["measure"])
    names = [run.names[one] if run.names else str(one) for one in range(len(values))]
    rows = []
    for name, row in zip(names, values, strict=True):
        total = f"{np.nansum(row) + 0.0:+{metric.format}}"
        cells = ["-" if math.isnan(one) else f"{one + 0.0:+{metric.format}}" for one in row]
        rows.append((name, [total, *cells]))
    meaning: Meaning = [
        ("sum", f"what the client gains in test {metric.name} by all others, beside none"),
        ("", "a sender: its share of that, the mean gain where it joins others in any order"),
    ]
    title = f"{label}: Shapley values of the senders"
    cells = Cells(["sum", *names], rows)
    return Section(title, cells, meaning, [], narrows=False, first="client")


def rank_correlation(worth: Worth) -> float:
    """Whether the graph ranks a receiver's senders as leaving them out does: from -1 to 1.

    It is Spearman's rank correlation of the weights and the gains, the mean over the receivers that
    have one; NaN where none has, as without weights or where all weights are equal.

    Args:
      worth: of `worth.leave_one_out`.
    """
    from scipy import stats  # importing it takes a quarter of the command line's start

    if worth.graph is None:
        return math.nan
    found = []
    for receiver, row in enumerate(worth.results):
        pair = (_differences(row), worth.graph[receiver])
        gains, weights = (np.delete(one, receiver) for one in pair)
        known = np.isfinite(gains)
        if known.sum() > 1 and np.ptp(gains[known]) > 0 and np.ptp(weights[known]) > TIED:
            correlation, _ = stats.spearmanr(gains[known], weights[known])
            found.append(correlation)
    return mean(np.array(found))


def _sentences(worth: Worth, form: str) -> list[str]:
    """What is clear, the largest first."""
    clear = [
        (abs(result.difference), receiver, sender)
        for receiver, row in enumerate(worth.results)
        for sender, result in enumerate(row)
        if _sign(result)
    ]
    texts = []
    for size, receiver, sender in sorted(clear, reverse=True)[:TOLD]:
        result = worth.results[receiver][sender]
        low, high = sorted((abs(result.low), abs(result.high)))
        verb = "loses" if result.difference > 0 else "gains"
        texts.append(
            f"Without {_name(worth, sender)}, {_name(worth, receiver)} {verb} {size:{form}} "
            f"({low:{form}} to {high:{form}})."
        )
    if len(clear) > TOLD:
        texts.append(f"{len(clear) - TOLD} further pairs are in worth.csv.")
    if not clear:
        texts.append("No interval of a pair excludes 0.")
    if any(result.few for row in worth.results for result in row):
        texts.append(
            f"Intervals are too narrow where a client has fewer than {FEW} test examples, or fewer "
            "of a label; no sentence tells of them."
        )
    return texts


def _undefined(worth: Worth) -> list[str]:
    seeds = worth.run.seeds
    scores = seeds.with_axis(worth.run.clients["deployed_test"])[:, -1]
    defined = np.isfinite(scores).sum(axis=0)
    members = members_text(seeds.count, seeds.folds)
    return undefined_notes(defined, worth.run.names, seeds.count, members)


def _kind(worth: Worth) -> str:
    """What intervals are."""
    seeds = worth.run.seeds
    if seeds.count > 1:
        return f"paired t-test over {members_text(seeds.count, seeds.folds)}"
    return "bootstrap over the client's test examples, which says nothing about other seeds"


def _differences(results: Sequence[Result]) -> np.ndarray:
    return np.array([one.difference for one in results])


def _sign(result: Result) -> int:
    """1 or -1 where a receiver is better or worse off with a sender by the interval, else 0."""
    if result.few:
        return 0
    return int(result.low > 0) - int(result.high < 0)


def _gain(result: Result, form: str) -> str:
    if math.isnan(result.difference):
        return "-"
    return f"{result.difference + 0.0:+{form}}{('', ' +', ' -')[_sign(result)]}"


def _name(worth: Worth, client: int) -> str:
    return worth.run.names[client] if worth.run.names else str(client)


def _number(value: float) -> float | None:
    return round(float(value), 6) + 0.0 if math.isfinite(value) else None
