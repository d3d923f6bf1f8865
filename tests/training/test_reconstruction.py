"""Models without labels: auto-encoders, whose predictions are compared with their inputs."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen as nn
from toys import quick_key, run

import jaxfl
from jaxfl.core.errors import InputError

RNG = np.random.default_rng(0)
# Points near a plane of their own, of each client.
CLIENTS, ROWS, FEATURES, CODE = 3, 12, 5, 2
X = np.concatenate(
    [RNG.normal(size=(ROWS, CODE)) @ RNG.normal(size=(CODE, FEATURES)) for _ in range(CLIENTS)]
).astype(np.float32)
PARTS = [np.arange(i * ROWS, (i + 1) * ROWS) for i in range(CLIENTS)]
RATE, STEPS = 0.05, 4


class AutoEncoder(nn.Module):
    """A linear code and a linear decoder, of one array."""

    @nn.compact
    def __call__(self, x):
        code = nn.Dense(CODE, use_bias=False)(x)
        return nn.Dense(FEATURES, use_bias=False)(code)


def data_of(x=X, **options):
    return jaxfl.data.from_arrays(x, None, **options)


def federation_of(source):
    return jaxfl.data.federate(source, PARTS, test="own", test_fraction=0.25, val=0.0)


def in_numpy(encoder, decoder, x):
    """Gradient descent on the mean squared error of x @ encoder @ decoder; the last loss."""
    for _ in range(STEPS):
        gap = x @ encoder @ decoder - x
        slope = 2 * gap / gap.size
        of_decoder = (x @ encoder).T @ slope
        encoder = encoder - RATE * x.T @ slope @ decoder.T
        decoder = decoder - RATE * of_decoder
    return encoder, decoder


def test_an_auto_encoder_learns_as_in_numpy():
    task = jaxfl.reconstruction(
        AutoEncoder(), X[0], optimizer=optax.sgd(RATE), batch_size=ROWS, steps=STEPS
    )
    federation = federation_of(data_of())
    algorithm = jaxfl.algorithms.fedavg(task)
    start = jax.tree.map(np.asarray, task.problem.init(quick_key(3)))
    state = algorithm.init(quick_key(0), federation.train)._replace(server=start)
    state, _, _ = run(algorithm, federation, 2, state=state)

    encoder, decoder = (start["params"][f"Dense_{n}"]["kernel"].astype(float) for n in (0, 1))
    shares = [X[rows[:9]] for rows in PARTS]
    for _ in range(2):
        models = [in_numpy(encoder, decoder, x) for x in shares]
        encoder, decoder = (np.mean(part, axis=0) for part in zip(*models, strict=True))
    for number, kernel in enumerate((encoder, decoder)):
        learned = state.server["params"][f"Dense_{number}"]["kernel"]
        np.testing.assert_allclose(learned, kernel, atol=1e-5)

    scores = jaxfl.make_evaluate(algorithm, task, after="none")(
        quick_key(0), federation, state, jnp.arange(CLIENTS)
    )
    held_out = [X[rows[9:]] for rows in PARTS]
    expected = [-np.mean((x @ encoder @ decoder - x) ** 2) for x in held_out]
    np.testing.assert_allclose(scores.deployed.test, expected, atol=1e-5)
    assert np.isnan(scores.deployed.one_label).all()


def test_the_error_sees_the_input_as_the_model_sees_it():
    seen = {}

    def error(prediction, x):
        seen.update(prediction=prediction, x=x)
        return jnp.zeros(len(x))

    model = jaxfl.Model(lambda key: jnp.ones(1), lambda params, x: x * params[None])
    task = jaxfl.reconstruction(model, np.zeros(2, np.uint8), error, scale=4.0, shift=2.0)
    x = jnp.array([[2, 10]], jnp.uint8)
    compared = task.problem.compared(x, None)
    task.problem.score(task.problem.apply(jnp.ones(1), x), compared)
    assert seen["prediction"].tolist() == seen["x"].tolist() == [[0.0, 2.0]]


def test_the_loss_of_several_arrays_is_one_of_ones_own():
    """A model of two arrays that predicts one of them from the other is least squares."""
    truth = RNG.normal(size=(FEATURES, 2)).astype(np.float32)
    full = RNG.normal(size=X.shape).astype(np.float32)
    x = {"a": full, "b": full @ truth}
    model = jaxfl.Model(lambda key: jnp.zeros((FEATURES, 2)), lambda params, x: x["a"] @ params)

    def error(prediction, x):
        return jnp.square(prediction - x["b"]).sum(axis=1)

    task = jaxfl.reconstruction(
        model, {"a": X[0], "b": x["b"][0]}, error, optimizer=optax.sgd(0.05), steps=400
    )
    federation = federation_of(data_of(x))
    algorithm = jaxfl.algorithms.fedavg(task)
    state, _, _ = run(algorithm, federation, 3)
    np.testing.assert_allclose(state.server, truth, atol=1e-2)


@pytest.mark.slow
def test_labels_of_the_data_are_not_looked_at():
    labels = np.arange(len(X)) % 2
    learned = []
    for source in (data_of(), jaxfl.data.from_arrays(X, labels)):
        task = jaxfl.reconstruction(AutoEncoder(), X[0], batch_size=4, steps=2)
        algorithm = jaxfl.algorithms.fedavg(task)
        state, _, _ = run(algorithm, federation_of(source), 1)
        learned.append(state.server["params"]["Dense_0"]["kernel"])
    np.testing.assert_array_equal(*learned)


@pytest.mark.parametrize(
    ("metrics", "words"),
    [
        (["accuracy"], "the metric 'accuracy' is of labels, and what predictions are compared"),
        (["auc"], "the metric 'auc' is of labels"),
        (["recall:1"], "the metric 'recall:1' is of labels"),
    ],
)
def test_a_model_without_labels_has_no_score_of_labels(metrics, words):
    task = jaxfl.reconstruction(AutoEncoder(), X[0], steps=1)
    algorithm = jaxfl.algorithms.fedavg(task)
    federation = federation_of(data_of())
    state = algorithm.init(quick_key(0), federation.train)
    evaluate = jaxfl.make_evaluate(algorithm, task, metrics=metrics, after="none")
    with pytest.raises(InputError, match=words) as refusal:
        evaluate(quick_key(0), federation, state, jnp.arange(CLIENTS))
    assert "\n" not in str(refusal.value)


@pytest.mark.slow
def test_its_root_mean_squared_error_is_that_of_the_inputs():
    task = jaxfl.reconstruction(AutoEncoder(), X[0], steps=1)
    algorithm = jaxfl.algorithms.fedavg(task)
    federation = federation_of(data_of())
    state = algorithm.init(quick_key(0), federation.train)
    answers = [
        jaxfl.make_evaluate(algorithm, task, metrics=metrics, after="none")(
            quick_key(0), federation, state, jnp.arange(CLIENTS)
        ).deployed.test
        for metrics in ((), ["rmse"])
    ]
    squares, roots = answers
    np.testing.assert_allclose(-np.sqrt(-squares), roots, rtol=1e-5)


@pytest.mark.long(every=8)
@pytest.mark.parametrize("method", ["fedrod", "fedproto", "pfedccg", "fedpac"])
@pytest.mark.parametrize("labels", [False, True], ids=["without", "with"])
def test_methods_of_labels_refuse_a_model_without(method, labels):
    task = jaxfl.reconstruction(jaxfl.models.mlp(FEATURES), X[0], steps=1)
    source = jaxfl.data.from_arrays(X, np.arange(len(X)) % 2) if labels else data_of()
    algorithm = jaxfl.algorithms.ALGORITHMS[method](task)
    with pytest.raises(InputError, match="needs labels, a whole number an example"):
        algorithm.init(quick_key(0), federation_of(source).train)


def test_a_task_of_numbers_refuses_data_without_targets():
    task = jaxfl.regression(jaxfl.models.mlp(2), X[0], steps=1)
    with pytest.raises(InputError, match="predicts 2 numbers an example, the targets have shape"):
        run(jaxfl.algorithms.fedavg(task), federation_of(data_of()), 1)
