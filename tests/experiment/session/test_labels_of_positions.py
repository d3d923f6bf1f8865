"""A label for each position of an example, from a file to predictions of new inputs."""

import flax.linen as nn
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
from jaxfl.models import MODELS

CLIENTS, N, STEPS, LABELS = 3, 40, 6, 3
RNG = np.random.default_rng(0)
X = RNG.normal(size=(CLIENTS * N, STEPS, 4)).astype(np.float32)
TRUE = (X @ RNG.normal(size=(4, LABELS))).argmax(-1)
# A third of the positions have no label, and some examples have none at all.
Y = np.where(RNG.random(TRUE.shape) < 1 / 3, -1, TRUE)
Y[::8] = -1
OWNERS = np.arange(CLIENTS * N) // N


class Tagger(nn.Module):
    """Logits for each position."""

    outputs: int

    @nn.compact
    def __call__(self, x):
        return nn.Dense(self.outputs)(x)


def tagged():
    return jaxfl.data.from_arrays(X, Y, owners=OWNERS)


def flat(y, logits, weight):
    """Labels, logits and weights of the labelled positions alone."""
    has = y >= 0
    return y[has], logits[has], np.broadcast_to(weight[:, None], y.shape)[has]


@pytest.mark.slow(seconds=20)
def test_a_run_trains_on_scores_and_predicts_labels_of_positions(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(MODELS, "tagger", Tagger)
    np.savez("tags.npz", x_train=X, y_train=Y, owners=OWNERS, weights=1.0 + np.arange(120) % 2)
    options = ["--dataset", "tags", "--data-dir", ".", "--rounds", "5", "--lr", "0.2"]
    options += ["--metric", "accuracy", "f1", "log_loss", "auc", "--devices", "1"]
    options += ["--local-steps", "10", "--model", "tagger", "--val", "0", "--test-fraction", "0.4"]
    assert main(["run", "fedavg", *options, "--out", "run"]) == 0
    run = jaxfl.load("run")
    constant = []
    for client in range(CLIENTS):
        x, y, weight = run.test(client)
        assert (y >= 0).any(axis=1).all()  # examples without a label do not count
        logits = run.scores(client, x)
        assert logits.shape == (*y.shape, LABELS)
        labels, logits, weight = flat(y, logits, weight)
        assert set(weight) == {1.0, 2.0}
        np.testing.assert_array_equal(run.predict(client, x)[y >= 0], logits.argmax(-1))
        chances = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
        np.testing.assert_allclose(run.predict(client, x, proba=True)[y >= 0], chances, rtol=1e-4)
        expected = {
            "": sklearn.accuracy_score(labels, logits.argmax(-1), sample_weight=weight),
            "_f1": sklearn.f1_score(
                labels, logits.argmax(-1), average="macro", sample_weight=weight
            ),
            "_log_loss": -sklearn.log_loss(labels, chances, sample_weight=weight),
            "_auc": np.mean(
                [
                    sklearn.roc_auc_score(labels == k, chances[:, k], sample_weight=weight)
                    for k in range(LABELS)
                ]
            ),
        }
        for name, value in expected.items():
            score = run.clients[f"deployed_test{name}"][-1][client]
            assert score == pytest.approx(value, rel=1e-3)
        assert expected[""] > 0.9
        # The constant predictor has the most frequent label of the training positions.
        most = np.bincount(run.train(client).y[run.train(client).y >= 0]).argmax()
        constant.append(np.average(labels == most, weights=weight))
    assert run.summary["constant"]["deployed"]["mean"] == pytest.approx(np.mean(constant), rel=1e-4)
    capsys.readouterr()
    np.savez("new.npz", x=x, y=y)
    command = ["predict", "run", "--client", "2", "--input", "new.npz", "--proba"]
    assert main(command) == 0
    head, first, *rest = capsys.readouterr().out.split("\n")
    names = [f"prediction_{step}" for step in range(STEPS)]
    names += [f"p_{step}_{label}" for step in range(STEPS) for label in range(LABELS)]
    assert head == ",".join(["example", *names])
    assert first.split(",")[1 : 1 + STEPS] == [str(k) for k in run.predict(2, x)[0]]
    accuracy = sklearn.accuracy_score(labels, logits.argmax(-1))
    assert f"accuracy: {accuracy:.4f}" in rest
    assert main([*command, "--calibrate"]) == 2
    assert "one for each position" in capsys.readouterr().err
    with pytest.raises(InputError, match="one for each position"):
        run.temperature(0)


def test_without_a_metric_the_accuracy_is_that_of_positions():
    resolved = resolve(Config(model="mlp"), tagged())
    assert resolved.config.metric == ("accuracy",)
    assert resolve(Config(model="mlp")).config.metric == ()


def test_a_partition_is_described_by_its_positions():
    source = tagged()
    parts = jaxfl.data.natural(source.owners)
    description = describe_partition(source, parts)
    share = 100 * (Y < 0).mean()
    assert description["targets"] == f"3 labels, one for each of 6 positions, {share:.3g} % without"
    assert description["examples a client"] == "40"
    rows = describe_each_client(source, parts, test_fraction=0.2)
    assert rows["train"] == [24] * 3
    total = sum(sum(rows[f"1 {part}"]) for part in ("train", "validation", "test"))
    assert total == (Y == 1).sum()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"partition": "dirichlet", "clients": 2}, "partition iid or natural"),
        ({"partition": "pathological", "clients": 3}, "partition iid or natural"),
        ({"split": "stratified"}, "--split stratified .* choose random"),
        ({"class_weight": "balanced"}, "--class-weight balanced .* leave it out"),
        ({"attack": "label_flip"}, "--attack label_flip .* another attack"),
        ({"concept": "swapped_labels"}, "swapped_labels swaps one: choose"),
        ({}, r"labels for positions \(6,\).*\(64, 6, 'classes'\).*--plugin"),
        ({"algorithm": "fedproto"}, "FedProto needs labels, a whole number an example"),
        ({"algorithm": "fedcollab"}, "a label for each position: choose another algorithm"),
    ],
)
def test_what_takes_one_label_is_refused(options, message):
    def begin():
        resolved = resolve(Config(**{"algorithm": "fedavg", "model": "mlp"} | options), tagged())
        build(resolved, gather(resolved))

    with pytest.raises(InputError, match=message):
        begin()


