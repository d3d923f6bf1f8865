"""The table of finished runs on the terminal."""

from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from jaxfl.experiment.show.scores import COLUMNS, caption, ranked, rows


def score_table(summaries: dict[str, dict[str, Any]]) -> Table:
    """The runs as a table for the terminal."""
    shown = Table(
        caption=caption(summaries),
        caption_justify="left",
        box=SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
    )
    shown.add_column("algorithm", overflow="fold", min_width=10)
    for name in COLUMNS:
        shown.add_column(name, justify="right", no_wrap=True)
    for run, summary in ranked(summaries).items():
        for label, cells in rows(run, summary):
            shown.add_row(Text(label), *cells)
    return shown
