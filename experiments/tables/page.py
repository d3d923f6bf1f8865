"""A table beside its published numbers, for the terminal and for the pages of the papers."""

import re
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.table import Table as Shown

from experiments.seeds import mean_text
from experiments.tables import results
from experiments.tables.specification import Column, Row, Table

SEEDS = range(10)  # seeds whose results are looked for
TEXTS = Path(__file__).parent
WIDTH = 8  # columns that a table on a page has at most
Entries = dict[tuple[str, str], "Entry"]  # (row, column) -> what is known of it


LEGEND = """
A cell shows our score and, in brackets, the published one, in % unless a table says otherwise.
**Bold**: they are more than a point apart, or more than the margin of a table in another unit.
After a semicolon: the number of a second source. ± is the standard deviation over seeds; without it
a cell is one seed, or a mean over columns that have different seeds. †: computed by an older
version; the present code gives another number. Where the authors' code shows how scores were taken,
they are taken so here (`jaxfl list presets`). A 95 % interval in the text is one over seeds where
the text says so, otherwise over the clients of a run: it tells whether the clients agree on a
difference, not what another seed would give. A run that stands in several tables counts in each.
""".strip()

VERDICT = """
{close} of the {compared} numbers that stand beside a published one are within a point of it, or
within the margin of a table in another unit. A table is computed cell by cell, and many cells are
missing still. [Results](results/index.md) says what of each paper holds.
"""
MADE = """
`python -m experiments.tables --page` makes this page and those of the papers from the results in
`experiments/results`.
"""
AGAIN = """
The command of a table runs its missing cells, also those whose data you have to fetch; `--only`
takes some of them by words of their names, and `--no-run` prints the table and runs none. `--again`
runs cells that have a result, and prints what it was; on another kind of CPU last digits can
differ. So is a cell of table 11 checked, in 16 minutes of a core:
"""
CHECK = """
```bash
python -m experiments.tables pfedgraph.table11 --only pFedGraph severe CIFAR-10 --again
```
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
        return mean_text(self.ours, f".{self.digits}f") + ("†" if self.stale else "")

    @property
    def off(self) -> bool:
        """Whether ours differs by more than the margin of the table, a point if it names none."""
        return self.difference is not None and abs(self.difference) > self.margin


def entries(table: Table, folder: Path = results.FOLDER) -> Entries:
    """(row, column) -> what is known of it."""
    by_cell: dict[tuple[str, str], dict[int, float]] = {}
    old = set()
    for row in table.rows:
        for column in table.columns:
            if not column.mean_of:
                key = (row.name, column.name)
                by_cell[key], stale = _scores(table, row, column, folder)
                if stale:
                    old.add(key)
    for row in table.rows:
        for column in table.columns:
            if column.mean_of:
                parts = [by_cell[row.name, name] for name in column.mean_of]
                by_cell[row.name, column.name] = _means(parts)
                if any((row.name, name) in old for name in column.mean_of):
                    old.add((row.name, column.name))
    references = _numbers(table, {row.name: row.published for row in table.rows})
    also = _numbers(table, {row.name: row.also for row in table.rows})
    return {
        key: Entry(
            tuple(scores[seed] for seed in sorted(scores)),
            references.get(key),
            key in old,
            also.get(key),
            table.digits,
            table.margin,
        )
        for key, scores in by_cell.items()
    }


def _means(columns: list[dict[int, float]]) -> dict[int, float]:
    """Seed -> mean over columns; if their seeds are not the same, one mean of all that is shown."""
    if all(column.keys() == columns[0].keys() for column in columns):
        return {seed: float(np.mean([c[seed] for c in columns])) for seed in columns[0]}
    if not all(columns):
        return {}
    return {0: float(np.mean([np.mean(list(column.values())) for column in columns]))}


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
    by_seed = results.read_seeds(cell.config, SEEDS, folder)
    numbers = {seed: cell.value(result) for seed, result in by_seed.items()}
    scores = {seed: factor * value for seed, value in numbers.items() if value is not None}
    return scores, any(result.get("stale", False) for result in by_seed.values())


def terminal(table: Table, folder: Path = results.FOLDER) -> Shown:
    """The computed cells of a table, a line each; differences above a point are coloured."""
    title = f"{table.paper}, {table.place}, {table.unit}"
    second = [table.also] if table.also else []
    headers = ("", "", "ours", "published", "difference", *second)
    grid = Shown(*headers, title=title, title_justify="left")
    for (row, column), entry in entries(table, folder).items():
        if entry.ours:
            text = "" if entry.published is None else f"{entry.published:g}"
            gap = "" if entry.difference is None else f"{entry.difference:+.{entry.digits}f}"
            colour = f"[yellow]{gap}[/]" if entry.off else gap
            also = "" if entry.also is None else f"{entry.also:g}"
            second = [also] if table.also else []
            grid.add_row(column, row, entry.text, text, colour, *second)
    return grid


def markdown(table: Table, folder: Path = results.FOLDER, by_cell: Entries | None = None) -> str:
    """A section of a paper's page: the columns in which something is computed, and what it says.

    Args:
      table: the table.
      folder: of the results.
      by_cell: its entries, if they are known already.
    """
    by_cell = entries(table, folder) if by_cell is None else by_cell
    columns = [
        column
        for column in table.columns
        if any(by_cell[row.name, column.name].ours for row in table.rows)
    ]
    there, count = _counts(table, by_cell)
    lines = [f"## {_heading(table)}", ""]
    if table.note:
        lines += [wrap(table.note), ""]
    if table.also:
        lines += [f"After a semicolon: {table.also}.", ""]
    if table.script:
        lines += [wrap(f"Drawn by `{table.command}`."), ""]
    if table.picture:
        lines += [f"![{table.title}](../{table.picture})", ""]
    if table.rows:
        lines += [f"Cells computed: {there} of {count} (`{table.command}`).", ""]
    for first in range(0, len(columns), WIDTH - 1):
        lines += _grid(table, columns[first : first + WIDTH - 1], by_cell)
    paper, _, name = table.name.partition(".")
    lines += _text(TEXTS / paper / f"{name}.md")
    return "\n".join(lines)


def _grid(table: Table, columns: Sequence[Column], by_cell: Entries) -> list[str]:
    """These columns of a table, with the rows in which something is computed."""
    rows = [row for row in table.rows if any(by_cell[row.name, c.name].ours for c in columns)]
    header = ["", *(column.name for column in columns)]
    body = [[row.name, *(_cell(by_cell[row.name, c.name]) for c in columns)] for row in rows]
    every = [header, ["---"] + ["---:"] * len(columns), *body]
    return [*(f"| {' | '.join(cells)} |" for cells in every), ""]


def _heading(table: Table) -> str:
    return f"{table.place[0].upper()}{table.place[1:]}. {table.title}"


def _link(table: Table) -> str:
    """The place of a table as a link to its section, from docs/papers.md."""
    return f"[{table.place}](papers/{paper_of(table)}.md#{anchor(table)})"


def anchor(table: Table) -> str:
    """The anchor of a table's section, by the rule of the hosts of Markdown."""
    return re.sub(r"[^\w -]", "", _heading(table).lower()).replace(" ", "-")


