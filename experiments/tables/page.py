"""A table beside its published numbers, for the terminal and for docs/papers.md."""

import textwrap
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.table import Table as Shown

from experiments.tables import results
from experiments.tables.specification import Column, Row, Table

SEEDS = range(10)  # seeds whose results are looked for


LEGEND = """
A cell shows our score and, in brackets, the published one, in % unless a table says otherwise.
**Bold**: they are more than a point apart, or more than the margin of a table in another unit.
After a semicolon: the number of a second source. ± is the standard deviation over seeds; without it
a cell is one seed. †: made by older code, which gives other numbers now. Where the authors' code
shows how scores were taken, they are taken so here (`jaxfl list presets`). A table of which nothing
is computed yet is in this list alone.
""".strip()


class Entry(NamedTuple):
    """A cell of the page."""

    ours: tuple[float, ...]  # of each seed that is there
    published: float | None
    stale: bool = False  # one of them is
    also: float | None = None  # of the second source
    digits: int = 1
    margin: float = 1.0

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
        spread = np.std(self.ours, ddof=1) if len(self.ours) > 1 else None
        deviation = "" if spread is None else f" ± {spread:.{self.digits}f}"
        return f"{np.mean(self.ours):.{self.digits}f}{deviation}{'†' if self.stale else ''}"

    @property
    def off(self) -> bool:
        """Whether ours differs by more than the margin of the table, a point if it names none."""
        return self.difference is not None and abs(self.difference) > self.margin


def entries(table: Table, folder: Path = results.FOLDER) -> dict[tuple[str, str], Entry]:
    """(row, column) -> what is known of it."""
    found: dict[tuple[str, str], dict[int, float]] = {}
    old = set()
    for row in table.rows:
        for column in table.columns:
            if not column.mean_of:
                key = (row.name, column.name)
                found[key], stale = _scores(table, row, column, folder)
                if stale:
                    old.add(key)
    for row in table.rows:
        for column in table.columns:
            if column.mean_of:
                parts = [found[row.name, name] for name in column.mean_of]
                common = set.intersection(*(set(part) for part in parts))
                means = {seed: float(np.mean([p[seed] for p in parts])) for seed in common}
                found[row.name, column.name] = means
                if any((row.name, name) in old for name in column.mean_of):
                    old.add((row.name, column.name))
    published = _numbers(table, {row.name: row.published for row in table.rows})
    also = _numbers(table, {row.name: row.also for row in table.rows})
    return {
        key: Entry(
            tuple(scores[seed] for seed in sorted(scores)),
            published.get(key),
            key in old,
            also.get(key),
            table.digits,
            table.margin,
        )
        for key, scores in found.items()
    }


def _numbers(
    table: Table, rows: dict[str, tuple[float | None, ...]]
) -> dict[tuple[str, str], float | None]:
    """(row, column) -> the number that a row of the file has for the column."""
    return {
        (row, column.name): number
        for row, numbers in rows.items()
        for column, number in zip(table.columns, numbers, strict=False)
    }


def _scores(table: Table, row: Row, column: Column, folder: Path) -> tuple[dict[int, float], bool]:
    """Seed -> the number of a cell, in the unit of the table, and whether a result is stale."""
    factor = 100 if table.unit == "%" else 1
    cell = table.cell(row, column, 0)
    known = results.read_seeds(cell.config, SEEDS, folder)
    numbers = {seed: cell.value(result) for seed, result in known.items()}
    scores = {seed: factor * value for seed, value in numbers.items() if value is not None}
    return scores, any(result.get("stale", False) for result in known.values())


def terminal(table: Table, folder: Path = results.FOLDER) -> Shown:
    """The computed cells of a table, a line each; differences above a point are coloured."""
    title = f"{table.paper}, {table.place}, {table.unit}"
    second = [table.also] if table.also else []
    headers = ("", "", "ours", "published", "difference", *second)
    shown = Shown(*headers, title=title, title_justify="left")
    for (row, column), entry in entries(table, folder).items():
        if entry.ours:
            published = "" if entry.published is None else f"{entry.published:g}"
            gap = "" if entry.difference is None else f"{entry.difference:+.{entry.digits}f}"
            colour = f"[yellow]{gap}[/]" if entry.off else gap
            also = "" if entry.also is None else f"{entry.also:g}"
            second = [also] if table.also else []
            shown.add_row(column, row, entry.text, published, colour, *second)
    return shown


