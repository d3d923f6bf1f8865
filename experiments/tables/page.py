"""A table beside its published numbers, for the terminal and for docs/papers.md."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.table import Table as Shown

from experiments.tables import results
from experiments.tables.specification import Column, Row, Table

SEEDS = range(10)  # seeds whose results are looked for


class Entry(NamedTuple):
    """A cell of the page."""

    ours: tuple[float, ...]  # of each seed that is there
    published: float | None

    @property
    def difference(self) -> float | None:
        """Ours less the published number."""
        if not self.ours or self.published is None:
            return None
        return float(np.mean(self.ours)) - self.published

    @property
    def text(self) -> str:
        """Ours, with the deviation over seeds; "" if there is none."""
        if not self.ours:
            return ""
        deviation = f" ± {np.std(self.ours, ddof=1):.1f}" if len(self.ours) > 1 else ""
        return f"{np.mean(self.ours):.1f}{deviation}"

    @property
    def off(self) -> bool:
        """Whether ours is more than a point off."""
        return self.difference is not None and abs(self.difference) > 1


def entries(table: Table, folder: Path = results.FOLDER) -> dict[tuple[str, str], Entry]:
    """(row, column) -> what is known of it."""
    found: dict[tuple[str, str], dict[int, float]] = {}
    for row in table.rows:
        for column in table.columns:
            if not column.mean_of:
                found[row.name, column.name] = _scores(table, row, column, folder)
    for row in table.rows:
        for column in table.columns:
            if column.mean_of:
                parts = [found[row.name, name] for name in column.mean_of]
                common = set.intersection(*(set(part) for part in parts))
                means = {seed: float(np.mean([p[seed] for p in parts])) for seed in common}
                found[row.name, column.name] = means
    published = {
        (row.name, column.name): number
        for row in table.rows
        for column, number in zip(table.columns, row.published, strict=False)
    }
    return {
        key: Entry(tuple(scores[seed] for seed in sorted(scores)), published.get(key))
        for key, scores in found.items()
    }


def _scores(table: Table, row: Row, column: Column, folder: Path) -> dict[int, float]:
    """Seed -> the score of a cell, in the unit of the table."""
    factor = 100 if table.unit == "%" else 1
    scores = {}
    for seed in SEEDS:
        cell = table.cell(row, column, seed)
        result = results.read(cell.config, folder)
        found = None if result is None else results.score(result, cell.rule, cell.stage)
        if found is not None:
            scores[seed] = factor * found
    return scores


def terminal(table: Table, folder: Path = results.FOLDER) -> Shown:
    """The computed cells of a table, a line each; differences above a point are coloured."""
    title = f"{table.paper}, {table.place}, {table.unit}"
    shown = Shown("", "", "ours", "published", "difference", title=title, title_justify="left")
    for (row, column), entry in entries(table, folder).items():
        if entry.ours:
            published = "" if entry.published is None else f"{entry.published:g}"
            gap = "" if entry.difference is None else f"{entry.difference:+.1f}"
            colour = f"[yellow]{gap}[/]" if entry.off else gap
            shown.add_row(column, row, entry.text, published, colour)
    return shown
