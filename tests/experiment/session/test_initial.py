"""Runs that begin from given weights: of a run, of a safetensors file, of an npz file."""

import dataclasses
import json
import struct

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from kill import content, same
from toys import opposite_groups, shallow

import jaxfl
from jaxfl.algorithms import ALGORITHMS
from jaxfl.cli import main
from jaxfl.core import tree
from jaxfl.core.errors import InputError
from jaxfl.core.facts import facts_of
from jaxfl.core.types import Cohort
from jaxfl.experiment import Config, build, execute, gather, resolve, resume
from jaxfl.experiment.session.initial_weights import read_model

SHORT = Config(
    algorithm="fedavg",
    dataset="mine",
    partition="iid",
    model="linear",
    clients=3,
    rounds=4,
    local_steps=3,
    batch_size=4,
    test="own",
    score_after="none",
    devices=1,
)
LINEAR = {"params/Dense_0/bias": (3,), "params/Dense_0/kernel": (4, 3)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("initial")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(90, 4)).astype(np.float32)
    np.savez(folder / "mine.npz", x_train=x, y_train=np.arange(90) % 3)
    execute(config_in(folder), folder / "before")
    return folder


def config_in(folder, **changes):
    return dataclasses.replace(SHORT, data_dir=str(folder), **changes)


def first_models(config):
    """What all clients of a run deploy before its first round, by path."""
    resolved = resolve(config)
    built = build(resolved, gather(resolved))
    federation = built.data.federation
    state = built.algorithm.init(jax.random.key(config.seed), federation.train)
    cohort = Cohort(jnp.arange(3), federation.train, federation.val)
    models = built.algorithm.models(state, cohort)
    return {tree.path(keys): x for keys, x in jax.tree_util.tree_leaves_with_path(models)}


def drawn(seed=0):
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in LINEAR.items()}


def write_safetensors(file, weights):
    header, data = {}, b""
    for name, one in weights.items():
        end = len(data) + one.nbytes
        header[name] = {"dtype": "F32", "shape": one.shape, "data_offsets": [len(data), end]}
        data += one.tobytes()
    text = json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(text)) + text + data)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["w.npz", "w.safetensors"])
def test_all_clients_begin_from_the_weights_of_a_file(name, folder, tmp_path):
    weights = drawn()
    if name == "w.npz":
        np.savez(tmp_path / name, **weights)
    else:
        write_safetensors(tmp_path / name, weights)
    for seed in (0, 1):
        models = first_models(config_in(folder, init=str(tmp_path / name), seed=seed))
        assert models.keys() == LINEAR.keys()
        for path, one in models.items():
            np.testing.assert_array_equal(one, np.broadcast_to(weights[path], one.shape))


@pytest.mark.slow
def test_a_run_begins_from_the_model_of_another_run(folder):
    """FedAvg's clients deploy one model, and the mean of equal models is this model."""
    last = np.load(folder / "before/models.npz")
    models = first_models(config_in(folder, init=str(folder / "before")))
    for path, one in models.items():
        np.testing.assert_array_equal(one, last[f"last/{path}"])


@pytest.mark.slow
def test_of_personal_models_it_is_the_mean(folder, tmp_path):
    execute(config_in(folder, algorithm="local"), tmp_path / "local")
    last = np.load(tmp_path / "local/models.npz")
    models = first_models(config_in(folder, init=str(tmp_path / "local")))
    for path, one in models.items():
        each = last[f"last/{path}"]
        assert np.ptp(each, axis=0).max() > 0
        np.testing.assert_allclose(one[0], each.mean(axis=0), rtol=1e-6, atol=1e-7)


@pytest.mark.slow
def test_it_scores_what_the_run_before_scored(folder, tmp_path):
    """With a rate of 0 nothing is learned: the scores are those with which the run before ended."""
    execute(config_in(folder, init=str(folder / "before"), lr=0.0, rounds=1), tmp_path / "x")
    before, after = (jaxfl.load(run).clients for run in (folder / "before", tmp_path / "x"))
    np.testing.assert_array_equal(after["deployed_test"][0], before["deployed_test"][-1])


