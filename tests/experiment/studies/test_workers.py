"""Workers share the runs of a comparison: each run once, the same files as one worker makes."""

import dataclasses
import json
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter

import children
import pytest
from finished_runs import write_run
from kill import content, same, wait_for_a_checkpoint

from jaxfl.core.errors import Diverged, InputError
from jaxfl.core.file_locks import claim, holder
from jaxfl.experiment import Config, compare, plan, work
from jaxfl.experiment.config import to_json
from jaxfl.experiment.session.gather import Data
from jaxfl.experiment.store import files, locks
from jaxfl.experiment.studies import workers

pytestmark = pytest.mark.xdist_group("workers")  # one process makes the whole one
SHORT = Config(
    algorithm="local",
    rounds=3,
    local_steps=1,
    model="linear",
    clients=4,
    partition="iid",
    checkpoint_every=1,
    devices=1,
)
NAMES = ("local", "fedavg", "heurfedamp", "fedprox")
CONFIGS = [dataclasses.replace(SHORT, algorithm=name) for name in NAMES]


def together(count, function, *arguments, **options):
    """Calls a function in several threads, each of which stands for a process.

    A lock of flock is that of an open file.
    """
    results = []
    threads = [
        threading.Thread(target=lambda: results.append(function(*arguments, **options)))
        for _ in range(count)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


@pytest.fixture
def made_up(tmp_path, monkeypatch):
    """A comparison of many runs that compute nothing, and how often each is executed."""
    executed = Counter()
    configs = [dataclasses.replace(SHORT, label=f"run{number}") for number in range(6)]
    (tmp_path / files.CONFIGS).write_text(to_json(configs))
    (tmp_path / files.INPUTS).write_text('{"data": [""], "files": {}}')
    data = object.__new__(Data)
    vars(data)["digest"] = ""

    def execute(config, run, *_):
        executed[config.label] += 1
        # Whole at once, as a run writes it: other workers read it.
        files.write_file(run / "config.json", to_json(config))
        time.sleep(0.01)
        (run / "summary.json").touch()

    def write_table(directory, directories, first):
        executed["table"] += 1
        assert all((run / "summary.json").exists() for run in directories.values())
        time.sleep(0.05)
        (directory / "comparison.json").touch()

    monkeypatch.setattr(workers, "resolve", lambda config: None)
    monkeypatch.setattr(workers, "gather", lambda resolved: data)
    monkeypatch.setattr(workers, "build", lambda resolved, data: None)
    monkeypatch.setattr(workers, "_execute", execute)
    monkeypatch.setattr(workers, "write_table", write_table)
    return tmp_path, configs, executed


@pytest.mark.slow
def test_many_workers_execute_each_run_once_and_one_writes_the_table(made_up):
    directory, configs, executed = made_up
    rest = together(5, work, directory)
    assert executed == {config.label: 1 for config in configs} | {"table": 1}
    assert {} in rest
    # A worker that comes late has nothing to do.
    assert work(directory) == {}
    assert sum(executed.values()) == len(configs) + 1
    assert not list(directory.rglob(".*"))


@pytest.mark.slow
def test_a_run_that_another_worker_has_is_passed_over_and_named(made_up):
    directory, configs, executed = made_up
    with claim(directory / "run0" / files.LOCK):
        (rest,) = together(1, work, directory)
        assert rest == {"run0": holder(directory / "run0" / files.LOCK)}
        assert executed == {config.label: 1 for config in configs[1:]}
        # The others work, and nobody else may write.
        with locks.shared(directory), pytest.raises(InputError, match="another process writes"):
            compare(configs, directory, overwrite=True)
    (directory / "run0" / "config.json").write_text(to_json(configs[0]))  # it had begun
    assert work(directory) == {}
    assert executed["run0"] == executed["table"] == 1


def test_a_run_that_fails_is_tried_once_and_the_others_are_executed(made_up, monkeypatch):
    directory, configs, executed = made_up
    execute = workers._execute

    def fail(config, *arguments):
        if config.label in ("run1", "run5"):
            executed[config.label] += 1
            raise Diverged("an update was not finite")
        execute(config, *arguments)

    monkeypatch.setattr(workers, "_execute", fail)
    with pytest.raises(Diverged, match="run1: an update was not finite; run5: an upd"):
        work(directory)
    assert executed == {config.label: 1 for config in configs}


@pytest.mark.slow
def test_a_table_whose_writer_was_killed_is_written_by_the_next_worker(made_up, monkeypatch):
    directory, _, executed = made_up
    write_table = workers.write_table

    def die(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(workers, "write_table", die)
    with pytest.raises(KeyboardInterrupt, match=r"jaxfl resume .* --worker goes on"):
        work(directory)
    monkeypatch.setattr(workers, "write_table", write_table)
    assert {} in together(3, work, directory)
    assert executed["table"] == 1
    assert executed["run0"] == 1


@pytest.mark.slow
def test_a_table_of_runs_that_were_taken_away_is_written_anew(made_up):
    directory, configs, executed = made_up
    assert work(directory) == {}
    shutil.rmtree(directory / "run3")
    assert work(directory) == {}
    assert executed["run3"] == executed["table"] == 2
    assert sum(executed.values()) == len(configs) + 3


def test_a_worker_refuses_a_run_with_other_options(made_up):
    directory, configs, executed = made_up
    (directory / "run3").mkdir()
    other = dataclasses.replace(configs[3], lr=0.9)
    (directory / "run3" / "config.json").write_text(to_json(other))
    with pytest.raises(InputError, match=r"run3 holds another run .*--lr was 0.9 and is"):
        work(directory)
    assert not executed


def test_a_worker_and_an_ordinary_resume_exclude_each_other(made_up, monkeypatch):
    monkeypatch.setattr(locks, "PATIENCE", 0.1)
    directory, _, executed = made_up
    with locks.locked(directory), pytest.raises(InputError, match="another process writes"):
        work(directory)
    assert not executed


def test_runs_of_an_earlier_comparison_are_no_runs_of_the_next_one(tmp_path):
    """They would count as finished."""
    for name in ("local", "fedavg"):
        write_run(tmp_path / name, {"algorithm": name})
    plan(CONFIGS[:2], tmp_path, overwrite=True)
    assert not list(tmp_path.rglob("summary.json"))
    assert (tmp_path / files.CONFIGS).exists()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A comparison by one process."""
    out = tmp_path_factory.mktemp("whole") / "x"
    compare(CONFIGS, out)
    return out


def assert_same(out, whole):
    """The comparisons are equal but for their times."""
    for name in NAMES:
        assert same(content(out / name), content(whole / name)), name
    rows = [json.loads((path / "comparison.json").read_text()) for path in (out, whole)]
    for row in (*rows[0], *rows[1]):
        del row["seconds"], row["compile_seconds"]
    assert rows[0] == rows[1]
    names = [
        {
            file.relative_to(path)
            for file in path.rglob("*")
            if file.is_file() and not {"checkpoints", files.LOGS} & {*file.parts}
        }
        for path in (out, whole)
    ]
    assert names[0] == names[1]


@pytest.mark.slow(seconds=15)
def test_two_workers_make_what_one_makes(whole, tmp_path):
    out = tmp_path / "x"
    plan(CONFIGS, out)
    command = [sys.executable, "-m", "jaxfl", "resume", str(out), "--worker"]
    options = {"stdout": subprocess.PIPE, "text": True}
    started = [subprocess.Popen(command, **options) for _ in range(2)]
    said = [output for output, _ in children.end(started)]
    assert [worker.returncode for worker in started] == [0, 0]
    lines = "".join(said).splitlines()
    begun = [line.split(":")[0] for line in lines if line.endswith(": compiling")]
    assert sorted(begun) == sorted(NAMES)
    assert_same(out, whole)


@pytest.mark.slow(seconds=25)
def test_another_worker_finishes_what_a_killed_one_leaves(whole, tmp_path):
    out = tmp_path / "x"
    plan(CONFIGS, out)
    command = [sys.executable, "-m", "jaxfl", "resume", str(out), "--worker"]
    worker = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        wait_for_a_checkpoint(out / NAMES[0])
    finally:
        worker.send_signal(signal.SIGKILL)
        worker.wait()
    assert (out / NAMES[0] / files.LOCK).exists()
    # As if another one had been killed before it wrote the config of its run.
    (out / NAMES[1]).mkdir(exist_ok=True)
    (out / NAMES[1] / "partition.png").touch()
    assert work(out) == {}
    assert_same(out, whole)
