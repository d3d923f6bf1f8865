"""The constant predictor of each client, against scikit-learn's; who predicts one label."""

import warnings
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from sklearn import metrics as sklearn
from sklearn.dummy import DummyClassifier, DummyRegressor

import jaxfl
from jaxfl.core.errors import RunWarning
from jaxfl.experiment import Config, execute, resolve
from jaxfl.experiment.session.build import build
from jaxfl.experiment.session.gather import gather
from jaxfl.experiment.store.finished_runs import load_finished
from jaxfl.experiment.tables.sections import sections

CLIENTS = 6
SHORT = {
    "clients": CLIENTS,
    "rounds": 1,
    "local_steps": 2,
    "model": "linear",
    "score_after": "none",
    "devices": 1,
}
GROUPS = {
    "partition": "dirichlet",
    "beta": 1.0,
    "seeds": 2,
    "attack": "gauss",
    "malicious": (1,),
    "unseen": 0.2,
}
METRICS = ("accuracy", "balanced_accuracy", "log_loss", "brier", "auc")


def examples(data, place):
    """The examples of a client that count: x as rows, y, and their weights."""
    weight = np.asarray(data.mask)[place].astype(float)
    x, y = (np.asarray(jnp.asarray(one))[place] for one in (data.x, data.y))
    return x[weight > 0].reshape(int((weight > 0).sum()), -1), y[weight > 0], weight[weight > 0]


def constant_mean(scores):
    """The mean score of the constants, of a summary or of a further metric in it."""
    return scores["constant"]["deployed"]["mean"]


def expected_scores(train, test, classes):
    """The stored scores of scikit-learn's constant classifier of a client, by metric."""
    x, y, _ = train
    model = DummyClassifier(strategy="prior").fit(x, y)
    x, y, weight = test
    p = np.zeros((len(y), classes), np.float32)
    p[:, model.classes_] = model.predict_proba(x)
    right = model.predict(x) == y
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loss = sklearn.log_loss(y, p, labels=np.arange(classes), sample_weight=weight)
    squares = ((p - np.eye(classes)[y]) ** 2).sum(axis=1)
    each = [np.average(right[y == label], weights=weight[y == label]) for label in np.unique(y)]
    return {
        "accuracy": np.average(right, weights=weight),
        "balanced_accuracy": np.mean(each),
        "log_loss": -loss,
        "brier": -np.average(squares, weights=weight),
        "auc": 0.5,
    }


@pytest.fixture(scope="module", params=["own", "reweighted"])
def finished(request, tmp_path_factory):
    """A run of two seeds with an attacker and a newcomer, tested on own examples or on a pool."""
    folder = tmp_path_factory.mktemp("constant")
    config = Config(algorithm="fedavg", test=request.param, metric=METRICS, **GROUPS, **SHORT)
    summary = execute(config, folder / "run")
    resolved = resolve(config)
    return folder / "run", summary, build(resolved, gather(resolved))


@pytest.mark.slow
def test_scores_are_those_of_constants_of_each_clients_own_data(finished):
    _, summary, built = finished
    federation = built.data.federation
    counted = np.flatnonzero(~built.malicious & ~built.unseen)
    newcomers = np.flatnonzero(built.unseen)
    assert (len(counted), len(newcomers)) == (4, 1)
    for name in METRICS:
        further = summary if name == METRICS[0] else summary["scores"][name]
        for part, clients in (("final", counted), ("unseen", newcomers)):
            constant = further["constant"]
            seeds = (constant if part == "final" else constant["unseen"])["seeds"]
            for seed, statistics in enumerate(seeds):
                scores = []
                for client in clients:
                    train = examples(federation.train, (seed, client))
                    if built.pooled is None:
                        test = federation.test
                        weight = np.asarray(test.weights)[seed, client].astype(float)
                        arrays = (np.asarray(one)[seed][weight > 0] for one in (test.x, test.y))
                        x, y = arrays
                        tested = (x, y, weight[weight > 0])
                    else:
                        tested = examples(federation.test, (seed, client))
                    scores.append(expected_scores(train, tested, 10)[name])
                assert statistics["deployed"]["mean"] == pytest.approx(np.mean(scores), rel=1e-4)


@pytest.mark.slow
def test_predictions_of_attackers_and_newcomers_are_not_pooled(finished):
    directory, summary, built = finished
    if built.pooled is None:
        assert "pooled" not in summary["final"]["deployed"]
        return
    np.testing.assert_array_equal(built.pooled, ~built.malicious & ~built.unseen)
    run = jaxfl.load(directory)
    for seed in range(2):
        right, constant = [], []
        for client in np.flatnonzero(built.pooled):
            x, y, _ = run.test(int(client), seed=seed)
            right.append(run.scores(int(client), x, seed=seed).argmax(axis=1) == y)
            train = examples(built.data.federation.train, (seed, client))[1]
            constant.append(np.bincount(train).argmax() == y)
        for scores, each in ((summary["final"], right), (summary["constant"], constant)):
            pooled = scores["seeds"][seed]["deployed"]["pooled"]
            assert pooled == pytest.approx(np.concatenate(each).mean(), rel=1e-6)


