"""Several numbers to predict of each example, from a file to predictions of new inputs."""

import numpy as np
import pytest
from sklearn.metrics import mean_absolute_error, mean_squared_error, r2_score

import jaxfl
from jaxfl.cli import main
from jaxfl.core.errors import InputError
from jaxfl.data.describe import describe_partition

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 5)).astype(np.float32)
Y = (X @ RNG.normal(size=(5, 6)) + 0.1 * RNG.normal(size=(120, 6))).astype(np.float32)
OWNERS = np.arange(120) // 40


def write(path, target):
    np.savez(path, x_train=X, y_train=Y.reshape(120, *target), owners=OWNERS)


@pytest.mark.slow(seconds=15)
@pytest.mark.parametrize("target", [(6,), (3, 2)])
def test_a_run_predicts_and_scores_all_numbers(tmp_path, monkeypatch, capsys, target):
    monkeypatch.chdir(tmp_path)
    write("forces.npz", target)
    options = ["--dataset", "forces", "--data-dir", ".", "--rounds", "30", "--lr", "0.05"]
    options += ["--metric", "rmse", "mae", "r2", "--devices", "1", "--local-steps", "10"]
    assert main(["run", "fedavg", *options, "--out", "run"]) == 0
    run = jaxfl.load("run")
    for client in range(3):
        x, y, weight = run.test(client)
        predictions = run.predict(client, x)
        assert predictions.shape == y.shape == (8, *target)
        assert weight.tolist() == [1] * 8
        flat = y.reshape(8, -1), predictions.reshape(8, -1)
        error = -run.clients["deployed_test"][-1][client]
        np.testing.assert_allclose(error, mean_squared_error(*flat) ** 0.5, rtol=1e-4)
        error = -run.clients["deployed_test_mae"][-1][client]
        np.testing.assert_allclose(error, mean_absolute_error(*flat), rtol=1e-4)
        score = run.clients["deployed_test_r2"][-1][client]
        np.testing.assert_allclose(score, r2_score(*flat), rtol=1e-3)
        assert score > 0.9
    capsys.readouterr()
    np.savez("new.npz", x=x, y=y)
    assert main(["predict", "run", "--client", "2", "--input", "new.npz"]) == 0
    head, *rows = capsys.readouterr().out.split()[: 1 + 8]
    assert head == ",".join(["example", *(f"prediction_{k}" for k in range(6))])
    first = [float(cell) for cell in rows[0].split(",")[1:]]
    np.testing.assert_allclose(first, predictions[0].ravel(), rtol=1e-5)
    with pytest.raises(InputError, match="have no probabilities"):
        run.predict(0, x, proba=True)


def test_a_partition_of_several_numbers_is_described_and_labels_of_it_are_refused():
    source = jaxfl.data.from_arrays(X, Y)
    assert (source.classes, source.outputs) == (0, 6)
    parts = jaxfl.data.iid(source.y_train, clients=4, seed=0)
    assert describe_partition(source, parts)["targets"].startswith("6 numbers, ")
    federation = jaxfl.data.federate(source, parts, test="own")
    rows = np.asarray(federation.train.y.padded())
    assert rows.shape == (4, 18, 6)
    known = {tuple(row) for row in Y.tolist()}
    assert {tuple(row) for row in rows.reshape(-1, 6).tolist()} <= known
    with pytest.raises(InputError, match="targets"):
        jaxfl.data.dirichlet(source.y_train, clients=4, seed=0)


@pytest.mark.parametrize(
    ("y", "y_test", "message"),
    [
        (Y > 0, Y, "type float32"),
        (Y[:, :0], None, r"shape \(120, 0\)"),
        (Y[:7], None, r"shape \(7, 6\)"),
        (np.array(1.0), None, r"shape \(\)"),
        (Y, Y[:, :2], r"shape \(6,\) in train and \(2,\) in test"),
        (np.where(Y > 2, np.nan, Y), None, "NaN or infinite"),
    ],
)
def test_targets_that_are_none_are_refused(y, y_test, message):
    with pytest.raises(InputError, match=message):
        jaxfl.data.from_arrays(X, y, None if y_test is None else X, y_test)
