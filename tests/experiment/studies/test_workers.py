"""Workers share the runs of a comparison: each run once, the same files as one worker makes."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter

import numpy as np
import pytest
from finished_runs import write_run
from kill import wait_for_a_checkpoint

from jaxfl.cli import launch, main
from jaxfl.core.errors import Diverged, InputError
from jaxfl.experiment import Config, compare, plan, work
from jaxfl.experiment.config import to_json
from jaxfl.experiment.session.clients import Data
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
# As conftest.py, so that the bits of another process are those of this one.
ENVIRONMENT = os.environ | {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}


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
    configs = [dataclasses.replace(SHORT, label=f"run{number}") for number in range(12)]
    (tmp_path / files.CONFIGS).write_text(to_json(configs))
    (tmp_path / files.INPUTS).write_text('{"data": [""], "files": {}}')
    data = object.__new__(Data)
    vars(data)["digest"] = ""

    def execute(config, run, *_):
        executed[config.label] += 1
        (run / "config.json").write_text(to_json(config))
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


def test_many_workers_execute_each_run_once_and_one_writes_the_table(made_up):
    directory, configs, executed = made_up
    rest = together(5, work, directory)
    assert executed == {config.label: 1 for config in configs} | {"table": 1}
    assert {} in rest
    # A worker that comes late has nothing to do.
    assert work(directory) == {}
    assert sum(executed.values()) == len(configs) + 1
    assert not list(directory.rglob(".*"))


def test_a_run_that_another_worker_has_is_passed_over_and_named(made_up):
    directory, configs, executed = made_up
    with locks.claim(directory / "run0" / files.LOCK):
        (rest,) = together(1, work, directory)
        assert rest == {"run0": locks.holder(directory / "run0" / files.LOCK)}
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


def test_a_worker_and_an_ordinary_resume_exclude_each_other(made_up):
    directory, _, executed = made_up
    with locks.locked(directory), pytest.raises(InputError, match="another process writes"):
        work(directory)
    assert not executed


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["resume", ".", "--worker"], "holds no comparison whose runs workers could share"),
        (["resume", ".", "--workers", "2"], "holds no comparison whose runs workers could share"),
        (["resume", ".", "--worker", "--workers", "2"], "--worker is one worker and --workers"),
        (["compare", "--workers", "0"], "--workers is 0"),
        (["compare", "--workers", "2", "--cluster"], "a worker is one process"),
        (["compare", "--gpus-per-worker", "1"], "give --workers, how many"),
        (["compare", "--launcher", "slurm"], "give --workers, how many"),
        (["compare", "--workers", "2", "--slurm", "time=1"], "add --launcher slurm, or leave"),
        (["compare", "--workers", "2", "--launcher", "slurm"], "add --slurm time=02:00:00"),
        (
            ["compare", "--workers", "2", "--launcher", "slurm", "--slurm", "time"],
            "'time': expected KEY=VALUE, an option of sbatch",
        ),
        (
            ["compare", "--workers", "2", "--gpus-per-worker", "400"],
            "2 workers with 400 GPUs each are asked for, and this machine has",
        ),
    ],
)
def test_what_workers_cannot_do_is_refused_in_one_line(words, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    shown = capsys.readouterr().err
    assert said in shown
    assert shown.count("\n") == 1
    assert not list(tmp_path.iterdir())


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
        for file in ("clients.npz", "models.npz", "graph.npz"):
            assert (out / name / file).exists() == (whole / name / file).exists()
            if (whole / name / file).exists():
                with np.load(out / name / file) as found, np.load(whole / name / file) as expected:
                    assert found.files == expected.files
                    for key in found.files:
                        assert found[key].tobytes() == expected[key].tobytes(), (name, file, key)
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
    begun = []

    def follow(config, line):
        if line is None:
            begun.append(config.name)

    assert {} in together(2, work, out, follow=follow)
    assert sorted(begun) == sorted(NAMES)
    assert_same(out, whole)


@pytest.mark.slow(seconds=25)
def test_another_worker_finishes_what_a_killed_one_leaves(whole, tmp_path):
    out = tmp_path / "x"
    plan(CONFIGS, out)
    command = [sys.executable, "-m", "jaxfl", "resume", str(out), "--worker"]
    worker = subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.DEVNULL)
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


@pytest.mark.slow(seconds=25)
def test_the_command_line_starts_workers_and_shows_their_table(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    options = ["--rounds", "2", "--local-steps", "1", "--model", "linear", "--clients", "5"]
    words = ["compare", "local", "fedavg", *options, "--workers", "2", "--out", "x"]
    assert main(words) == 0
    shown = capfd.readouterr().out
    for name in ("local", "fedavg"):
        assert f"{name}: round 2 of 2, accuracy" in shown
    assert "test accuracy in %" in shown
    assert "written to x" in shown
    logs = [log.read_text() for log in (tmp_path / "x" / files.LOGS).iterdir()]
    assert len(logs) == 2
    assert sum(log.count("round 1 of 2") for log in logs) == 2
    assert main(["resume", "x", "--worker"]) == 0
    assert "written to x" in capfd.readouterr().out
    assert main(["resume", "x", "--workers", "2"]) == 2
    assert "is finished" in capfd.readouterr().err


SUBMITIT = '''
"""Stands for submitit: a job is executed as it is submitted."""
import contextlib

SUBMITTED = []


class Job:
    job_id = "17_0"

    def done(self):
        return True


class SlurmExecutor:
    def __init__(self, folder):
        SUBMITTED.append(folder)

    def update_parameters(self, **parameters):
        SUBMITTED.append(parameters)

    def batch(self):
        return contextlib.nullcontext()

    def submit(self, function, *arguments):
        SUBMITTED.append(function(*arguments))
        return Job()
'''


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """SLURM and submitit, or what stands for them."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "submitit.py").write_text(SUBMITIT)
    for name in ("sbatch", "srun"):
        (tmp_path / "site" / name).write_text("#!/bin/sh\n")
        (tmp_path / "site" / name).chmod(0o755)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'site'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    yield
    sys.modules.pop("submitit", None)