def test_test_sets_that_all_share_are_global():
    source = jaxfl.data.from_arrays(X, Y, X[:9], Y[:9])
    config = resolve(Config(model="mlp"), source).config
    assert (config.partition, config.test) == ("iid", "global")
    parts = jaxfl.data.iid(source.y_train, clients=2, seed=0)
    with pytest.raises(InputError, match=r"reweighted .* choose test own or global"):
        jaxfl.data.federate(source, parts)
    pool = jaxfl.data.federate(source, parts, test="global").test
    np.testing.assert_array_equal(pool.weights, np.tile((Y[:9] >= 0).any(1), (2, 1)))


def test_images_are_not_moved_without_their_labels():
    images = RNG.integers(0, 255, (20, 8, 8, 3)).astype(np.uint8)
    source = jaxfl.data.from_arrays(images, images[..., 0] // 128)._replace(mirrors=True)
    config = Config(model="mlp", clients=2)
    assert resolve(config, source).config.augment == "none"
    with pytest.raises(InputError, match="--augment crop_flip moves images"):
        resolve(Config(model="mlp", clients=2, augment="crop_flip"), source)
    with pytest.raises(InputError, match="would not rotate"):
        jaxfl.data.CONCEPTS["rotation"](source, clients=2, groups=2)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (np.where(Y == 0, -2, Y), "holds the label -2: .* or -1 for a position without a label"),
        (np.full_like(Y, -1), "no position of y_train .* has a label"),
        (np.where(Y == 1, 0, Y), "2 of the labels 0 to 2: number them without gaps"),
        (Y[:, :1], r"expected \(120,\) for one label an example"),
        (Y[:, :0], r"shape \(120, 0\)"),
    ],
)
def test_labels_of_positions_that_are_none_are_refused(y, message):
    with pytest.raises(InputError, match=message):
        jaxfl.data.from_arrays(X, y)


IDS = RNG.choice([0, 2, 5, 90], (CLIENTS * N, STEPS + 1))


def test_labels_of_positions_of_ids_are_ids_of_which_many_never_occur():
    ids = {"vocabulary": [100], "owners": OWNERS}
    source = jaxfl.data.from_arrays(IDS[:, :-1], IDS[:, 1:], **ids)
    assert (source.classes, source.outputs, source.each_position) == (91, 91, True)
    assert jaxfl.data.from_arrays(IDS[:, :-1], IDS[:, 1:], **ids, classes=100).classes == 100
    # Another label than those of ids, such as 255 for what is none, is no class.
    with pytest.raises(InputError, match="without gaps, or give classes"):
        jaxfl.data.from_arrays(IDS[:, :-1], np.where(IDS[:, 1:] == 5, 255, 0), **ids)
    with pytest.raises(InputError, match="the label 90: expected 0 to 89, classes=90"):
        jaxfl.data.from_arrays(IDS[:, :-1], IDS[:, 1:], **ids, classes=90)


@pytest.mark.slow
def test_a_tied_head_learns_data_with_gaps_in_their_ids(tmp_path, monkeypatch):
    """The file says how many ids there are; frequencies of those that occur are learned."""
    monkeypatch.chdir(tmp_path)

    def model(outputs, vocabulary, positions):
        options = {"width": 4, "depth": 1, "heads": 1, "tied": True}
        return jaxfl.models.transformer(outputs, vocabulary, positions, **options)

    monkeypatch.setitem(MODELS, "tied", model)
    arrays = {"x_train": IDS[:, :-1], "y_train": IDS[:, 1:], "owners": OWNERS}
    np.savez("tokens.npz", **arrays, vocabulary=[100], classes=100)
    options = ["--dataset", "tokens", "--data-dir", ".", "--model", "tied", "--rounds", "3"]
    options += ["--local-steps", "20", "--optimizer", "adam", "--lr", "0.05", "--devices", "1"]
    options += ["--metric", "perplexity", "--score-after", "none"]
    assert main(["describe", "--dataset", "tokens", "--data-dir", "."]) == 0
    assert main(["run", "fedavg", *options, "--out", "run"]) == 0
    run = jaxfl.load("run")
    assert run.predict(0, IDS[:2, :-1], proba=True).shape == (2, STEPS, 100)
    # Four ids occur, equally often; a guess among all has a perplexity of 100.
    assert 3.5 < -run.summary["final"]["deployed"]["mean"] < 5
    np.savez("tokens.npz", **arrays, vocabulary=[100])
    with pytest.raises(InputError, match="if these are ids, give the data classes=100"):
        jaxfl.experiment.execute(
            Config(dataset="tokens", data_dir=".", model="tied"), tmp_path / "other"
        )


def test_examples_without_a_labelled_position_weigh_nothing():
    own = np.arange(1.0, 121.0)
    source = jaxfl.data.from_arrays(X, Y, weights=own)
    np.testing.assert_array_equal(source.weights, np.where((Y >= 0).any(axis=1), own, 0))
    assert jaxfl.data.from_arrays(X, TRUE).weights is None
