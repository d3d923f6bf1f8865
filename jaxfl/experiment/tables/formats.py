"""Tables of finished runs on the terminal, and as Markdown, LaTeX, CSV and JSON."""

import csv
import io
import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from jaxfl.core.text import visible
from jaxfl.data.table.read import NUMBER
from jaxfl.experiment.store.records import Runs
from jaxfl.experiment.tables.sections import Section, sections
from jaxfl.experiment.tables.tables import Cells, caption

TEX = {  # what letters mean something else in LaTeX, as they are typed there
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"$<$",
    ">": r"$>$",
    "±": r"$\pm$",
    # Behind the end of a row these would be its arguments.
    "[": "{[}",
    "*": "{*}",
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
}


def markdown(tables: Sequence[Section]) -> str:
    """The tables as Markdown, with their headings, captions and warnings; the best in bold."""
    parts = []
    for table in tables:
        titles = [_escape(title) for title in table.cells.titles]
        lines = [f"| {table.first} | {' | '.join(titles)} |", f"|---|{'---:|' * len(titles)}"]
        lines += [f"| {' | '.join(row)} |" for row in _rows(table, _escape, "**{}**")]
        parts += [_escape(table.heading), "\n".join(lines), _escape(_caption(table))]
        parts += [f"{_escape(line)} (docs/tuning.md)." for line in table.warnings]
        parts += [_escape(line) for line in table.lines]
    return "\n\n".join(part for part in parts if part) + "\n"


def latex(tables: Sequence[Section]) -> str:
    """The tables as LaTeX, for the package booktabs, the best in bold.

    Headings, captions and warnings are comments.
    """
    parts = []
    for table in tables:
        comments = [table.heading, _caption(table), *table.warnings, *table.lines]
        lines = [f"% {visible(line)}" for line in comments if line]
        first = f"{table.first[0].upper()}{table.first[1:]}"
        lines.append(rf"\begin{{tabular}}{{l{'r' * len(table.cells.titles)}}}")
        head = " & ".join(tex(title) for title in (first, *_headings(table.cells)))
        lines += [r"\toprule", rf"{head} \\", r"\midrule"]
        lines += [rf"{' & '.join(row)} \\" for row in _rows(table, tex, r"\textbf{{{}}}")]
        lines += [r"\bottomrule", r"\end{tabular}"]
        parts.append("\n".join(lines))
    return "\n\n".join(["% needs \\usepackage{booktabs}", *parts]) + "\n"


def _headings(cells: Cells) -> list[str]:
    """The titles of the columns as headings in a text; options keep their small letters."""
    return [
        title if place < cells.options else f"{title[0].upper()}{title[1:]}"
        for place, title in enumerate(cells.titles)
    ]


def tex(text: str) -> str:
    """The text as it is typed in LaTeX, with the minus of numbers, and a dash for no value."""
    if text == "-":
        return "--"
    source = "".join(TEX.get(letter, letter) for letter in visible(text))
    return re.sub(r"(?<![\w.])-(?=\d)", "$-$", source)


def comma_separated(records: Sequence[dict[str, Any]]) -> str:
    """Records as CSV: a line of names, then a line for each record; nothing for None."""
    names = list(dict.fromkeys(name for record in records for name in record))
    return csv_text(names, [[record.get(name) for record in records] for name in names])


def csv_text(names: Sequence[str], columns: Sequence[Sequence[Any]]) -> str:
    """The text of a CSV file, in which a cell that a spreadsheet would take for a formula is text.

    Such a cell begins with an apostrophe; numbers do not.

    Args:
      names: of its columns.
      columns: the cells of each.

    Example:
      >>> print(csv_text(["id", "value"], [["=1+1", "-a"], ["-1.5", -2]]), end="")
      id,value
      '=1+1,-1.5
      '-a,-2
    """
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    for row in (names, *zip(*columns, strict=True)):
        writer.writerow([_harmless(cell) for cell in row])
    return buffer.getvalue()


def as_json(records: Sequence[dict[str, Any]]) -> str:
    """Records as a JSON list."""
    return json.dumps(list(records), indent=1, allow_nan=False) + "\n"


def print_scores(runs: Runs, console: Console) -> None:
    """Prints the tables of runs; see `print_sections`."""
    print_sections(sections(runs), console)


def print_sections(tables: Sequence[Section], console: Console) -> None:
    """Prints tables, each with its heading above it, its caption and warnings below it.

    Names of runs are never cut: where a table may be narrowed, columns that do not fit are left
    out, the last first.
    """
    for place, table in enumerate(tables):
        if place:
            console.print()
        titles = table.cells.titles
        count = len(titles)
        while table.narrows and count > 1 and _width(_table(table, count), console) > console.width:
            count -= 1
        if table.heading:
            console.print(Text(visible(table.heading)))
        console.print(_table(table, count))
        words = caption(table.meaning, titles[:count])
        console.print(Text(visible(words), style="dim italic"))
        for line in table.warnings:
            console.print(Text(f"{visible(line)} (docs/tuning.md)", style="yellow"))
        for line in table.lines:
            console.print(Text(visible(line)))


def _rows(table: Section, escape: Callable[[str], str], bold: str) -> list[list[str]]:
    """The rows of a table as text, each with its name first."""
    rows = []
    for place, (name, cells) in enumerate(table.cells.rows):
        row = [
            bold.format(escape(cell)) if (place, column) in table.cells.best else escape(cell)
            for column, cell in enumerate(cells)
        ]
        rows.append([escape(name), *row])
    return rows


def _caption(table: Section) -> str:
    """The caption as a sentence."""
    text = caption(table.meaning, table.cells.titles)
    return f"{text[0].upper()}{text[1:]}."


def _escape(text: str) -> str:
    """The text as it is typed in Markdown, where it is neither markup nor HTML."""
    text = re.sub(r"[\\`*\[|]", r"\\\g<0>", visible(text))
    return text.replace("&", "&amp;").replace("<", "&lt;")


def _harmless(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    text = visible(value)
    formula = text.startswith(("=", "+", "@", "-")) and NUMBER.fullmatch(text) is None
    return f"'{text}" if formula else text


def _table(section: Section, count: int) -> Table:
    """The first columns of the table, the best scores in bold."""
    cells = section.cells
    grid = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    grid.add_column(section.first, overflow="fold")
    for title in cells.titles[:count]:
        # A title of several words takes a line for each.
        words = Text("\n".join(visible(word) for word in title.split()))
        grid.add_column(words, justify="right", no_wrap=True, vertical="bottom")
    for place, (name, row) in enumerate(cells.rows):
        texts = [
            Text(visible(cell), style="bold" if (place, column) in cells.best else "")
            for column, cell in enumerate(row[:count])
        ]
        grid.add_row(Text(visible(name)), *texts)
    return grid


def _width(table: Table, console: Console) -> int:
    """The columns of the terminal that the table takes if nothing is folded."""
    options = console.options.update(max_width=100_000)
    return Measurement.get(console, options, table).maximum
