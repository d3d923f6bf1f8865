"""Workers share the trials of a search: each program once, the same files as one process makes."""

import dataclasses
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter

import pytest

from jaxfl.core.errors import InputError, Terminated
from jaxfl.core.file_locks import claim, holder
from jaxfl.experiment import Config
from jaxfl.experiment.store import files, locks
from jaxfl.experiment.studies import sweep, trials
from jaxfl.experiment.studies.sweep import plan_search, resume_search, search
from jaxfl.experiment.studies.workers import watch_search, work_on_search

TINY = Config(
    algorithm="fedprox",
    rounds=1,
    local_steps=1,
    model="linear",
    partition="iid",
    clients=2,
    devices=1,
)
# Four programs: trials that differ in mu alone share one.
POINTS = [{"batch_size": size, "mu": mu} for mu in (0.1, 1.0) for size in (2, 3, 4, 8)]
RESULTS = (files.PLAN, "sweep.json", "best.json")


@pytest.fixture(scope="module")
def groups():
    """The programs of the search."""
    return trials.build_groups(TINY, POINTS)


@pytest.fixture
def computed(monkeypatch, groups):
    """How often each batch size is tried; nothing is computed, and all is built once."""
    counts = Counter()

    def together(built, points, *rest):
        counts[points[0]["batch_size"]] += 1
        time.sleep(0.02)
        return [
            {"point": point, "val": point["mu"] / point["batch_size"], "test": 0.5}
            for point in points
        ]

    monkeypatch.setattr(trials, "_together", together)
    monkeypatch.setattr(sweep, "build_groups", lambda config, points: groups)
    return counts


def in_threads(count, function, *arguments):
    """Calls a function in threads, which stand for processes: a lock is that of an open file."""
    results = []

    def call():
        try:
            results.append(function(*arguments))
        except InputError as error:
            results.append(str(error))

    threads = [threading.Thread(target=call) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


@pytest.mark.slow
def test_many_workers_run_each_program_once_and_one_closes_the_search(computed, tmp_path):
    search(TINY, POINTS, tmp_path / "one")
    computed.clear()
    out = tmp_path / "x"
    plan_search(TINY, POINTS, out)
    reports = []
    watcher = threading.Thread(
        target=watch_search,
        args=(out, lambda: True),
        kwargs={"follow": lambda *report: reports.append(report), "pause": 0.01},
    )
    watcher.start()
    assert {} in in_threads(5, work_on_search, out)
    watcher.join()
    assert computed == {2: 1, 3: 1, 4: 1, 8: 1}
    for name in RESULTS:
        assert (out / name).read_bytes() == (tmp_path / "one" / name).read_bytes()
    names = [{path.name for path in folder.iterdir()} for folder in (out, tmp_path / "one")]
    assert names[0] == names[1]
    assert reports[-1] == (8, 8, 0.5)
    assert work_on_search(out) == {}
    assert computed.total() == 4


def test_trials_that_another_worker_has_are_passed_over_and_named(computed, tmp_path):
    plan_search(TINY, POINTS, tmp_path)
    lock = locks.beside(tmp_path / "trial-1")
    with claim(lock):
        assert work_on_search(tmp_path) == {"trial 2 and 1 more": holder(lock)}
        assert sorted(computed) == [2, 4, 8]
        with locks.shared(tmp_path), pytest.raises(InputError, match="another process writes"):
            resume_search(tmp_path)
    assert work_on_search(tmp_path) == {}
    assert computed == {2: 1, 3: 1, 4: 1, 8: 1}


def test_a_worker_that_is_stopped_keeps_its_trials(computed, tmp_path):
    plan_search(TINY, POINTS, tmp_path)

    def stop(done, total, best):
        if done == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Terminated, match=r"jaxfl resume .* --worker goes on"):
        work_on_search(tmp_path, follow=stop)
    assert computed.total() == 1
    assert work_on_search(tmp_path) == {}
    assert computed == {2: 1, 3: 1, 4: 1, 8: 1}


def test_a_search_without_a_score_is_an_error_of_each_worker(computed, monkeypatch, tmp_path):
    def together(built, points, *rest):
        time.sleep(0.02)
        return [{"point": point, "val": None, "test": None} for point in points]

    monkeypatch.setattr(trials, "_together", together)
    plan_search(TINY, POINTS, tmp_path)
    results = in_threads(3, work_on_search, tmp_path)
    assert sweep.NO_SCORE in results
    assert all(isinstance(result, dict) or result == sweep.NO_SCORE for result in results)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow(seconds=25)
def test_another_worker_finishes_what_a_killed_one_leaves(tmp_path):
    config = dataclasses.replace(TINY, rounds=3)
    search(config, POINTS, tmp_path / "one")
    out = tmp_path / "x"
    plan_search(config, POINTS, out)
    command = [sys.executable, "-m", "jaxfl", "resume", str(out), "--worker"]
    worker = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 120
        # It has written the trials of one program, and is at work on the next one.
        while time.monotonic() < deadline and not (out / ".trial-1.lock").exists():
            time.sleep(0.01)
    finally:
        worker.send_signal(signal.SIGKILL)
        worker.wait()
    assert len((out / files.TRIALS).read_text().splitlines()) == 2
    assert (out / ".trial-1.lock").exists()
    assert work_on_search(out) == {}
    for name in RESULTS:
        assert (out / name).read_bytes() == (tmp_path / "one" / name).read_bytes()
