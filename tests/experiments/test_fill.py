"""Processes share the missing cells of tables: each is run once."""

import functools
import threading
import time
from collections import Counter

import pytest
from rich.console import Console

from experiments.tables import fill, results, specification
from experiments.tables.__main__ import main
from jaxfl.cli.launch import processes
from jaxfl.core.errors import InputError

CELLS = specification.load("pfedgraph.table1").cells(0)[:6]


@pytest.fixture
def computed(tmp_path, monkeypatch):
    """How often each cell is run; nothing is computed."""
    counts = Counter()

    def compute(config, **options):
        counts[results.file_of(config).name] += 1
        time.sleep(0.02)
        result = {"scores": {"last": {"deployed": 0.5}}, "clients": {}, "seconds": 1.0}
        return [results.write(single, result, tmp_path) for single in results.singles(config)]

    monkeypatch.setattr(
        fill,
        "is_there",
        lambda cell: all(
            results.file_of(config, tmp_path).exists() for config in results.singles(cell.config)
        ),
    )
    monkeypatch.setattr(results, "claim", functools.partial(results.claim, work=tmp_path / "work"))
    monkeypatch.setattr(results, "compute", compute)
    monkeypatch.setattr(specification.Cell, "value", lambda cell, result: 0.5)
    return counts


def shown(cells, ends=float("inf"), again=False):
    console = Console(record=True, width=1000)
    errors = fill.fill(cells, ends, console, again=again)
    return errors, console.export_text()


def test_processes_run_each_cell_once(computed, tmp_path):
    # A lock of flock is that of an open file, so that threads stand for processes.
    threads = [threading.Thread(target=shown, args=(CELLS,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert computed == {results.file_of(cell.config).name: 1 for cell in CELLS}
    assert not list((tmp_path / "work").iterdir())


@pytest.mark.slow
def test_missing_seeds_of_a_cell_are_one_run(computed, tmp_path, monkeypatch):
    table = specification.load("pfedgraph.table1")
    cells = [cell for seed in range(3) for cell in table.cells(seed)[:2]]
    results.write(cells[0].config, {}, tmp_path)
    whole, rest = fill.together(cells)
    assert (rest.config.seed, rest.config.seeds) == (1, 2)
    assert (whole.config.seed, whole.config.seeds) == (0, 3)
    assert "seed 0 1 2: 0.5" in shown([whole, rest])[1]
    assert len(list(tmp_path.rglob("*.json"))) == 6
    assert fill.together(cells) == []


def test_cells_that_are_there_are_run_once_more_if_one_asks(computed, monkeypatch):
    shown(CELLS[:2])
    monkeypatch.setattr(results, "read", lambda config: {})
    assert shown(CELLS[:2])[1] == ""
    text = shown(CELLS[:2], again=True)[1]
    assert text.count("seed 0: 0.5000 (1 s), before: 0.5000") == 2
    assert set(computed.values()) == {2}


def test_cells_of_one_run_run_it_once_more_and_tell_what_each_was(computed, monkeypatch):
    again = Counter()

    def compute(config, **options):
        again[results.file_of(config).name] += 1
        stored[results.file_of(config).name] = {"score": 0.75, "seconds": 2.0}
        return [stored[results.file_of(config).name]]

    stored = {results.file_of(cell.config).name: {"score": 0.25} for cell in CELLS[:1]}
    monkeypatch.setattr(results, "read", lambda config: stored[results.file_of(config).name])
    monkeypatch.setattr(results, "compute", compute)
    monkeypatch.setattr(specification.Cell, "value", lambda cell, result: result["score"])
    text = shown([CELLS[0], CELLS[0]], again=True)[1]
    assert text.count("0.7500 (2 s), before: 0.2500") == 2
    assert set(again.values()) == {1}


def test_what_is_not_run_again_for_time_is_named(computed):
    text = shown(CELLS[:2], ends=0.0, again=True)[1]
    assert text.startswith("the time is over: not run again: ")
    assert all(cell.row.name in text for cell in CELLS[:2])


@pytest.mark.parametrize(
    "options", [{"workers": 2}, {"at_once": True}, {"run": False}, {"check_stale": True}]
)
def test_cells_that_are_run_again_are_run_one_by_one(options):
    with pytest.raises(InputError, match="--again runs the cells one by one"):
        main(("pfedgraph.table13",), again=True, **options)


def test_a_cell_that_another_process_runs_is_no_error(computed):
    with results.claim(CELLS[0].config):
        errors, text = shown(CELLS)
    assert errors == []
    assert f"other processes run {CELLS[0].column.name}, {CELLS[0].row.name}, seed 0" in text
    assert sum(computed.values()) == len(CELLS) - 1
    assert shown(CELLS)[0] == []
    assert sum(computed.values()) == len(CELLS)


def test_a_cell_that_cannot_be_run_is_tried_once_and_named(computed, monkeypatch):
    def fail(config, **options):
        raise InputError("there are no such data")

    monkeypatch.setattr(results, "compute", fail)
    errors, _ = shown(CELLS[:2])
    assert len(errors) == 2
    assert all("seed 0: there are no such data" in error for error in errors)


def test_no_cell_begins_when_the_time_is_over(computed):
    assert "the time is over" in shown(CELLS, ends=time.time())[1]
    assert not computed


@pytest.mark.slow(seconds=10)
def test_an_interruption_ends_the_processes():
    began = time.time()
    with pytest.raises(KeyboardInterrupt), processes(time.sleep, [(600,), (600,)]) as started:
        raise KeyboardInterrupt
    assert [process.is_alive() for process in started] == [False, False]
    assert time.time() - began < 300