SLURM = ["--workers", "2", "--launcher", "slurm", "--gpus-per-worker", "1", "--slurm"]


@pytest.mark.slow(seconds=8)
def test_slurm_gets_the_workers_through_submitit(slurm, tmp_path, capsys):
    options = ["--rounds", "1", "--local-steps", "1", "--model", "linear", "--clients", "5"]
    slurm_options = ["time=02:00:00", "cpus_per_task=8", "signal=TERM@300"]
    words = ["compare", "local", *options, "--out", "x", *SLURM, *slurm_options]
    assert main(words) == 0
    import submitit

    folder, parameters, *codes = submitit.SUBMITTED
    assert folder == tmp_path / "x" / files.LOGS
    assert parameters == {
        "job_name": "jaxfl",
        "gpus_per_node": 1,
        "stderr_to_stdout": True,
        "additional_parameters": {
            "time": "02:00:00",
            "cpus-per-task": "8",
            "signal": "TERM@300",
        },
    }
    assert codes == [0, 0]
    assert "2 workers are submitted as job 17" in capsys.readouterr().out


def test_slurm_without_slurm_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert main(["compare", *SLURM, "time=1"]) == 2
    assert "needs submitit, which is not installed: pip install" in capsys.readouterr().err
    (tmp_path / "submitit.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert main(["compare", *SLURM, "time=1"]) == 2
    assert "there is no sbatch here" in capsys.readouterr().err


def test_local_workers_share_the_gpus(monkeypatch, tmp_path):
    monkeypatch.setenv(launch.VISIBLE, "3,5,6,7")
    assert launch._shares_of_gpus(2, 2) == ["3,5", "6,7"]
    assert launch._shares_of_gpus(None, 2) == [None, None]
    with pytest.raises(InputError, match="this machine has 4: start fewer"):
        launch._shares_of_gpus(1, 5)
    monkeypatch.delenv(launch.VISIBLE)
    monkeypatch.setattr(launch, "DEVICES", tmp_path)
    for name in ("nvidia0", "nvidia1", "nvidiactl"):
        (tmp_path / name).touch()
    assert launch._shares_of_gpus(1, 2) == ["0", "1"]
