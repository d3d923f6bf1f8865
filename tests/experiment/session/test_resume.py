"""What `resume` finds in the directory of a stopped run: checks of files, options and data."""

import contextlib
import dataclasses
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
from kill import content, same

from jaxfl.cli import main
from jaxfl.core.errors import InputError, RunWarning
from jaxfl.experiment import Config, compare, execute, gather, load_config, resolve, resume
from jaxfl.experiment.config.composite import option
from jaxfl.experiment.session.checkpoints import find_checkpoint
from jaxfl.experiment.store import files, locks

STOPS = Config(
    algorithm="fedavg",
    dataset="mine",
    partition="iid",
    model="linear",
    rounds=5,
    local_steps=1,
    batch_size=4,
    clients=3,
    eval_every=2,
    checkpoint_every=1,
    keep_checkpoints=3,
    devices=1,
    test="own",
)


def write_data(folder, factor=1.0):
    rng = np.random.default_rng(0)
    x = factor * rng.normal(size=(60, 4)).astype(np.float32)
    np.savez(folder / "mine.npz", x_train=x, y_train=np.arange(60) % 3)


@contextlib.contextmanager
def stopping(lines):
    """A function that follows a run and interrupts it at once after so many lines."""
    seen = []

    def follow(config, line):
        seen.extend([] if line is None else [line])
        if len(seen) == lines:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        yield follow


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A whole run, and the same run stopped after the checkpoint of round 3."""
    folder = tmp_path_factory.mktemp("runs")
    write_data(folder)
    config = dataclasses.replace(STOPS, data_dir=str(folder))
    execute(config, folder / "whole")
    with stopping(2) as follow:
        execute(config, folder / "stopped", follow=follow)
    assert [path.name for path in files.checkpoints(folder / "stopped")] == [
        "000001",
        "000002",
        "000003",
    ]
    return folder


@pytest.fixture
def stopped(runs, tmp_path):
    shutil.copytree(runs / "stopped", tmp_path / "x")
    return tmp_path / "x"


@pytest.fixture(scope="module")
def config(runs):
    """The config of the stopped run, as it was resolved."""
    return load_config(runs / "stopped/config.json")


@pytest.fixture(scope="module")
def digests(config):
    """Those of what the stopped run reads."""
    return {"data": [gather(resolve(config)).digest], "files": {}}


def edit(directory, **changes):
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps(config | changes))


CHANGES = {
    "lr": 0.5,
    "seed": 1,
    "partition": "dirichlet",
    "batch_size": 5,
    "local_steps": 2,
    "attack": "gauss",
    "eval_on": "participants",
    "eval_every": 1,
    "participation": 0.5,
    "momentum": 0.0,
    "clients": 4,
    "val": 0.3,
    "model": "mlp",
    "checkpoint_every": 2,
    "clip": 1.0,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_option_is_named_and_refused(name, runs, config, digests):
    changed = dataclasses.replace(config, **{name: CHANGES[name]})
    was = f"{option(name)} was {getattr(config, name)} and is {CHANGES[name]}"
    with pytest.raises(InputError, match=re.escape(was)):
        find_checkpoint(runs / "stopped", changed, digests)


@pytest.mark.slow
def test_a_changed_config_is_one_line_on_the_command_line(stopped, capsys):
    edit(stopped, lr=0.5, partition="dirichlet")
    assert main(["resume", str(stopped)]) == 2
    # Warnings of the data may stand before it.
    error = capsys.readouterr().err.splitlines()[-1]
    assert "--lr was 0.01 and is 0.5; --partition was iid and is dirichlet" in error


@pytest.mark.slow
def test_another_algorithm_and_other_hyper_parameters_are_named(runs, config, digests):
    changed = dataclasses.replace(config, algorithm="fedprox", hyper={"mu": 0.5})
    with pytest.raises(
        InputError,
        match=r"algorithm was fedavg and is fedprox; hyper-parameter mu was not given and is 0.5",
    ):
        find_checkpoint(runs / "stopped", changed, digests)


@pytest.mark.parametrize("place", ["checkpoints/000003", "inputs.json"])
def test_changed_data_are_refused(place, stopped, tmp_path):
    write_data(tmp_path, factor=1.0001)
    edit(stopped, data_dir=str(tmp_path))
    if place == "inputs.json":
        shutil.rmtree(stopped / "checkpoints")
    with pytest.raises(InputError, match=f"examples of the clients have changed since .*{place}"):
        resume(stopped)


def test_data_may_move_and_devices_and_chunks_may_change(runs, stopped, config, digests, tmp_path):
    write_data(tmp_path)
    moved = dataclasses.replace(
        config, data_dir=str(tmp_path), chunk=1, keep_checkpoints=1, devices=2
    )
    assert [gather(resolve(moved)).digest] == digests["data"]
    assert find_checkpoint(stopped, moved, digests).name == "000003"


@pytest.mark.slow
def test_rounds_may_be_added(runs, stopped, tmp_path):
    edit(stopped, rounds=8)
    longer = dataclasses.replace(STOPS, data_dir=str(runs), rounds=8)
    execute(longer, tmp_path / "longer")
    resume(stopped)
    assert same(content(stopped), content(tmp_path / "longer"))


def test_rounds_may_not_be_taken_back(runs, config, digests):
    longer = dataclasses.replace(config, rounds=8)
    assert find_checkpoint(runs / "stopped", longer, digests).name == "000003"
    with pytest.raises(InputError, match="--rounds is 2 and 3 are done"):
        find_checkpoint(runs / "stopped", dataclasses.replace(config, rounds=2), digests)


def flip(file):
    """Changes one bit in the middle of a file."""
    held = bytearray(file.read_bytes())
    held[len(held) // 2] ^= 1
    file.write_bytes(held)


def of_another_checkpoint(name):
    def replace(path):
        other = path.parent / "000001" / name
        if other.is_dir():
            shutil.rmtree(path / name)
            shutil.copytree(other, path / name)
        else:
            shutil.copy(other, path / name)

    return replace


def newest_piece(path):
    """What a run has kept of the rounds before its newest checkpoint."""
    return files.pieces(path.parent.parent / files.ROUNDS)[-1]


def largest(path):
    return max((p for p in path.rglob("*") if p.is_file()), key=lambda p: p.stat().st_size)


DAMAGE = {
    "a bit of the state": lambda path: flip(largest(path / "state")),
    "a bit of the history": lambda path: flip(path / "history.npz"),
    "half of the history": lambda path: os.truncate(path / "history.npz", 99),
    "a bit of its rounds": lambda path: flip(newest_piece(path)),
    "not its rounds": lambda path: newest_piece(path).unlink(),
    "a bit of the manifest": lambda path: flip(path / "manifest.json"),
    "no manifest": lambda path: (path / "manifest.json").unlink(),
    "no history": lambda path: (path / "history.npz").unlink(),
    "another state": of_another_checkpoint("state"),
    "another history": of_another_checkpoint("history.npz"),
    "another manifest": of_another_checkpoint("manifest.json"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_checkpoint_is_skipped_for_the_one_before(name, stopped, config, digests):
    DAMAGE[name](files.checkpoints(stopped)[-1])
    with pytest.warns(RunWarning, match=r"000003 cannot be used \(.*\): the run goes on from .*02"):
        assert find_checkpoint(stopped, config, digests).name == "000002"


def test_a_run_goes_on_from_the_checkpoint_before_to_the_same_bits(runs, stopped, capsys):
    flip(stopped / "checkpoints/000003/history.npz")
    assert main(["resume", str(stopped)]) == 0
    said = capsys.readouterr().err
    assert said.startswith("jaxfl: ")
    assert "history.npz is damaged or of another checkpoint" in said
    assert said.count("\n") == 1
    assert same(content(stopped), content(runs / "whole"))


@pytest.mark.slow
def test_a_crash_between_a_piece_of_the_rounds_and_its_checkpoint_costs_no_bit(runs, stopped):
    """Each piece is written before the checkpoint that names it. Half of the next one is there."""
    shutil.rmtree(stopped / "checkpoints/000003")
    (stopped / "checkpoints/.part").mkdir()
    (stopped / "rounds/.000004.npz.part").write_bytes(b"half")
    resume(stopped)
    assert same(content(stopped), content(runs / "whole"))
    assert {path.name for path in (stopped / "rounds").iterdir()} == {
        f"{number:06}.npz" for number in range(1, 6)
    }


def test_a_damaged_piece_of_the_rounds_is_no_good_for_any_checkpoint_after_it(
    stopped, config, digests
):
    flip(files.pieces(stopped / files.ROUNDS)[0])
    with pytest.raises(InputError, match=r"a file of .*rounds is damaged, missing or of another"):
        find_checkpoint(stopped, config, digests)


def test_without_a_good_checkpoint_nothing_is_resumed(stopped, config, digests):
    for path in files.checkpoints(stopped):
        flip(path / "history.npz")
    with pytest.raises(InputError, match=r"000003 cannot be used .*; .*000001 .*: remove .*to beg"):
        find_checkpoint(stopped, config, digests)
    shutil.rmtree(stopped / "checkpoints")
    assert find_checkpoint(stopped, config, digests) is None
    (stopped / "inputs.json").unlink()
    with pytest.raises(InputError, match=r"does not say what was read \(No such file or directory"):
        find_checkpoint(stopped, config, digests)


def test_checkpoints_without_a_manifest_are_refused(stopped, config, digests):
    for path in files.checkpoints(stopped):
        (path / "manifest.json").unlink()
    with pytest.raises(InputError, match=r"no manifest.json"):
        find_checkpoint(stopped, config, digests)


def test_a_manifest_has_the_digest_of_each_file(runs):
    folder = files.checkpoints(runs / "whole")[-1]
    held = json.loads((folder / "manifest.json").read_text())["files"]
    history = (folder / "history.npz").read_bytes()
    assert held["history.npz"] == hashlib.sha256(history).hexdigest()
    assert sum(name.startswith("state/") for name in held) >= 2


# Two processes and one directory.


@contextlib.contextmanager
def another_process(directory):
    """A process that holds the lock of a directory."""
    code = (
        "import sys, time; from pathlib import Path; from jaxfl.experiment.store import locks\n"
        "with locks.locked(Path(sys.argv[1])): print('held', flush=True); time.sleep(60)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(directory)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout.readline() == "held\n"
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.slow
def test_two_processes_do_not_share_a_directory(runs, stopped, capsys):
    before = {path: path.stat().st_mtime_ns for path in stopped.rglob("*")}
    short = ["--data-dir", str(runs), "--dataset", "mine", "--test", "own", "--partition", "iid"]
    run = ["run", "fedavg", *short, "--rounds", "1", "--out", str(stopped), "--overwrite"]
    with another_process(stopped):
        for command in (["resume", str(stopped)], run):
            assert main(command) == 2
            said = capsys.readouterr().err
            assert f"another process writes the run in {stopped}: wait for its end" in said
            assert said.count("\n") == 1
    now = {path: path.stat().st_mtime_ns for path in stopped.rglob("*")}
    assert {p: t for p, t in now.items() if p in before and p != stopped} == {
        p: t for p, t in before.items() if p != stopped
    }
    # The process was killed: the lock is free, though its file is still there.
    assert (stopped / files.LOCK).exists()
    resume(stopped)
    assert not (stopped / files.LOCK).exists()


@pytest.mark.slow
def test_a_comparison_locks_its_directory_and_those_of_its_runs(runs, tmp_path):
    config = dataclasses.replace(STOPS, data_dir=str(runs), rounds=1)
    seen = []

    def follow(_, line):
        if line is not None:
            for directory in (tmp_path / "x", tmp_path / "x/local"):
                with (
                    pytest.raises(InputError, match="another process writes"),
                    locks.locked(directory),
                ):
                    pass
            seen.append(line)

    compare([dataclasses.replace(config, algorithm="local")], tmp_path / "x", follow=follow)
    assert len(seen) == 1
    assert not list(tmp_path.rglob(".lock"))


# What vanishes during a run, and runs without a score.


@pytest.mark.slow
def test_a_run_is_locked_while_it_writes_and_what_vanishes_is_named_at_its_end(runs, tmp_path):
    config = dataclasses.replace(STOPS, data_dir=str(runs), rounds=4)
    out = tmp_path / "x"

    def follow(_, line):
        if line is not None and line["round"] == 4:
            with pytest.raises(InputError, match="another process writes"):
                execute(config, out, overwrite=True)
            shutil.rmtree(out / "checkpoints")
            (out / "metrics.jsonl").unlink()
            (out / "config.json").unlink()

    gone = "config.json, checkpoints/000002, checkpoints/000003, metrics.jsonl in .*"
    with pytest.raises(InputError, match=rf"{gone} vanished or changed during the run"):
        execute(config, out, follow=follow)
    assert (out / "summary.json").exists()
    rows = (out / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(row)["round"] for row in rows] == [2, 4]
    assert not list(out.glob(".*"))


@pytest.mark.slow
def test_a_run_in_which_nobody_is_scored_says_so(runs, tmp_path, capsys):
    options = [
        "--dataset",
        "mine",
        "--data-dir",
        str(runs),
        "--test",
        "own",
        "--test-fraction",
        "0",
    ]
    options += ["--rounds", "1", "--local-steps", "1", "--partition", "iid", "--clients", "3"]
    assert main(["run", "fedavg", *options, "--out", str(tmp_path / "x")]) == 0
    said = capsys.readouterr().err
    assert "has a score" in said
    assert said.count("\n") == 1