def markdown(table: Table, folder: Path = results.FOLDER) -> str:
    """A section of docs/papers.md: the columns in which something is computed."""
    known = entries(table, folder)
    columns = [
        column
        for column in table.columns
        if any(known[row.name, column.name].ours for row in table.rows)
    ]
    rows = [row for row in table.rows if any(known[row.name, c.name].ours for c in columns)]
    there = sum(bool(known[r.name, c.name].ours) for r in rows for c in columns if not c.mean_of)
    count = len(table.rows) * sum(not column.mean_of for column in table.columns)
    heading = f"### {table.place[0].upper()}{table.place[1:]}. {table.title}"
    lines = [heading, ""]
    if table.note:
        lines += [_wrapped(table.note), ""]
    if table.also:
        lines += [f"After a semicolon: {table.also}.", ""]
    if table.script:
        lines += [f"Drawn by `python -m {table.script}`.", ""]
    if table.picture:
        lines += [f"![{table.title}]({table.picture})", ""]
    if table.rows:
        command = f"python -m experiments.tables {table.name}"
        lines += [f"Cells computed: {there} of {count} (`{command}`).", ""]
    if rows:
        header = ["", *(column.name for column in columns)]
        body = [[row.name, *(_cell(known[row.name, c.name]) for c in columns)] for row in rows]
        every = [header, ["---"] + ["---:"] * len(columns), *body]
        lines += [*(f"| {' | '.join(cells)} |" for cells in every), ""]
    return "\n".join(lines)


def _wrapped(text: str) -> str:
    return textwrap.fill(" ".join(text.split()), 120, break_on_hyphens=False)


def _text(file: Path) -> list[str]:
    return [file.read_text().strip(), ""] if file.exists() else []


def _cell(entry: Entry) -> str:
    """Ours and, in brackets, the published numbers; bold if ours differs from the first."""
    if not entry.ours:
        return ""
    ours = f"**{entry.text}**" if entry.off else entry.text
    numbers = [f"{number:g}" for number in (entry.published, entry.also) if number is not None]
    return f"{ours} ({'; '.join(numbers)})" if numbers else ours


def whole(tables: list[Table], folder: Path = results.FOLDER) -> str:
    """docs/papers.md.

    Beside the tables of a paper, `findings.md` comes before them and `protocol.md` behind them.
    """
    lines = [
        "# The papers' tables",
        "",
        "Made by `python -m experiments.tables --page` from the results in `experiments/results`.",
        "",
        _wrapped(LEGEND),
        "",
        "| table | what it shows | computed | command |",
        "|---|---|---:|---|",
    ]
    papers: dict[str, list[Table]] = {}
    told = set()  # tables that have something to show
    for table in tables:
        papers.setdefault(table.paper, []).append(table)
        known = entries(table, folder)
        plain = {column.name for column in table.columns if not column.mean_of}
        cells = [entry for (_, column), entry in known.items() if column in plain]
        there = sum(bool(entry.ours) for entry in cells)
        drawn = "drawn" if table.picture else "a script"
        count = f"{there} of {len(cells)}" if cells else drawn
        command = f"experiments.tables {table.name}" if cells else table.script
        shown = f"{table.paper}, {table.place} | {table.title}"
        lines.append(f"| {shown} | {count} | `python -m {command}` |")
        if there or not cells:
            told.add(table.name)
    lines.append("")
    for paper, own in papers.items():
        link = f"[{paper}]({own[0].link})" if own[0].link else paper
        texts = Path(__file__).parent / own[0].name.partition(".")[0]
        parts = _text(texts / "findings.md")
        parts += [markdown(table, folder) for table in own if table.name in told]
        parts += _text(texts / "protocol.md")
        if parts:
            lines += [f"## {link}", "", *parts]
    return "\n".join(lines).rstrip() + "\n"
