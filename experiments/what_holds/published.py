"""What the papers' own tables give here: how they were run, and the columns that are computed."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from experiments.tables import results
from experiments.tables.claims import ALWAYS, SEEDS, Finding
from experiments.tables.specification import Cell, Table
from jaxfl.experiment import Config

Scores = dict[str, float]  # name of a row -> its score in %, the mean over seeds


class Column(NamedTuple):
    """A column of a published table, as far as it is computed."""

    name: str
    plain: dict[str, float]  # local training, FedAvg and FedAvg-FT, by method
    other: float | None  # the best of the other methods
    own: float  # the method of the paper


def tables_of(findings: Sequence[Finding]) -> list[Table]:
    """The tables that claims are about, each once."""
    return list({one.table.name: one.table for one in findings}.values())


def protocols(findings: Sequence[Finding]) -> list[dict[str, str]]:
    """How the runs of each paper were made, those that are there."""
    # The name of the first seed's file -> the run and how many seeds there are.
    by_paper: dict[str, dict[str, tuple[Config, int]]] = {}
    for table in tables_of(findings):
        runs = by_paper.setdefault(table.paper, {})
        for cell in table.cells(0):
            seeds = len(results.read_seeds(cell.config, SEEDS))
            if seeds:
                runs[results.file_of(cell.config).name] = cell.config, seeds
    return [
        {"paper": paper, "runs": str(sum(seeds for _, seeds in runs.values()))}
        | _protocol([config for config, _ in runs.values()])
        for paper, runs in by_paper.items()
        if runs
    ]


def _protocol(runs: list[Config]) -> dict[str, str]:
    """What a table says of runs: of numbers that differ the least and the largest."""
    clients = [run.clients or 0 for run in runs]
    steps = {
        f"{run.local_steps} steps" if run.local_steps else f"{run.local_epochs} epochs"
        for run in runs
    }
    return {
        "data": ", ".join(sorted({run.dataset for run in runs})),
        "clients": _span(clients),
        "round": _span(round(run.participation * (run.clients or 0)) for run in runs),
        "rounds": _span(run.rounds for run in runs),
        "local": ", ".join(sorted(steps)) + f" of {_span(run.batch_size for run in runs)}",
        "optimizer": ", ".join(sorted({f"{run.optimizer}, {run.lr:g}" for run in runs})),
    }


def _span(numbers: Iterable[int]) -> str:
    """The least and the largest of numbers, or the one number."""
    found = sorted(set(numbers))
    return f"{found[0]}" if len(found) == 1 else f"{found[0]} to {found[-1]}"


def columns(findings: Sequence[Finding]) -> list[Column]:
    """The columns of accuracies in which the paper's method and another one are computed.

    Tables that share a column show it once.
    """
    found: dict[str, Column] = {}
    for table in tables_of(findings):
        if table.unit != "%" or not any(row.name == table.paper for row in table.rows):
            continue
        for column in table.columns:
            if column.mean_of:
                continue
            cells = {row.name: table.cell(row, column, 0) for row in table.rows}
            own = results.file_of(cells[table.paper].config).name
            scores = {name: number for name, cell in cells.items() if (number := _score(cell))}
            if own in found or table.paper not in scores or len(scores) == 1:
                continue
            plain = {
                cells[name].config.algorithm: scores.pop(name)
                for name in list(scores)
                if cells[name].config.algorithm in ALWAYS
            }
            ours = scores.pop(table.paper)
            name = f"{table.paper}, {table.place.split(',')[0]}: {column.name}"
            found[own] = Column(name, plain, max(scores.values(), default=None), ours)
    return list(found.values())


def _score(cell: Cell) -> float | None:
    """The score of a cell in %, the mean over the seeds that are there; None if there is none."""
    found = results.read_seeds(cell.config, SEEDS).values()
    values = [cell.value(one) for one in found if cell.measure == "score"]
    known = [value for value in values if value is not None]
    return 100 * sum(known) / len(known) if known else None
