"""Checkpoints, interruptions, and what a run that went wrong leaves behind."""

import dataclasses
import json
import os
import resource
import shutil
import signal
from types import SimpleNamespace

import numpy as np
import pytest
from kill import content, interrupt_after, same, torture

from jaxfl.cli import main
from jaxfl.core.errors import InputError
from jaxfl.experiment import Config, execute, resume
from jaxfl.experiment.store import files
from jaxfl.simulation import checkpoint

SHORT = Config(
    algorithm="pfedgraph",
    rounds=7,
    local_steps=2,
    model="linear",
    clients=6,
    partition="iid",
    participation=0.5,
    seeds=2,
    eval_every=3,
    checkpoint_every=2,
    devices=1,
)


# Tests of one run are in one group, so that one process makes the run.
RUNS = [
    pytest.param("ditto", marks=[pytest.mark.xdist_group("ditto"), pytest.mark.slow]),
    pytest.param("fedyogi", marks=pytest.mark.xdist_group("fedyogi")),
]


@pytest.fixture(scope="module", params=RUNS)
def whole(request, tmp_path_factory):
    """An undisturbed run of a method with client models, and of one with a server's optimiser."""
    out = tmp_path_factory.mktemp("whole") / request.param
    config = dataclasses.replace(SHORT, algorithm=request.param)
    execute(config, out)
    return config, out


@pytest.mark.slow
def test_an_interrupted_run_resumes_to_the_same_bits(whole, tmp_path, capsys):
    config, undisturbed = whole
    number = signal.SIGTERM if config.algorithm == "ditto" else signal.SIGINT
    with pytest.raises(KeyboardInterrupt, match=r"after round 3: jaxfl resume .* goes on"):
        execute(config, tmp_path / "x", follow=interrupt_after(1, number))
    assert [path.name for path in files.checkpoints(tmp_path / "x")] == ["000002", "000003"]
    assert [
        json.loads(line)["round"]
        for line in (tmp_path / "x/metrics.jsonl").read_text().splitlines()
    ] == [3]
    resume(tmp_path / "x")
    assert main(["resume", str(tmp_path / "x")]) == 2
    assert "is finished: give --rounds, more than 7, and it goes on" in capsys.readouterr().err
    assert same(content(tmp_path / "x"), content(undisturbed))
    assert [path.name for path in files.checkpoints(tmp_path / "x")] == ["000006", "000007"]
    summaries = [
        json.loads((out / "summary.json").read_text()) for out in (tmp_path / "x", undisturbed)
    ]
    for summary in summaries:
        del summary["seconds"], summary["compile_seconds"]
    assert summaries[0] == summaries[1]


@pytest.mark.slow
def test_a_finished_run_goes_on_to_the_same_bits(whole, tmp_path, capsys):
    config, undisturbed = whole
    execute(dataclasses.replace(config, rounds=6), tmp_path / "x")
    for rounds in ("6", "5"):
        assert main(["resume", str(tmp_path / "x"), "--rounds", rounds]) == 2
        assert "has 6: give more" in capsys.readouterr().err
    resume(tmp_path / "x", rounds=7)
    assert same(content(tmp_path / "x"), content(undisturbed))
    assert json.loads((tmp_path / "x/config.json").read_text())["rounds"] == 7


@pytest.mark.slow
def test_a_finished_run_without_its_last_checkpoint_does_not_go_on(whole, tmp_path):
    _, undisturbed = whole
    shutil.copytree(undisturbed, tmp_path / "x")
    shutil.rmtree(tmp_path / "x/checkpoints/000007")
    with pytest.raises(InputError, match="no checkpoint of its last round: only a run with"):
        resume(tmp_path / "x", rounds=9)
    assert (tmp_path / "x/summary.json").exists()


@pytest.mark.slow
def test_checkpoints_hold_the_models_that_did_best_on_validation_data(whole):
    _, out = whole
    with np.load(out / "clients.npz", allow_pickle=False) as scores:
        best = scores["deployed_val"].max(axis=1)  # [S, C]
    state = content(out)
    held = [x for x in state.values() if x.shape == best.shape and x.dtype == np.float32]
    assert any(np.array_equal(x, best) for x in held)


