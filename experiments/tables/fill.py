"""Runs the missing cells of tables, in one process or in several that share them."""

import re
import sys
import time
from collections.abc import Sequence

from rich.console import Console

from experiments.tables import results, specification
from experiments.tables.specification import Cell
from experiments.tables.staleness import fingerprint
from jaxfl.cli.launch import processes
from jaxfl.core.errors import InputError, check
from jaxfl.experiment.session.interrupt import exit_code, stops_at_once
from jaxfl.experiment.store import locks
from jaxfl.simulation import mesh


def start() -> None:
    """What is settled before JAX starts: devices, and the cache of compiled programs."""
    mesh.prepare_host()
    mesh.keep_programs()


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


def has_words(cell: Cell, only: Sequence[str]) -> bool:
    """Whether each word is a whole word of one of the names of a cell.

    Hyphens join words: `fedavg` is not in FedAvg-FT, and `cifar-10` is not in CIFAR-100.
    """
    config = cell.config
    names = (cell.row.name, cell.column.name, config.algorithm, config.dataset)

    def is_there(word: str) -> bool:
        whole = rf"(?<![\w-]){re.escape(word)}(?![\w-])"
        return any(re.search(whole, name, re.IGNORECASE) for name in names)

    return all(map(is_there, only))


def is_there(cell: Cell) -> bool:
    """Whether a cell has a result that is not stale."""
    result = results.read(cell.config)
    return result is not None and not result.get("stale", False)


def fill(cells: Sequence[Cell], ends: float, console: Console) -> list[str]:
    """Runs the missing cells while there is time, but for those that another process runs.

    Args:
      cells: the most telling first.
      ends: when the time is over, as `time.time` has it.
      console: where each result is printed.

    Returns:
      What kept cells from being run, a line each.
    """
    errors = []
    tried = set()  # places of cells
    elsewhere = []
    # Again until none is left, for another process may have ended before its cell was done.
    is_new = True
    while is_new:
        is_new = False
        elsewhere = []
        for place, cell in enumerate(cells):
            if place in tried or is_there(cell):
                continue
            if time.time() > ends:
                console.print("the time is over: call again to go on")
                return errors
            name = f"{cell.column.name}, {cell.row.name}, seed {cell.config.seed}"
            with results.claim(cell.config) as ours:
                if not ours:
                    elsewhere.append(name)
                    continue
                if is_there(cell):  # another process has finished it in the meantime
                    continue
                tried.add(place)
                is_new = True
                try:
                    result = results.compute(cell.config, rule=cell.rule, fingerprint=fingerprint)
                except InputError as error:
                    errors.append(f"{name}: {error}")
                    continue
            value = cell.value(result)
            text = "no score" if value is None else f"{value:.4f}"
            console.print(f"{name}: {text} ({result['seconds']:.0f} s)", highlight=False)
    if elsewhere:
        console.print(f"other processes run {'; '.join(elsewhere)}", highlight=False)
    return errors


def fill_together(
    workers: int,
    tables: Sequence[str],
    only: Sequence[str],
    seeds: int,
    ends: float,
    console: Console,
) -> list[str]:
    """As `fill`, in so many processes of their own, whose lines stand on the same terminal."""
    locks.check_locks()
    words = (tables, only, seeds, ends)
    with processes(fill_apart, [words] * workers) as started:
        console.print(f"{workers} workers share {', '.join(tables)}", highlight=False)
    failures = sum(worker.exitcode != 0 for worker in started)
    return [f"{failures} of {workers} workers failed: see above"] if failures else []


def fill_apart(tables: Sequence[str], only: Sequence[str], seeds: int, ends: float) -> None:
    """`fill` as a process: it exits with 0, or with 2 after an error, which it prints."""
    said = Console(stderr=True, soft_wrap=True)
    try:
        with stops_at_once():
            start()
            errors = fill(select(tables, only, seeds), ends, Console(soft_wrap=True))
    except KeyboardInterrupt as stop:
        sys.exit(exit_code(stop))
    except InputError as error:
        errors = [str(error)]
    if errors:
        said.print(f"tables: {'; '.join(errors)}", style="red", markup=False)
        sys.exit(2)
