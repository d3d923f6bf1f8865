"""Models that learn the next character at each position, from the command line."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import log_softmax

import jaxfl
from jaxfl.cli import main
from jaxfl.core.errors import InputError
from jaxfl.experiment import Config
from jaxfl.experiment.config import resolve
from jaxfl.experiment.session.build import build
from jaxfl.experiment.session.gather import gather
from jaxfl.models import MODELS

CLIENTS, N, LENGTH, VOCABULARY = 3, 40, 12, 5
RNG = np.random.default_rng(0)
# After an id follows the next one, but for a tenth of the positions.
STEPS = np.where(RNG.random((CLIENTS * N, LENGTH + 1)) < 0.1, 3, 1)
IDS = (RNG.integers(0, VOCABULARY, (CLIENTS * N, 1)) + STEPS.cumsum(axis=1)) % VOCABULARY
ARRAYS = {
    "x_train": IDS[:, :-1],
    "y_train": IDS[:, 1:],
    "owners": np.arange(CLIENTS * N) // N,
    "vocabulary": np.array([VOCABULARY]),
}


@pytest.mark.slow(seconds=40)
@pytest.mark.parametrize("model", ["transformer", "lstm"])
def test_a_run_learns_the_next_character(tmp_path, monkeypatch, model):
    monkeypatch.chdir(tmp_path)
    small = {"transformer": {"width": 16, "depth": 1, "heads": 2}, "lstm": {"hidden": 32}}[model]
    make = MODELS[model]

    def smaller(outputs, vocabulary, positions):
        return make(outputs, vocabulary, positions=positions, **small)

    monkeypatch.setitem(MODELS, model, smaller)
    np.savez("sums.npz", **ARRAYS)
    options = ["--dataset", "sums", "--data-dir", ".", "--rounds", "4", "--lr", "0.01"]
    options += [
        "--optimizer",
        "adam",
        "--local-steps",
        "40",
        "--devices",
        "1",
        "--test-fraction",
        "0.3",
    ]
    options += ["--metric", "accuracy", "perplexity", "--model", model]
    assert main(["run", "pfedgraph", *options, "--out", "run"]) == 0
    run = jaxfl.load("run")
    majority = run.summary["constant"]["deployed"]["mean"]
    assert run.summary["final"]["deployed"]["mean"] > 0.7 > 0.4 > majority
    losses = []
    for client in range(CLIENTS):
        x, y, _ = run.test(client)
        chances = log_softmax(run.scores(client, x).astype(float), axis=-1)
        losses.append(-np.take_along_axis(chances, y[..., None], axis=-1))
        score = -run.clients["deployed_test_perplexity"][-1][client]
        assert score == pytest.approx(np.exp(losses[-1].mean()), rel=1e-3)
    assert run.summary["scores"]["perplexity"]["final"]["deployed"]["pooled"] == pytest.approx(
        -np.exp(np.concatenate(losses).mean()), rel=1e-3
    )


def test_texts_with_labels_of_positions_have_the_transformer():
    config = resolve(Config(algorithm="fedavg"), jaxfl.data.from_arrays(**ARRAYS)).config
    assert config.model == "transformer"
    one = ARRAYS | {"y_train": IDS[:, -1]}
    assert resolve(Config(algorithm="fedavg"), jaxfl.data.from_arrays(**one)).config.model == (
        "textcnn"
    )


@pytest.mark.long(every=4)
@pytest.mark.parametrize(
    ("y", "shape"), [(IDS[:, 1:], (1, LENGTH, VOCABULARY)), (IDS[:, -1], (1, VOCABULARY))]
)
@pytest.mark.parametrize("model", ["transformer", "lstm"])
def test_a_model_gives_as_many_logits_as_there_are_labels(model, y, shape):
    source = jaxfl.data.from_arrays(**ARRAYS | {"y_train": y})
    resolved = resolve(Config(algorithm="local", model=model), source)
    problem = build(resolved, gather(resolved)).task.problem
    x = jnp.asarray(source.x_train[:1])
    logits = jax.eval_shape(lambda key: problem.apply(problem.init(key), x), jax.random.key(0))
    assert logits.shape == shape


def test_a_model_of_one_label_is_refused():
    resolved = resolve(Config(algorithm="local", model="textcnn"), jaxfl.data.from_arrays(**ARRAYS))
    with pytest.raises(InputError, match="such as transformer for texts, lstm, or a module of"):
        build(resolved, gather(resolved))