def paper_of(table: Table) -> str:
    """The name of a paper's files."""
    return table.name.partition(".")[0]


def _linked(text: str, tables: Sequence[Table]) -> str:
    """Text in which "(table 1)" is a link to the section of that table."""
    for table in tables:
        place = table.place.partition(",")[0]
        text = text.replace(f"({place})", f"([{place}](#{anchor(table)}))")
    return text


def wrap(text: str) -> str:
    """A paragraph of a page."""
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


def pages(tables: Sequence[Table], folder: Path = results.FOLDER) -> dict[str, str]:
    """The pages by their paths below docs/: papers.md, and a page for each paper.

    The texts of a paper stand beside its tables: `findings.md` comes before them, `NAME.md` behind
    the table NAME, and `protocol.md` is a page of its own.
    """
    return pages_of(tables, {table.name: entries(table, folder) for table in tables})


def pages_of(tables: Sequence[Table], known: dict[str, Entries]) -> dict[str, str]:
    """The same from the entries of each table."""
    papers: dict[str, list[Table]] = {}
    gaps: list[Table] = []
    for table in tables:
        if is_shown(table, known[table.name]):
            papers.setdefault(paper_of(table), []).append(table)
        else:
            gaps.append(table)
    groups = dict(sorted(papers.items(), key=lambda item: -len(item[1])))
    made = {"papers.md": overview(groups, gaps, known)}
    for paper, members in groups.items():
        made[f"papers/{paper}.md"] = paper_page(members, known)
        protocol = TEXTS / paper / "protocol.md"
        if protocol.exists():
            made[f"papers/{paper}_protocol.md"] = protocol.read_text()
    return made