@pytest.mark.slow(seconds=5)
def test_a_run_goes_on_to_the_same_bits_and_notices_another_file(folder, tmp_path):
    config = config_in(folder, init=str(tmp_path / "w.npz"), checkpoint_every=1)
    np.savez(tmp_path / "w.npz", **drawn())
    execute(config, tmp_path / "whole")
    lines = []

    def follow(config, line):
        lines.extend([] if line is None else [line])
        if len(lines) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        execute(config, tmp_path / "x", follow=follow)
    np.savez(tmp_path / "w.npz", **drawn(seed=1))
    with pytest.raises(InputError, match="what the file of --init holds has changed"):
        resume(tmp_path / "x")
    np.savez(tmp_path / "w.npz", **drawn())
    resume(tmp_path / "x")
    assert same(content(tmp_path / "x"), content(tmp_path / "whole"))


KERNEL = "params/Dense_0/kernel"
MISFITS = {
    "lacks": ({"params/Dense_0/bias": np.zeros(3)}, f"has no {KERNEL}, which the model has"),
    "shape": (
        drawn() | {KERNEL: np.zeros((4, 5))},
        rf"{KERNEL} has shape \(4, 5\), and in the model \(4, 3\)",
    ),
    "further": (drawn() | {"params/Dense_1/bias": np.zeros(3)}, "'params/Dense_1/bias'.*has not"),
    "nan": (drawn() | {KERNEL: np.full((4, 3), np.nan)}, f"{KERNEL} is not finite"),
    "huge": (drawn() | {KERNEL: np.full((4, 3), 1e300)}, f"{KERNEL} is not finite"),
    "empty": ({}, "has no params/Dense_0/bias, which the model has: it has nothing"),
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("name", MISFITS)
def test_weights_that_do_not_fit_are_refused_by_name(name, folder, tmp_path, capsys):
    weights, message = MISFITS[name]
    np.savez(tmp_path / "w.npz", **weights)
    like = {"params": {"Dense_0": {"bias": jnp.zeros(3), "kernel": jnp.zeros((4, 3))}}}
    with pytest.raises(InputError, match=message):
        read_model(tmp_path / "w.npz", like)


@pytest.mark.slow(seconds=5)
def test_what_is_no_file_of_weights_is_one_line(folder, tmp_path, capsys):
    (tmp_path / "w.safetensors").write_bytes(b"\xff" * 100)
    np.save(tmp_path / "one.npy", np.zeros(3, np.float32))
    (tmp_path / "text").write_text("weights")
    execute(config_in(folder, seeds=2, rounds=1), tmp_path / "two")
    cases = {
        "one.npy": "cannot be read (it is no npz file): give",
        "text": "cannot be read (it is no npz file): give",
        "w.safetensors": "cannot be read (its header would have",
        "nowhere.npz": "cannot be read (No such file",
        "two": "is of a run of several seeds",
        ".": "models.npz cannot be read (No such file",
    }
    options = ["--dataset", "mine", "--data-dir", str(folder), "--model", "linear"]
    options += ["--partition", "iid", "--clients", "3"]
    for name, message in cases.items():
        out = tmp_path / "out"
        command = ["run", "fedavg", *options, "--init", str(tmp_path / name), "--out", str(out)]
        assert main(command) == 2
        assert message in capsys.readouterr().err.splitlines()[-1]
        assert not out.exists()


@pytest.mark.slow
def test_a_method_that_draws_several_models_is_refused(folder):
    with pytest.raises(InputError, match="--init: ifca does not begin from one model"):
        first_models(config_in(folder, algorithm="ifca", init=str(folder / "before")))


@pytest.mark.long
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_fact_is_that_one_model_is_drawn_once(algorithm):
    """The problem is asked for one model, from which every part of the state begins."""
    task = shallow()
    keys = []

    def init(key):
        keys.append(key)
        return task.problem.init(key)

    once = task._replace(problem=task.problem._replace(init=init))
    factory = ALGORITHMS[algorithm]
    made = factory(once)
    data = jax.tree.map(jnp.asarray, opposite_groups())
    made.init(jax.random.key(0), data.train)
    concrete = [key for key in keys if not isinstance(key, jax.core.Tracer)]
    drawn_keys = {tuple(jax.random.key_data(key).tolist()) for key in concrete}
    several = any(type(key).__name__ == "BatchTracer" for key in keys) or len(drawn_keys) > 1
    assert keys
    assert facts_of(factory).takes_initial_model != several
