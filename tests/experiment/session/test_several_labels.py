"""Several labels of an example at once, from a file to predictions of new inputs."""

import numpy as np
import pytest
from sklearn import metrics as sklearn

import jaxfl
from jaxfl.cli import main
from jaxfl.core.errors import InputError
from jaxfl.data.describe import describe_each_client, describe_partition
from jaxfl.experiment import Config
from jaxfl.experiment.config import resolve
from jaxfl.experiment.session.build import build
from jaxfl.experiment.session.gather import gather

CLIENTS, N, LABELS = 3, 60, 3
RNG = np.random.default_rng(0)
X = RNG.normal(size=(CLIENTS * N, 4)).astype(np.float32)
Y = X @ RNG.normal(size=(4, LABELS)) > np.array([-0.5, 0.0, 1.0])
OWNERS = np.arange(CLIENTS * N) // N


def several():
    return jaxfl.data.from_arrays(X, Y, owners=OWNERS)


@pytest.mark.slow(seconds=15)
def test_a_run_trains_on_scores_and_predicts_several_labels(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = np.array(["red", "round", "sweet"])
    np.savez("fruit.npz", x_train=X, y_train=Y, owners=OWNERS, class_names=names)
    options = ["--dataset", "fruit", "--data-dir", ".", "--rounds", "5", "--lr", "0.2"]
    options += ["--metric", "accuracy", "f1", "log_loss", "auc", "--devices", "1"]
    options += ["--local-steps", "10", "--val", "0", "--test-fraction", "0.4"]
    assert main(["run", "fedavg", *options, "--out", "run"]) == 0
    run = jaxfl.load("run")
    constant = []
    for client in range(CLIENTS):
        x, y, _ = run.test(client)
        assert y.dtype == bool
        assert y.any(axis=0).all()
        logits = run.scores(client, x)
        labels, chances = run.predict(client, x), run.predict(client, x, proba=True)
        np.testing.assert_array_equal(labels, logits > 0)
        np.testing.assert_allclose(chances, 1 / (1 + np.exp(-logits)), rtol=1e-4)
        expected = {
            "": 1 - sklearn.hamming_loss(y, labels),
            "_f1": sklearn.f1_score(y, labels, average="macro"),
            "_log_loss": -np.mean([sklearn.log_loss(y[:, k], chances[:, k]) for k in range(3)]),
            "_auc": sklearn.roc_auc_score(y, chances, average="macro"),
        }
        for name, value in expected.items():
            score = run.clients[f"deployed_test{name}"][-1][client]
            assert score == pytest.approx(value, rel=1e-3)
        assert expected[""] > 0.85
        # The constant predictor has the labels that most training examples have.
        constant.append(np.mean((run.train(client).y.mean(axis=0) > 0.5) == y))
    assert run.summary["constant"]["deployed"]["mean"] == pytest.approx(np.mean(constant), rel=1e-4)
    capsys.readouterr()
    np.savez("new.npz", x=x, y=y)
    command = ["predict", "run", "--client", "2", "--input", "new.npz", "--proba"]
    assert main(command) == 0
    head, first, *rest = capsys.readouterr().out.split("\n")
    columns = [f"prediction_{k}" for k in range(3)] + [f"p_{k}" for k in range(3)]
    assert head == ",".join(["example", *columns])
    assert first.split(",")[1:4] == [str(value) for value in labels[0]]
    assert f"accuracy: {np.mean(labels == y):.4f}" in rest
    assert main([*command, "--calibrate"]) == 2
    assert "have several labels" in capsys.readouterr().err


def test_a_partition_of_several_labels_is_described():
    source = several()
    assert (source.classes, source.outputs, source.y_train.dtype) == (3, 3, bool)
    parts = jaxfl.data.natural(source.owners)
    description = describe_partition(source, parts)
    mean = Y.sum() / len(Y)
    assert description["targets"] == f"3 labels, {mean:.3g} an example in the mean"
    assert description["examples a client"] == "60"
    rows = describe_each_client(source, parts, test_fraction=0.2)
    assert sum(sum(rows[f"1 {part}"]) for part in ("train", "validation", "test")) == Y[:, 1].sum()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"partition": "dirichlet", "clients": 2}, "several labels.* partition iid or natural"),
        ({"split": "stratified"}, "--split stratified .* choose random"),
        ({"class_weight": "balanced"}, "--class-weight balanced .* leave it out"),
        ({"attack": "label_flip"}, "--attack label_flip .* another attack"),
        ({"concept": "swapped_labels"}, "swapped_labels swaps one: choose"),
        ({"algorithm": "fedproto"}, "FedProto needs labels, a whole number an example"),
    ],
)
def test_what_takes_one_label_is_refused(options, message):
    def begin():
        resolved = resolve(Config(**{"algorithm": "fedavg", "model": "mlp"} | options), several())
        build(resolved, gather(resolved))

    with pytest.raises(InputError, match=message):
        begin()


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (Y[:, 0], r"several labels an example booleans \(N, labels\)"),
        (Y.reshape(CLIENTS * N, 3, 1), r"several labels an example booleans \(N, labels\)"),
        (Y[:, :1], r"expected \(180,\) for one label an example"),
    ],
)
def test_booleans_of_another_form_are_refused(y, message):
    with pytest.raises(InputError, match=message):
        jaxfl.data.from_arrays(X, y)
