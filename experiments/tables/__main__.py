"""Runs the cells of published tables that are missing, and shows them beside what is published.

`python -m experiments.tables` lists the tables. `python -m experiments.tables pfedgraph.table1
--only cifar10 severe --budget 60m` runs cells of one for an hour, and goes on when called again.
"""

import re
import time
from pathlib import Path
from typing import Annotated, Literal

import jax
import tyro
from rich.console import Console
from rich.table import Table as Shown

from experiments.tables import page, results, specification
from experiments.tables.specification import Cell, Table
from jaxfl import mesh
from jaxfl.errors import InputError, check

SECONDS = {"s": 1, "m": 60, "h": 3600}


def main(
    tables: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="TABLE")] = (),
    /,
    only: tuple[str, ...] = (),
    seeds: int = 1,
    budget: str = "",
    run: bool = True,
    scale: Literal["paper", "smoke"] = "paper",
) -> None:
    """Runs missing cells, the most telling first, and prints each table.

    Args:
      tables: such as pfedgraph.table1; none: lists them all.
      only: words of which each must be in the names of a cell's row, column, method or data set.
      seeds: how many seeds of each cell.
      budget: start no cell after this time: 90s, 60m, 2h; none if not given.
      run: run what is missing; otherwise only print.
      scale: "smoke": a few steps on random data of the same form, to try whether a table runs;
        nothing of it is kept.
    """
    console = Console()
    if not tables:
        console.print(_listing())
        return
    check(seeds >= 1, f"--seeds is {seeds}: expected 1 or more")
    ends = time.monotonic() + _seconds(budget) if budget else float("inf")
    loaded = [specification.load(name) for name in tables]
    if scale == "smoke":
        from experiments.tables.standins import smoke

        smoke(loaded, only, console)
        return
    if run:
        _start()
        for table in loaded:
            for seed in range(seeds):
                _fill(table, seed, only, ends, console)
    for table in loaded:
        console.print(page.terminal(table))


def _start() -> None:
    """What is settled before JAX starts: devices, and the cache of compiled programs."""
    mesh.prepare_host()
    if jax.config.jax_compilation_cache_dir is None:
        jax.config.update("jax_compilation_cache_dir", str(Path.home() / ".cache" / "jaxfl"))


def _fill(table: Table, seed: int, only: tuple[str, ...], ends: float, console: Console) -> None:
    """Runs the missing cells of a table for one seed while there is time."""
    for cell in table.cells(seed):
        if not wanted(cell, only) or results.read(cell.config) is not None:
            continue
        if time.monotonic() > ends:
            console.print("the time is over: call again to go on")
            return
        result = results.compute(cell.config)
        found = results.score(result, cell.rule, cell.stage)
        console.print(
            f"{table.name}, {cell.column.name}, {cell.row.name}, seed {seed}: {found} "
            f"({result['seconds']:.0f} s)",
            highlight=False,
        )


def wanted(cell: Cell, only: tuple[str, ...]) -> bool:
    """Whether each word is in one of the names of a cell."""
    config = cell.config
    names = (cell.row.name, cell.column.name, config.algorithm, config.dataset)
    return all(any(word.lower() in name.lower() for name in names) for word in only)


def _listing() -> Shown:
    """All tables, with how many of their cells are there."""
    shown = Shown("table", "paper", "what it shows", "cells")
    for name in specification.names():
        table = specification.load(name)
        cells = table.cells(0)
        there = sum(results.read(cell.config) is not None for cell in cells)
        shown.add_row(name, f"{table.paper}, {table.place}", table.title, f"{there} / {len(cells)}")
    return shown


def _seconds(text: str) -> float:
    """`60m` -> 3600."""
    found = re.fullmatch(r"(\d+)([smh])", text)
    if found is None:
        raise InputError(f"--budget is {text!r}: expected a number with s, m or h, such as 60m")
    return int(found[1]) * SECONDS[found[2]]


if __name__ == "__main__":
    tyro.cli(main)