def paper_page(tables: Sequence[Table], known: dict[str, Entries]) -> str:
    """The page of a paper: what of it holds, and its tables one by one."""
    first = tables[0]
    title = f"{first.paper}'s tables and figures"
    lines = [f"# {title}", ""]
    lines += [_linked(text, tables) for text in _text(TEXTS / paper_of(first) / "findings.md")]
    source = f"[The paper]({first.link}). " if first.link else ""
    lines += [wrap(f"{source}[The papers' tables](../papers.md) says how to read a cell."), ""]
    lines += [markdown(table, by_cell=known[table.name]) for table in tables]
    return "\n".join(lines).rstrip() + "\n"


def is_shown(table: Table, by_cell: Entries | None = None) -> bool:
    """Whether the page of its paper has a section of the table."""
    by_cell = entries(table) if by_cell is None else by_cell
    return bool(table.picture) or _counts(table, by_cell)[0] > 0


def overview(
    groups: dict[str, list[Table]], gaps: Sequence[Table], known: dict[str, Entries]
) -> str:
    """docs/papers.md: how much is computed and agrees, where each table is, what is missing."""
    every = [table for members in groups.values() for table in members]
    lines = [
        "# The papers' tables",
        "",
        wrap(_verdict(every, known)),
        "",
        "| paper | table | what it shows | cells computed |",
        "|---|---|---|---:|",
    ]
    for members in groups.values():
        for table in members:
            there, count = _counts(table, known[table.name])
            cells = f"{there} of {count}" if count else "drawn"
            lines.append(f"| {table.paper} | {_link(table)} | {table.title} | {cells} |")
    lines += [
        "",
        "## How to read a cell",
        "",
        wrap(LEGEND),
        "",
        wrap(MADE),
        "",
        wrap(AGAIN),
        "",
        CHECK,
        "",
    ]
    lines += [
        "## Not computed yet",
        "",
        "Each is one command, which tests run in small.",
        "",
        "| table | what it shows | cells | command |",
        "|---|---|---:|---|",
    ]
    for table in gaps:
        count = _counts(table, known[table.name])[1] or ""
        link = f"[{table.paper}]({table.link})" if table.link else table.paper
        lines.append(f"| {link}, {table.place} | {table.title} | {count} | `{table.command}` |")
    return "\n".join(lines) + "\n"


def _verdict(tables: Sequence[Table], known: dict[str, Entries]) -> str:
    """How many cells have our number, and how many of these agree with the published one.

    Means over columns are left out: they say nothing new.
    """
    every = [
        entry
        for table in tables
        for row in table.rows
        for column in table.columns
        if not column.mean_of and (entry := known[table.name][row.name, column.name]).ours
    ]
    compared = [entry for entry in every if entry.difference is not None]
    close = sum(not entry.off for entry in compared)
    return VERDICT.format(compared=len(compared), close=close)


def _counts(table: Table, by_cell: Entries) -> tuple[int, int]:
    """How many cells have a number, and how many there are."""
    plain = {column.name for column in table.columns if not column.mean_of}
    cells = [entry for (_, column), entry in by_cell.items() if column in plain]
    return sum(bool(entry.ours) for entry in cells), len(cells)
