"""The models that `--keep models=ROUNDS` keeps: which, their bits, and what crashes leave."""

import dataclasses
import os

import jax
import numpy as np
import pytest
from kill import content, same

import jaxfl
from jaxfl.cli import main
from jaxfl.core.errors import InputError, RunWarning
from jaxfl.experiment import Config, execute, resume
from jaxfl.experiment.session import models as kept
from jaxfl.experiment.store import files

EVERY = Config(
    algorithm="fedper",
    dataset="mine",
    partition="iid",
    model="linear",
    clients=3,
    rounds=7,
    local_steps=3,
    batch_size=4,
    test="own",
    eval_every=5,
    checkpoint_every=3,
    keep_models=2,
    score_after="none",
    devices=1,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("snapshots")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(90, 4)).astype(np.float32)
    np.savez(folder / "mine.npz", x_train=x, y_train=np.arange(90) % 3)
    np.savez(folder / "new.npz", x=x[:9])
    execute(config_in(folder), folder / "whole")
    return folder


def config_in(folder, **changes):
    return dataclasses.replace(EVERY, data_dir=str(folder), **changes)


def bits(models):
    return [leaf.tobytes() for leaf in jax.tree.leaves(models)]


@pytest.mark.slow(seconds=8)
def test_the_models_after_a_round_are_those_of_a_run_that_ends_there(folder, tmp_path):
    run = jaxfl.load(folder / "whole")
    assert run.model_rounds == [2, 4, 6]
    for number in (2, 4):
        out = tmp_path / str(number)
        execute(config_in(folder, rounds=number, keep_models="last"), out)
        assert not (out / "snapshots").exists()
        assert bits(run.models_after(number)) == bits(jaxfl.load(out).models)
    assert bits(run.models_after(2)) != bits(run.models_after(4))


@pytest.mark.slow(seconds=4)
def test_no_other_number_of_the_run_changes(folder, tmp_path):
    execute(config_in(folder, keep_models="last"), tmp_path / "x")
    assert same(content(tmp_path / "x"), content(folder / "whole"))


@pytest.mark.slow
def test_a_client_predicts_with_the_model_of_a_round(folder, capsys):
    run = jaxfl.load(folder / "whole")
    x = np.load(folder / "new.npz")["x"]
    layer = run.models_after(4)["params"]["Dense_0"]
    by_hand = x @ layer["kernel"][1] + layer["bias"][1]
    np.testing.assert_allclose(run.scores(1, x, which=4), by_hand, rtol=1e-4, atol=1e-5)
    ask = ["predict", str(folder / "whole"), "--client", "1", "--input", str(folder / "new.npz")]
    assert main([*ask, "--which", "4"]) == 0
    labels = [int(line) for line in capsys.readouterr().out.split()]
    assert labels == by_hand.argmax(axis=1).tolist()
    assert main([*ask, "--which", "3"]) == 2
    assert "no models of round 3 in snapshots, and those of 2, 4, 6" in capsys.readouterr().err


@pytest.mark.slow(seconds=6)
def test_a_killed_run_keeps_the_same_models(folder, tmp_path, monkeypatch):
    """It ends while it writes those of round 6; the checkpoint is of round 3."""
    write = files.os.replace

    def crash(draft, file):
        if file.name == "000006.npz" and file.parent.name == "snapshots":
            raise KeyboardInterrupt
        write(draft, file)

    monkeypatch.setattr(files.os, "replace", crash)
    with pytest.raises(KeyboardInterrupt):
        execute(config_in(folder), tmp_path / "x")
    assert sorted(os.listdir(tmp_path / "x/snapshots")) == ["000002.npz", "000004.npz"]
    monkeypatch.undo()
    (tmp_path / "x/snapshots/000004.npz").write_bytes(b"of a round that is to come")
    resume(tmp_path / "x")
    run, whole = jaxfl.load(tmp_path / "x"), jaxfl.load(folder / "whole")
    assert run.model_rounds == [2, 4, 6]
    for number in run.model_rounds:
        assert bits(run.models_after(number)) == bits(whole.models_after(number))


@pytest.mark.slow
def test_a_snapshot_that_vanished_is_named(folder, tmp_path):
    def follow(config, line):
        if line is not None and line["round"] == 5:
            (tmp_path / "x/snapshots/000002.npz").unlink()

    with pytest.raises(InputError, match=r"^snapshots/000002\.npz in .* vanished"):
        execute(config_in(folder), tmp_path / "x", follow=follow)


@pytest.mark.slow(seconds=5)
def test_overwriting_a_run_removes_them_and_a_folder_of_others_is_left(folder, tmp_path):
    execute(config_in(folder, rounds=2), tmp_path / "x")
    execute(config_in(folder, rounds=1, keep_models="last"), tmp_path / "x", overwrite=True)
    assert not (tmp_path / "x/snapshots").exists()
    (tmp_path / "y/snapshots").mkdir(parents=True)
    (tmp_path / "y/snapshots/000002.npz").write_text("mine")
    with pytest.raises(InputError, match="snapshots is not of a run"):
        execute(config_in(folder), tmp_path / "y")
    assert (tmp_path / "y/snapshots/000002.npz").read_text() == "mine"


@pytest.mark.slow
def test_their_size_is_told_before_the_run(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(kept, "LARGE", 500)  # 3 clients of 15 numbers take 180 bytes
    with pytest.warns(RunWarning, match=r"snapshots will take 0\.0 GB, 1\.8e-07 GB for each of 3"):
        execute(config_in(folder), tmp_path / "x")


@pytest.mark.slow(seconds=4)
def test_a_run_begins_from_the_models_of_a_round(folder, tmp_path):
    file = folder / "whole/snapshots/000004.npz"
    execute(config_in(folder, init=str(file), lr=0.0, rounds=1), tmp_path / "x")
    before = jaxfl.load(folder / "whole").models_after(4)["params"]["Dense_0"]
    after = jaxfl.load(tmp_path / "x").models["params"]["Dense_0"]
    for name, leaf in before.items():
        np.testing.assert_allclose(after[name][0], leaf.mean(axis=0), rtol=1e-6, atol=1e-7)