@pytest.mark.slow
def test_examples_of_a_pool_are_those_of_the_seed_and_the_client(finished):
    directory, _, built = finished
    if built.pooled is not None:
        return
    run = jaxfl.load(directory)
    test = built.data.federation.test
    for seed, client in ((0, 0), (1, 0), (1, 1), (1, int(built.unseen.argmax()))):
        x, y, weight = run.test(client, seed=seed)
        weights = np.asarray(test.weights)[seed, client]
        np.testing.assert_array_equal(weight, weights[weights > 0])
        np.testing.assert_array_equal(y, np.asarray(test.y)[seed][weights > 0])
        assert x.shape == (len(y), 8, 8, 1)


@pytest.mark.slow
def test_of_numbers_the_constant_is_the_mean_of_the_training_targets(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(120, 3)).astype(np.float32)
    y = (x[:, 0] + 5 * (np.arange(120) // 40) + rng.normal(size=120)).astype(np.float32)
    np.savez(tmp_path / "mine.npz", x_train=x, y_train=y, owners=np.arange(120) // 40)
    short = SHORT | {"clients": 3, "dataset": "mine", "data_dir": str(tmp_path)}
    for metric in ((), ("rmse", "mae", "r2")):
        config = Config(algorithm="local", metric=metric, **short)
        summary = execute(config, tmp_path / f"run{len(metric)}")
        federation = gather(resolve(config)).federation
        errors, absolute, shares = [], [], []
        for client in range(3):
            train, _, _ = examples(federation.train, client)
            model = DummyRegressor().fit(train, examples(federation.train, client)[1])
            tested, targets, _ = examples(federation.test, client)
            predictions = model.predict(tested)
            errors.append(-sklearn.root_mean_squared_error(targets, predictions))
            absolute.append(-sklearn.mean_absolute_error(targets, predictions))
            shares.append(sklearn.r2_score(targets, predictions))
        assert constant_mean(summary) == pytest.approx(np.mean(errors), rel=1e-4)
        assert "one_label" not in summary
        if metric:
            scores = summary.get("scores", {})
            means = {name: constant_mean(one) for name, one in scores.items()}
            assert means["mae"] == pytest.approx(np.mean(absolute), rel=1e-4)
            assert means["r2"] == pytest.approx(np.mean(shares), rel=1e-3)
    table = sections(load_finished([tmp_path / "run0"]))[0].cells
    assert [name for name, _ in table.rows] == ["local", "mean"]


@pytest.fixture(scope="module")
def sites(tmp_path_factory):
    """The folder of five imbalanced sites: one example in eleven has label 1, which x does not."""
    folder = tmp_path_factory.mktemp("sites")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(550, 4)).astype(np.float32)
    y = (np.arange(550) % 11 == 0).astype(int)
    np.savez(folder / "sites.npz", x_train=x, y_train=y, owners=np.arange(550) // 110)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("metric", [(), ("auc",)])
def test_models_of_one_label_and_no_better_than_constants_bring_lines(sites, tmp_path, metric):
    # A bias that falls fast: label 0 for everybody.
    options = SHORT | {"clients": 5, "rounds": 3, "local_steps": 60, "lr": 0.1}
    config = Config(algorithm="fedavg", dataset="sites", data_dir=str(sites), metric=metric)
    summary = execute(replace(config, **options), tmp_path / "run")
    run = jaxfl.load(tmp_path / "run")
    predicted = [np.unique(run.scores(one, run.test(one).x).argmax(axis=1)) for one in range(5)]
    assert [labels.tolist() for labels in predicted] == [[0]] * 5
    assert summary.get("one_label") == 1
    section = sections(load_finished([tmp_path / "run"]))[0]
    assert "fedavg predicts one label for all test examples of each client" in section.warnings
    if not metric:
        assert "no better than the constant `majority`: fedavg" in section.warnings


@pytest.mark.slow
def test_validation_examples_without_a_score_bring_a_warning(sites, tmp_path):
    with np.load(sites / "sites.npz") as file:
        arrays = dict(file)
    # The last site has label 0 alone, in training, validation and test.
    arrays["y_train"][440:] = 0
    np.savez(tmp_path / "poor.npz", **arrays)
    options = SHORT | {"clients": 5, "dataset": "poor", "data_dir": str(tmp_path), "val": 0.4}
    config = Config(algorithm="local", split="stratified", metric=("auc", "log_loss"), **options)
    with pytest.warns(RunWarning, match=r"validation .* of client 4: .*a client with one label"):
        execute(config, tmp_path / "auc")
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*is not defined on the validation")
        config = Config(algorithm="local", split="stratified", metric=("log_loss",), **options)
        execute(config, tmp_path / "loss")
