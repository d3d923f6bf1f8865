"""A table beside its published numbers, for the terminal and for docs/papers.md."""

import re
import textwrap
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.table import Table as Shown

from experiments.tables import results
from experiments.tables.specification import Column, Row, Table

SEEDS = range(10)  # seeds whose results are looked for
TEXTS = Path(__file__).parent


LEGEND = """
A cell shows our score and, in brackets, the published one, in % unless a table says otherwise.
**Bold**: they are more than a point apart, or more than the margin of a table in another unit.
After a semicolon: the number of a second source. ± is the standard deviation over seeds; without it
a cell is one seed, or a mean over columns that have different seeds. †: computed by an older
version; the present code gives another number. Where the authors' code shows how scores were taken,
they are taken so here (`jaxfl list presets`). A 95 % interval in the text is one over the clients
of a run: it tells whether the clients agree on a difference, not what another seed would give.
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


def markdown(table: Table, folder: Path = results.FOLDER) -> str:
    """A section of docs/papers.md: the columns in which something is computed, and what it says."""
    by_cell = entries(table, folder)
    columns = [
        column
        for column in table.columns
        if any(by_cell[row.name, column.name].ours for row in table.rows)
    ]
    rows = [row for row in table.rows if any(by_cell[row.name, c.name].ours for c in columns)]
    there, count = _counts(table, folder)
    lines = [f"### {_heading(table)}", ""]
    if table.note:
        lines += [_wrap(table.note), ""]
    if table.also:
        lines += [f"After a semicolon: {table.also}.", ""]
    if table.script:
        lines += [_wrap(f"Drawn by `{table.command}`."), ""]
    if table.picture:
        lines += [f"![{table.title}]({table.picture})", ""]
    if table.rows:
        lines += [f"Cells computed: {there} of {count} (`{table.command}`).", ""]
    if rows:
        header = ["", *(column.name for column in columns)]
        body = [[row.name, *(_cell(by_cell[row.name, c.name]) for c in columns)] for row in rows]
        every = [header, ["---"] + ["---:"] * len(columns), *body]
        lines += [*(f"| {' | '.join(cells)} |" for cells in every), ""]
    paper, _, name = table.name.partition(".")
    lines += _text(TEXTS / paper / f"{name}.md")
    return "\n".join(lines)


def _heading(table: Table) -> str:
    return f"{table.place[0].upper()}{table.place[1:]}. {table.title}"


def _link(table: Table) -> str:
    """The place of a table as a link to its section, by the rule of the hosts of Markdown."""
    anchor = re.sub(r"[^\w -]", "", _heading(table).lower()).replace(" ", "-")
    return f"[{table.place}](#{anchor})"


def _wrap(text: str) -> str:
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
    """docs/papers.md: what is computed, a section for each paper, what is not computed yet.

    The paper with the most tables comes first. The texts of a paper stand beside its tables:
    `findings.md` comes before them, `NAME.md` behind the table NAME, and `protocol.md` last.
    """
    papers: dict[str, list[Table]] = {}
    gaps: list[Table] = []
    for table in tables:
        if table.picture or _counts(table, folder)[0]:
            papers.setdefault(table.paper, []).append(table)
        else:
            gaps.append(table)
    groups = sorted(papers.items(), key=lambda item: -len(item[1]))
    lines = [
        "# The papers' tables",
        "",
        "Made by `python -m experiments.tables --page` from the results in `experiments/results`.",
        "",
        _wrap(LEGEND),
        "",
        "| paper | table | what it shows | cells computed |",
        "|---|---|---|---:|",
    ]
    for paper, members in groups:
        for table in members:
            there, count = _counts(table, folder)
            cells = f"{there} of {count}" if count else "drawn"
            lines.append(f"| {paper} | {_link(table)} | {table.title} | {cells} |")
    lines += ["", "[Not computed yet](#not-computed-yet) has the other tables.", ""]
    for paper, members in groups:
        texts = TEXTS / members[0].name.partition(".")[0]
        lines += [f"## [{paper}]({members[0].link})" if members[0].link else f"## {paper}", ""]
        lines += _text(texts / "findings.md")
        lines += [markdown(table, folder) for table in members]
        lines += _text(texts / "protocol.md")
    lines += [
        "## Not computed yet",
        "",
        "Each is one command, which tests run in small.",
        "",
        "| table | what it shows | cells | command |",
        "|---|---|---:|---|",
    ]
    for table in gaps:
        count = _counts(table, folder)[1] or ""
        link = f"[{table.paper}]({table.link})" if table.link else table.paper
        lines.append(f"| {link}, {table.place} | {table.title} | {count} | `{table.command}` |")
    return "\n".join(lines) + "\n"


def _counts(table: Table, folder: Path) -> tuple[int, int]:
    """How many cells have a number, and how many there are."""
    plain = {column.name for column in table.columns if not column.mean_of}
    by_cell = entries(table, folder)
    cells = [entry for (_, column), entry in by_cell.items() if column in plain]
    return sum(bool(entry.ours) for entry in cells), len(cells)
