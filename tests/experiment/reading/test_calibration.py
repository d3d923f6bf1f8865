"""Temperatures: against SciPy's minimiser, on logits whose calibration is known, and of a run."""

import dataclasses
import warnings

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from sklearn.metrics import log_loss

import jaxfl
from jaxfl.cli import main
from jaxfl.core.errors import InputError, RunWarning
from jaxfl.experiment import Config, execute
from jaxfl.experiment.reading.calibration import NoTemperature, fit_temperature


def softmax(logits):
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def calibration_error(chances, labels, groups=10):
    """The gap of confidence and accuracy, weighted by the examples in each tenth of confidence."""
    confidence, right = chances.max(axis=1), chances.argmax(axis=1) == labels
    group = np.minimum((confidence * groups).astype(int), groups - 1)
    gaps = [
        (group == one).mean() * abs(confidence[group == one].mean() - right[group == one].mean())
        for one in range(groups)
        if (group == one).any()
    ]
    return sum(gaps)


def sure_logits(count, classes, factor, seed):
    """Logits that are `factor` times those from which the labels were drawn."""
    rng = np.random.default_rng(seed)
    true = rng.normal(size=(count, classes))
    labels = np.array([rng.choice(classes, p=row) for row in softmax(true)])
    return factor * true, labels


@pytest.mark.parametrize(("classes", "factor", "seed"), [(2, 3.0, 0), (5, 0.2, 1), (10, 8.0, 2)])
def test_the_temperature_is_that_of_scipy(classes, factor, seed):
    logits, labels = sure_logits(300, classes, factor, seed)

    def loss(log_temperature):
        chances = softmax(logits / np.exp(log_temperature))
        return log_loss(labels, chances, labels=range(classes))

    expected = minimize_scalar(loss, bounds=(-5, 5), options={"xatol": 1e-9}).x
    assert fit_temperature(logits, labels) == pytest.approx(np.exp(expected), rel=1e-4)


def test_sure_logits_are_calibrated_and_keep_their_labels():
    logits, labels = sure_logits(4000, 4, 5.0, seed=3)
    temperature = fit_temperature(logits[:2000], labels[:2000])
    assert temperature == pytest.approx(5.0, rel=0.1)
    new, y = logits[2000:], labels[2000:]
    before, after = softmax(new), softmax(new / temperature)
    np.testing.assert_array_equal(before.argmax(axis=1), after.argmax(axis=1))
    assert calibration_error(after, y) < 0.2 * calibration_error(before, y)


def test_logits_of_any_size_and_any_shift():
    logits, labels = sure_logits(100, 3, 2.0, seed=4)
    expected = fit_temperature(logits, labels)
    assert fit_temperature(logits + 1e6, labels) == pytest.approx(expected, rel=1e-6)
    assert fit_temperature(1e4 * logits, labels) == pytest.approx(1e4 * expected, rel=1e-6)


@pytest.mark.parametrize(
    ("labels", "outputs", "reason"),
    [
        ([0, 1] * 9, [0, 1] * 9, "has 18 validation examples, fewer than 20"),
        ([1] * 30, [0, 1] * 15, "have one label"),
        ([0, 1] * 15, [0, 1] * 15, "is right on all"),
        ([0, 1] * 15, [1, 0] * 15, "is not better than chance"),
        ([0, 1] * 15, [0] * 30, "is not better than chance"),
    ],
)
def test_why_there_is_no_temperature(labels, outputs, reason):
    with pytest.raises(NoTemperature, match=reason):
        fit_temperature(2.0 * np.eye(2)[outputs], np.array(labels))


SHORT = Config(
    algorithm="local",
    dataset="mine",
    partition="iid",
    model="linear",
    clients=3,
    rounds=3,
    local_steps=50,
    batch_size=8,
    lr=1.0,  # so high that the models are too sure
    val=0.4,
    test="own",
    score_after="none",
    seed=5,
    seeds=2,
    devices=1,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("calibration")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 4)).astype(np.float32)
    y = (x @ rng.normal(size=(4, 3)) + rng.normal(size=(300, 3))).argmax(axis=1)
    np.savez(folder / "mine.npz", x_train=x, y_train=y)
    np.savez(folder / "new.npz", x=x[:30], y=y[:30])
    execute(dataclasses.replace(SHORT, data_dir=str(folder)), folder / "run")
    return folder