@pytest.mark.slow
def test_a_run_without_a_checkpoint_is_begun_anew_and_devices_may_change(tmp_path):
    out, config = tmp_path / "x", dataclasses.replace(SHORT, checkpoint_every=None)
    execute(config, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        execute(config, out, follow=interrupt_after(1))
    (only,) = files.checkpoints(out)  # without --keep checkpoints, too
    resume(out, devices=2)
    a, b = (
        np.load(path / "clients.npz", allow_pickle=False)["deployed_test"]
        for path in (out, tmp_path / "whole")
    )
    np.testing.assert_allclose(a, b, atol=0.02)  # accuracies of few examples
    for file in ("summary.json", "metrics.jsonl"):
        (out / file).unlink()
    files.shutil.rmtree(only)
    resume(out)
    assert (out / "metrics.jsonl").read_text().count("\n") == 3


@pytest.mark.slow
def test_a_run_that_ended_before_its_summary_is_resumed(tmp_path):
    """It is killed after its last checkpoint; scores after training need what a round trained."""
    options = {"participation": 1.0, "score_after": "trained"}
    config = dataclasses.replace(SHORT, rounds=2, seeds=1, **options)
    execute(config, tmp_path)
    expected = json.loads((tmp_path / "summary.json").read_text())
    (tmp_path / "summary.json").unlink()
    found = resume(tmp_path)
    assert (found["final"], found["batches"]) == (expected["final"], expected["batches"])


@pytest.mark.slow
def test_what_cannot_be_resumed_is_said(tmp_path, capsys):
    """What a stopped run may have become in the meantime: test_stopped.py."""
    assert main(["resume", str(tmp_path)]) == 2
    assert "holds no run to resume" in capsys.readouterr().err
    broken = tmp_path / "broken"
    simple = dataclasses.replace(SHORT, algorithm="local", seeds=1)
    with pytest.raises(KeyboardInterrupt):
        execute(simple, broken, follow=interrupt_after(1))
    config = json.loads((broken / "config.json").read_text())
    (broken / "config.json").write_text(json.dumps(config | {"clients": 5}))
    with pytest.raises(InputError, match=r"--clients was 6 and is 5.*: restore them, or run anew"):
        resume(broken)
    (broken / "config.json").write_text(json.dumps(config))
    archive = (files.checkpoints(broken)[-1] / "history.npz").read_bytes()
    for damage in (b"no archive", archive[: len(archive) // 2], b""):
        for path in files.checkpoints(broken):
            (path / "history.npz").write_bytes(damage)
        with pytest.raises(InputError, match=r"history.npz is damaged .*: remove .* to begin"):
            resume(broken)


@pytest.mark.slow
def test_a_second_interruption_is_at_once(tmp_path):
    def follow(config, line):
        if line is not None:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt) as interruption:
        execute(SHORT, tmp_path / "x", follow=follow)
    assert interruption.match("jaxfl resume .*x goes on")


@pytest.mark.slow(seconds=4)
@pytest.mark.filterwarnings("ignore:Error writing persistent compilation cache")
def test_a_full_disk_is_one_line_and_leaves_whole_lines(tmp_path):
    """The limit of the system on the size of a file stands for a full disk.

    It holds for JAX's cache of programs too, which warns and goes on.
    """
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def follow(config, line):
        if line is not None:
            resource.setrlimit(
                resource.RLIMIT_FSIZE,
                ((tmp_path / "x/metrics.jsonl").stat().st_size + 40, before[1]),
            )

    config = dataclasses.replace(SHORT, checkpoint_every=None, eval_every=2)
    try:
        with pytest.raises(
            InputError, match=r"cannot write .*metrics\.jsonl \(.*\): free or choose a place"
        ):
            execute(config, tmp_path / "x", follow=follow)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [
        json.loads(row)["round"] for row in (tmp_path / "x/metrics.jsonl").read_text().splitlines()
    ] == [2]
    assert not list((tmp_path / "x").glob(".*"))


@pytest.mark.slow
def test_a_disk_without_room_for_a_checkpoint_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint.shutil, "disk_usage", lambda path: SimpleNamespace(free=1000))
    with pytest.raises(InputError, match=r"cannot write .*checkpoints \(No space left on device\)"):
        execute(SHORT, tmp_path / "x")
    assert not files.checkpoints(tmp_path / "x")


@pytest.mark.slow(seconds=60)
def test_killed_runs_resume_to_the_same_bits(tmp_path):
    """Its server learns, so that its state has gradients and what they are about.

    Killed at moments drawn by chance, forty times: `python tests/kill.py`.
    """
    found = torture("pfedgat", tmp_path, 2, None, rounds=60)
    assert found["after a checkpoint"] == 2
    assert found["finished and equal"] == 1
