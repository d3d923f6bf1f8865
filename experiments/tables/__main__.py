"""Runs the cells of published tables that are missing, and shows them beside what is published.

`python -m experiments.tables` lists the tables. `python -m experiments.tables pfedgraph.table1
--only cifar10 severe --budget 60m` runs cells of one for an hour, and goes on when called again.
`--again` computes cells that have a result too, to see whether they give the same number.
"""

import re
import sys
import time
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.console import Console
from rich.table import Table as Shown

from experiments.tables import claims_page, claims_picture, claims_queue, results, specification
from experiments.tables.claims import find, load
from experiments.tables.fill import fill, fill_together, select, start, together
from experiments.tables.page import pages, terminal
from experiments.tables.specification import Cell
from experiments.tables.staleness import stale
from experiments.tables.standins import smoke
from jaxfl.core.errors import InputError, check
from jaxfl.experiment.pictures.drawing import render
from jaxfl.experiment.session.interrupt import exit_code, stops_at_once
from jaxfl.experiment.store import files

DOCS = Path(__file__).parents[2] / "docs"
SECONDS = {"s": 1, "m": 60, "h": 3600}


def main(
    tables: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="TABLE")] = (),
    /,
    only: tuple[str, ...] = (),
    seeds: int = 1,
    at_once: bool = False,
    budget: str = "",
    run: bool = True,
    workers: int | None = None,
    scale: Literal["paper", "smoke"] = "paper",
    again: bool = False,
    page: bool = False,
    check_stale: bool = False,
    claims: bool = False,
) -> None:
    """Runs missing cells, the most telling first, prints each table and writes the papers' pages.

    Args:
      tables: such as pfedgraph.table1; none: lists them all.
      only: words of which each must be in a name of a cell: its row, column, method or data set.
      seeds: how many seeds of each cell.
      at_once: the missing seeds of a cell are one program: an accelerator takes little longer for
        three than for one.
      budget: start no cell after this time: 90s, 60m, 2h; none if not given.
      run: run what is missing; otherwise only print.
      workers: so many processes run cells side by side; each passes over those that another one
        runs, also one that was started elsewhere on the same disk.
      scale: "smoke": a few steps on random data of the same form, to try whether a table runs;
        nothing of it is kept.
      again: run cells that have a result too, and print what it was. Name them by `--only`.
      page: write docs/papers.md and the pages in docs/papers, and nothing else.
      check_stale: mark the results whose code gives other numbers now; they are run again next
        time. It takes some seconds a cell.
      claims: run the cells that open claims wait for (docs/results/claims.md), the cheapest
        decision first; no table is named then.
    """
    console = Console()
    if claims:
        check(not tables, "--claims chooses the tables itself: leave out their names")
        start()
        errors = claims_queue.run(_ends(budget), console)
        _write_pages(console)
        check(not errors, "; ".join(errors))
        return
    if page:
        _write_pages(console)
        return
    if not tables:
        console.print(_listing())
        return
    check(seeds in range(1, 11), f"--seeds is {seeds}: expected 1 to 10")
    check(workers is None or workers > 0, f"--workers is {workers}: expected 1 or more")
    check(
        not again or (workers is None and not at_once and run and not check_stale),
        "--again runs the cells one by one in this process: leave out --workers, --at-once, "
        "--no-run and --check-stale",
    )
    ends = _ends(budget)
    specifications = [specification.load(name) for name in tables]
    cells = select(tables, only, seeds)
    errors: list[str] = []
    if scale == "smoke":
        start()
        smoke(cells, console)
        return
    if check_stale:
        start()
        _mark(cells, console)
    elif run:
        if workers is None:
            start()
            errors = fill(together(cells) if at_once else cells, ends, console, again=again)
        else:
            errors = fill_together(workers, tables, only, seeds, at_once, ends, console)
    if check_stale or run:
        _write_pages(console)
    for table in specifications:
        if table.script:
            console.print(f"{table.name} is drawn by: {table.command}", soft_wrap=True)
        if table.columns:
            console.print(terminal(table))
    check(not errors, "; ".join(errors))


def _write_pages(console: Console) -> None:
    """Writes docs/papers.md and the page of each paper from all results that there are."""
    (DOCS / "papers").mkdir(exist_ok=True)
    for name, text in pages([specification.load(one) for one in specification.names()]).items():
        files.write_file(DOCS / name, text)
        console.print(f"written to {DOCS / name}", highlight=False)
    findings = [find(claim) for claim in load()]
    made = {
        DOCS / "results" / "claims.md": claims_page.page(findings),
        DOCS / "images" / "claims.png": render(claims_picture.draw(findings)),
    }
    for place, content in made.items():
        files.write_file(place, content)
        console.print(f"written to {place}", highlight=False)


def _mark(cells: list[Cell], console: Console) -> None:
    """Marks the results that are stale, and those of which it cannot be told."""
    for cell in cells:
        result = results.read(cell.config)
        if result is None:
            continue
        result["stale"] = stale(cell.config, result.get("fingerprint"))
        if result["stale"]:
            console.print(f"{cell.column.name}, {cell.row.name}: stale", highlight=False)
        results.write(cell.config, result)


def _listing() -> Shown:
    """All tables, with how many of their cells are there."""
    grid = Shown("table", "paper", "what it shows", "cells")
    for name in specification.names():
        table = specification.load(name)
        cells = table.cells(0)
        there = sum(results.read(cell.config) is not None for cell in cells)
        state = f"{there} / {len(cells)}" if cells else table.script.removeprefix("experiments.")
        grid.add_row(name, f"{table.paper}, {table.place}", table.title, state)
    return grid


def _ends(budget: str) -> float:
    """When the time is over, as `time.time` has it."""
    return time.time() + _seconds(budget) if budget else float("inf")


def _seconds(text: str) -> float:
    """`60m` -> 3600."""
    match = re.fullmatch(r"(\d+)([smh])", text)
    if match is None:
        raise InputError(f"--budget is {text!r}: expected a number with s, m or h, such as 60m")
    return int(match[1]) * SECONDS[match[2]]


if __name__ == "__main__":
    try:
        with stops_at_once():
            tyro.cli(main)
    except InputError as error:
        Console(stderr=True, soft_wrap=True).print(f"tables: {error}", style="red", markup=False)
        sys.exit(2)
    except KeyboardInterrupt as stop:
        words = "tables: interrupted: call again to go on (--again begins with the first cell)"
        Console(stderr=True).print(words, style="red", markup=False)
        sys.exit(exit_code(stop))
