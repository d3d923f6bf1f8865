"""Finished runs are read again: scores, weights, models, predictions."""

import dataclasses
import json

import jax
import numpy as np
import pytest

import jaxfl
from jaxfl.cli import main
from jaxfl.core.errors import InputError, RunWarning
from jaxfl.experiment import Config, execute, gather, resolve
from jaxfl.experiment.reading.given_inputs import check_inputs
from jaxfl.experiment.session import models as kept
from jaxfl.experiment.session.source_record import inputs_of

SHORT = Config(
    algorithm="fedamp",
    clients=4,
    classes_per_client=5,
    max_examples=100,
    lr=0.3,  # so high that the last models are not the best
    rounds=3,
    local_steps=5,
    batch_size=8,
)


@pytest.fixture(scope="module")
def short(tmp_path_factory):
    out = tmp_path_factory.mktemp("short") / "run"
    execute(SHORT, out)
    return out


def accuracies(run, part, which="last", seed=None):
    """The accuracy of each client's predictions on its own examples of a part, by NumPy."""
    data = getattr(gather(resolve(run.config)).federation, part)
    if seed is not None:
        data = jax.tree.map(lambda x: x[seed - run.config.seed], data)
    found = []
    for client in range(run.config.clients):
        shared = data.x.ndim == 4  # a pool of examples with weights for each client
        x, y = (data.x, data.y) if shared else (data.x[client], data.y[client])
        weights = (data.weights if shared else data.mask)[client]
        right = run.predict(client, np.asarray(x), which=which, seed=seed) == np.asarray(y)
        found.append(np.average(right, weights=np.asarray(weights, float)))
    return found


@pytest.mark.slow
def test_the_last_models_predict_what_the_run_scored(short):
    run = jaxfl.load(short)
    np.testing.assert_allclose(accuracies(run, "test"), run.clients["deployed_test"][-1], atol=1e-6)


@pytest.mark.slow(seconds=7)
def test_the_best_models_have_the_best_validation_score_of_each_client(short):
    run = jaxfl.load(short)
    best = run.clients["deployed_val"].max(axis=0)
    np.testing.assert_allclose(accuracies(run, "val", "best"), best, atol=1e-6)
    assert (best > run.clients["deployed_val"][-1]).any()


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["knn_per", "fedrod"])
def test_methods_that_predict_in_their_own_way_do_so_again(algorithm, tmp_path):
    """kNN-Per looks at the examples of the client, FedRoD adds two heads."""
    execute(dataclasses.replace(SHORT, algorithm=algorithm, rounds=1), tmp_path / "run")
    run = jaxfl.load(tmp_path / "run")
    np.testing.assert_allclose(accuracies(run, "test"), run.clients["deployed_test"][-1], atol=1e-6)


@pytest.mark.slow(seconds=9)
def test_several_seeds_have_models_each(tmp_path):
    execute(dataclasses.replace(SHORT, seed=3, seeds=2, rounds=1), tmp_path / "run")
    run = jaxfl.load(tmp_path / "run")
    for place, seed in enumerate((3, 4)):
        np.testing.assert_allclose(
            accuracies(run, "test", seed=seed), run.clients["deployed_test"][place, -1], atol=1e-6
        )
    with pytest.raises(InputError, match="seed is 5: expected one of 3, 4"):
        run.predict(0, np.zeros((1, 8, 8, 1)), seed=5)


@pytest.mark.slow
def test_numbers_as_targets_are_predicted_as_numbers(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(80, 3)).astype(np.float32)
    arrays = {"x_train": x, "y_train": x.sum(axis=1), "x_test": x[:20], "y_test": x[:20, 0]}
    np.savez(tmp_path / "sums.npz", **arrays)
    config = Config(dataset="sums", data_dir=str(tmp_path), partition="iid", clients=4, rounds=1)
    execute(config, tmp_path / "run")
    (tmp_path / "sums.npz").unlink()  # predictions need no data
    found = jaxfl.load(tmp_path / "run").predict(1, x[:7].astype(np.float64))
    assert found.shape == (7,)
    assert np.issubdtype(found.dtype, np.floating)


@pytest.mark.slow
def test_metrics_are_arrays_of_the_evaluations(short):
    run = jaxfl.load(short)
    lines = [json.loads(line) for line in (short / "metrics.jsonl").read_text().splitlines()]
    assert run.metrics["round"].tolist() == [1, 2, 3]
    assert run.metrics["deployed_worst10"].tolist() == [row["deployed"]["worst10"] for row in lines]
    assert run.graph["weights"].shape == (3, 4, 4)
    assert run.config == dataclasses.replace(run.config, algorithm="fedamp")