@pytest.mark.slow
def test_a_run_calibrates_by_the_validation_examples_of_the_client(folder):
    """The examples are found by the program that trained: its accuracy on them is the score."""
    run = jaxfl.load(folder / "run")
    x = np.load(folder / "new.npz")["x"]
    data = jaxfl.experiment.gather(jaxfl.experiment.resolve(run.config)).federation.val
    for place, client in ((0, 0), (1, 2)):
        seed = 5 + place
        counts = np.asarray(data.mask[place, client])
        val_x = np.asarray(data.x[place, client])[counts]
        val_y = np.asarray(data.y[place, client])[counts]
        logits = run.scores(client, val_x, seed=seed)
        score = run.clients["deployed_val"][place, -1, client]
        assert np.mean(logits.argmax(axis=1) == val_y) == pytest.approx(score)

        def loss(temperature, logits=logits, val_y=val_y):
            return log_loss(val_y, softmax(logits.astype(float) / temperature), labels=range(3))

        expected = minimize_scalar(loss, bounds=(0.05, 50), method="bounded").x
        temperature = run.temperature(client, seed=seed)
        assert temperature == pytest.approx(expected, rel=1e-3)
        assert temperature > 1.2
        chances = run.predict(client, x, seed=seed, proba=True, calibrate=True)
        by_hand = softmax(run.scores(client, x, seed=seed) / expected)
        np.testing.assert_allclose(chances, by_hand, atol=1e-3)
        assert (chances.argmax(axis=1) == run.predict(client, x, seed=seed)).all()


@pytest.mark.slow
def test_the_command_says_the_temperature(folder, capsys):
    ask = ["predict", str(folder / "run"), "--input", str(folder / "new.npz")]
    assert main([*ask, "--proba", "--calibrate", "--out", str(folder / "p.csv")]) == 0
    temperature = jaxfl.load(folder / "run").temperature(0)
    assert f"temperature of the probabilities: {temperature:.4g}" in capsys.readouterr().out
    assert main([*ask, "--calibrate"]) == 2
    assert "--calibrate is given without --proba" in capsys.readouterr().err


@pytest.mark.slow
def test_too_few_validation_examples_are_told_once(folder, tmp_path):
    config = dataclasses.replace(SHORT, data_dir=str(folder), val=0.1, seeds=1, rounds=1)
    execute(config, tmp_path / "run")
    run = jaxfl.load(tmp_path / "run")
    x = np.load(folder / "new.npz")["x"]
    with pytest.warns(RunWarning, match=r"client 1 are not calibrated: it has \d+ validation"):
        chances = run.predict(1, x, proba=True, calibrate=True)
    np.testing.assert_array_equal(chances, run.predict(1, x, proba=True))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert run.temperature(1) == 1.0


@pytest.mark.slow
def test_what_cannot_be_calibrated_is_refused(folder, tmp_path):
    run = jaxfl.load(folder / "run")
    with pytest.raises(InputError, match="changes probabilities and no label"):
        run.predict(0, np.zeros((1, 4)), calibrate=True)
    leaking = dataclasses.replace(
        SHORT, data_dir=str(folder), seeds=1, rounds=1, feedback="test-leaking"
    )
    execute(leaking, tmp_path / "leaking")
    with pytest.raises(InputError, match="validated on their test examples"):
        jaxfl.load(tmp_path / "leaking").temperature(0)
    changed = dict(np.load(folder / "mine.npz"))
    np.savez(tmp_path / "mine.npz", **changed | {"x_train": 2 * changed["x_train"]})
    moved = dataclasses.replace(run.config, data_dir=str(tmp_path))
    with pytest.raises(InputError, match="data set mine is not what it was"):
        dataclasses.replace(run, config=moved).temperature(0)
