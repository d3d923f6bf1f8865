"""Runs the missing cells of tables, in one process or in several that share them."""

import dataclasses
import re
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.console import Console

from experiments.tables import results, specification
from experiments.tables.results import Result
from experiments.tables.specification import Cell
from experiments.tables.staleness import fingerprint
from jaxfl.cli.launch import processes
from jaxfl.core.errors import InputError, check
from jaxfl.experiment.session.interrupt import exit_code, stops_at_once
from jaxfl.simulation.processes import keep_programs, prepare_host


def start() -> None:
    """What is settled before JAX starts: devices, and the cache of compiled programs."""
    prepare_host()
    keep_programs()


def select(tables: Sequence[str], only: Sequence[str], seeds: int) -> list[Cell]:
    """The cells of tables, for so many seeds.

    Args:
      tables: their names.
      only: words of which each must be in a name of a cell, see `has_words`.
      seeds: how many seeds of each cell.

    Raises:
      InputError: no cell has these words.
    """
    loaded = [specification.load(name) for name in tables]
    every = [cell for table in loaded for seed in range(seeds) for cell in table.cells(seed)]
    cells = [cell for cell in every if has_words(cell, only)]
    check(bool(cells) or not every, f"--only {' '.join(only)} matches no cell: see their names")
    return cells


def together(cells: Sequence[Cell]) -> list[Cell]:
    """The cells that have no result, those that differ in their seed alone as one.

    Such a cell has the seeds from the first to the last one that is missing; one between them that
    is there is computed again.

    Args:
      cells: of one or several seeds.
    """
    seeds: dict[str, list[int]] = {}
    first: dict[str, Cell] = {}
    for cell in cells:
        if not is_there(cell):
            alike = str(results.file_of(dataclasses.replace(cell.config, seed=0)))
            first.setdefault(alike, cell)
            seeds.setdefault(alike, []).append(cell.config.seed)
    return [
        dataclasses.replace(
            cell,
            config=dataclasses.replace(
                cell.config,
                seed=min(seeds[alike]),
                seeds=max(seeds[alike]) - min(seeds[alike]) + 1,
            ),
        )
        for alike, cell in first.items()
    ]


def has_words(cell: Cell, only: Sequence[str]) -> bool:
    """Whether each word is a whole word of one of the names of a cell.

    Hyphens join words: `fedavg` is not in FedAvg-FT, and `cifar-10` is not in CIFAR-100.
    """
    config = cell.config
    names = (cell.row.name, cell.column.name, config.algorithm, config.dataset)

    def has(word: str) -> bool:
        whole = rf"(?<![\w-]){re.escape(word)}(?![\w-])"
        return any(re.search(whole, name, re.IGNORECASE) for name in names)

    return all(map(has, only))


def is_there(cell: Cell) -> bool:
    """Whether each seed of a cell has a result that is not stale."""
    return all(result is not None and not result.get("stale", False) for result in _stored(cell))


def fill(cells: Sequence[Cell], ends: float, console: Console, *, again: bool = False) -> list[str]:
    """Runs the missing cells while there is time, but for those that another process runs.

    Args:
      cells: the most telling first.
      ends: when the time is over, as `time.time` has it.
      console: where each result is printed.
      again: run cells that have a result too, and print what it was.

    Returns:
      What kept cells from being run, a line each.
    """
    errors = []
    tried = set()  # places of cells
    # Cells share runs: what each was, before one of them runs again.
    before = [_values(cell, _stored(cell)) for cell in cells] if again else []
    anew: set[Path] = set()  # results that this call has made again
    elsewhere = []
    # Again until none is left, for another process may have ended before its cell was done.
    is_new = True
    while is_new:
        is_new = False
        elsewhere = []
        for place, cell in enumerate(cells):
            if place in tried or (is_there(cell) and not again):
                continue
            if time.time() > ends:
                left = "; ".join(map(_name, cells[place:]))
                words = f"not run again: {left}" if again else "call again to go on"
                console.print(f"the time is over: {words}", highlight=False)
                return errors
            name = _name(cell)
            with results.claim(cell.config) as ours:
                if not ours:
                    elsewhere.append(name)
                    continue
                if is_there(cell) and not again:  # another process has finished it
                    continue
                tried.add(place)
                is_new = True
                made = {results.file_of(config) for config in results.singles(cell.config)}
                try:
                    each = (
                        [result for result in _stored(cell) if result is not None]
                        if made <= anew
                        else results.compute(
                            cell.config, rule=cell.rule, fingerprint=fingerprint, again=again
                        )
                    )
                except InputError as error:
                    errors.append(f"{name}: {error}")
                    continue
                anew |= made
            text = f"{name}: {_values(cell, each)} ({each[0]['seconds']:.0f} s)"
            console.print(f"{text}, before: {before[place]}" if again else text, highlight=False)
    if elsewhere:
        console.print(f"other processes run {'; '.join(elsewhere)}", highlight=False)
    return errors


def _name(cell: Cell) -> str:
    """Column, row and seeds of a cell."""
    seeds = [config.seed for config in results.singles(cell.config)]
    return f"{cell.column.name}, {cell.row.name}, seed {' '.join(map(str, seeds))}"


def _stored(cell: Cell) -> list[Result | None]:
    """The stored result of each seed of a cell."""
    return [results.read(config) for config in results.singles(cell.config)]


def _values(cell: Cell, found: Iterable[Result | None]) -> str:
    """The numbers of the seeds of a cell as text."""
    values = [None if result is None else cell.value(result) for result in found]
    return " ".join("no score" if value is None else f"{value:.4f}" for value in values)


def fill_together(
    workers: int,
    tables: Sequence[str],
    only: Sequence[str],
    seeds: int,
    at_once: bool,
    ends: float,
    console: Console,
) -> list[str]:
    """As `fill`, in so many processes of their own, whose lines stand on the same terminal."""
    words = (tables, only, seeds, at_once, ends)
    with processes(fill_apart, [words] * workers) as started:
        console.print(f"{workers} workers share {', '.join(tables)}", highlight=False)
    failures = sum(worker.exitcode != 0 for worker in started)
    return [f"{failures} of {workers} workers failed: see above"] if failures else []


def fill_apart(
    tables: Sequence[str], only: Sequence[str], seeds: int, at_once: bool, ends: float
) -> None:
    """`fill` as a process: it exits with 0, or with 2 after an error, which it prints."""
    said = Console(stderr=True, soft_wrap=True)
    try:
        with stops_at_once():
            start()
            cells = select(tables, only, seeds)
            cells = together(cells) if at_once else cells
            errors = fill(cells, ends, Console(soft_wrap=True))
    except KeyboardInterrupt as stop:
        sys.exit(exit_code(stop))
    except InputError as error:
        errors = [str(error)]
    if errors:
        said.print(f"tables: {'; '.join(errors)}", style="red", markup=False)
        sys.exit(2)