@pytest.mark.slow
def test_a_run_without_models_says_how_to_get_them(tmp_path):
    execute(dataclasses.replace(SHORT, rounds=1, keep_models="none"), tmp_path / "run")
    assert not (tmp_path / "run/models.npz").exists()
    message = r"holds no models\.npz: run again without --keep models=none"
    with pytest.raises(InputError, match=message):
        jaxfl.load(tmp_path / "run").predict(0, np.zeros((1, 8, 8, 1)))


@pytest.mark.slow
def test_a_large_file_of_models_is_told_before_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr(kept, "LARGE", 1000)
    with pytest.warns(RunWarning, match=r"models\.npz will take 0\.0 GB: --keep models=none"):
        execute(dataclasses.replace(SHORT, rounds=1, algorithm="fedavg"), tmp_path / "run")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("client", "x", "message"),
    [
        (4, np.zeros((1, 8, 8, 1)), "client is 4: expected an id from 0 to 3"),
        (0, np.zeros((1, 64)), r"inputs have shape \(1, 64\): expected \(B, 8, 8, 1\)"),
        (0, np.full((1, 8, 8, 1), 0.5), "do not fit into uint8: give them as in the data of the"),
        (0, np.full((1, 8, 8, 1), 300), "do not fit into uint8"),
        (0, np.array([[[["a"]] * 8] * 8]), "the inputs are <U1: expected uint8"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(short, client, x, message):
    with pytest.raises(InputError, match=message):
        jaxfl.load(short).predict(client, x)


@pytest.mark.parametrize("ids", [[[3, 0]], [[0, 6]], [[0, 0], [0, -1]]])
def test_ids_outside_the_vocabulary_are_refused(ids):
    pairs = np.array([[0, 5], [2, 1], [1, 0]])
    inputs = inputs_of(jaxfl.data.from_arrays(pairs, np.ones(3), vocabulary=(3, 6)))
    np.testing.assert_array_equal(check_inputs(pairs, inputs), pairs)
    with pytest.raises(InputError, match=r"ids outside 0 to \[2 5\]: give the ids of the run's"):
        check_inputs(np.array(ids), inputs)


def test_a_directory_without_a_finished_run_is_refused(short, tmp_path):
    with pytest.raises(InputError, match=f"holds no finished run .*: load {short.name} in it"):
        jaxfl.load(short.parent)
    with pytest.raises(InputError, match="give the directory of a run"):
        jaxfl.load(tmp_path)


def test_a_damaged_file_of_models_is_refused(short, tmp_path):
    for name in ("config.json", "summary.json"):
        (tmp_path / name).write_bytes((short / name).read_bytes())
    (tmp_path / "models.npz").write_bytes((short / "models.npz").read_bytes()[:2000])
    with pytest.raises(InputError, match=r"cannot read .*models.npz .*: run again"):
        _ = jaxfl.load(tmp_path).models


def test_the_command_line_predicts(short, tmp_path, capsys):
    run = jaxfl.load(short)
    x = np.random.default_rng(0).integers(0, 17, (5, 8, 8, 1))
    expected = run.predict(2, x)
    np.savez(tmp_path / "new.npz", x=x, y=expected)
    arguments = ["predict", str(short), "--client", "2", "--input", str(tmp_path / "new.npz")]
    assert main(arguments) == 0
    assert capsys.readouterr().out.split() == [*map(str, expected), "accuracy:", "1.0000"]
    out = tmp_path / "predictions.csv"
    assert main([*arguments, "--out", str(out)]) == 0
    rows = [f"{i},{label}" for i, label in enumerate(expected)]
    assert out.read_text().splitlines() == ["example,prediction", *rows]
    assert main([*arguments, "--out", str(out)]) == 2
    assert "exists: choose another --out" in capsys.readouterr().err
    np.savez(tmp_path / "new.npz", x=x, y=expected[:3])
    assert main([*arguments, "--out", str(tmp_path / "none.csv")]) == 2
    assert "is not numbers of shape (5,): give a target for each input" in capsys.readouterr().err
    for held, message in (
        ({"x": x, "y": np.array(list("abcde"))}, "is not numbers of shape (5,)"),
        ({"x": x[:0]}, "the inputs hold no example: give one or more"),
    ):
        np.savez(tmp_path / "new.npz", **held)
        assert main([*arguments, "--out", str(tmp_path / "none.csv")]) == 2
        assert message in capsys.readouterr().err
    assert not (tmp_path / "none.csv").exists()
