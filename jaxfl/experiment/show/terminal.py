"""The table of finished runs on the terminal."""

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from jaxfl.experiment.show.tables import Cells, Runs, caption, heading, table_cells, warnings


def print_scores(runs: Runs, console: Console) -> None:
    """Prints the table of runs, with the setting above it, its caption and warnings below it.

    Names of runs are never cut: columns that do not fit are left out, the last first.
    """
    cells = table_cells(runs)
    count = len(cells.titles)
    while count > 1 and _width(_table(cells, count), console) > console.width:
        count -= 1
    if heading(runs):
        console.print(Text(heading(runs)))
    console.print(_table(cells, count))
    console.print(Text(caption(runs, cells.titles[:count]), style="dim italic"))
    for line in warnings(runs):
        console.print(Text(f"{line} (docs/tuning.md)", style="yellow"))


def _table(cells: Cells, count: int) -> Table:
    """The first columns of the table."""
    shown = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    shown.add_column("method", overflow="fold")
    for title in cells.titles[:count]:
        # A title of several words takes a line for each.
        shown.add_column("\n".join(title.split()), justify="right", no_wrap=True, vertical="bottom")
    for name, row in cells.rows:
        shown.add_row(Text(name), *row[:count])
    return shown


def _width(table: Table, console: Console) -> int:
    """The columns of the terminal that the table takes if nothing is folded."""
    options = console.options.update(max_width=100_000)
    return Measurement.get(console, options, table).maximum
