"""The tables of finished runs on the terminal."""

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from jaxfl.experiment.show.scores import Runs
from jaxfl.experiment.show.sections import Section, sections
from jaxfl.experiment.show.tables import Cells, caption


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
        cells = table.cells
        count = len(cells.titles)
        while table.narrows and count > 1 and _width(_table(cells, count), console) > console.width:
            count -= 1
        if table.heading:
            console.print(Text(table.heading))
        console.print(_table(cells, count))
        console.print(Text(caption(table.meaning, cells.titles[:count]), style="dim italic"))
        for line in table.warnings:
            console.print(Text(f"{line} (docs/tuning.md)", style="yellow"))


def _table(cells: Cells, count: int) -> Table:
    """The first columns of the table, the best scores in bold."""
    shown = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    shown.add_column("method", overflow="fold")
    for title in cells.titles[:count]:
        # A title of several words takes a line for each.
        shown.add_column("\n".join(title.split()), justify="right", no_wrap=True, vertical="bottom")
    for place, (name, row) in enumerate(cells.rows):
        texts = [
            Text(cell, style="bold" if (place, column) in cells.best else "")
            for column, cell in enumerate(row[:count])
        ]
        shown.add_row(Text(name), *texts)
    return shown


def _width(table: Table, console: Console) -> int:
    """The columns of the terminal that the table takes if nothing is folded."""
    options = console.options.update(max_width=100_000)
    return Measurement.get(console, options, table).maximum
