"""FedFomo: a round equals the paper's rule, pair by pair, applied to the trained models."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import deployed, federation, made, quadratic, quick_key, run

from jaxfl.algorithms import fedfomo, local
from jaxfl.core.messages import Clients
from jaxfl.kernels.fomo import fomo_weights


def test_a_round_equals_the_rule_from_the_trained_models():
    """Client 3 has no validation data and keeps its trained model. Client 2 starts at its best."""
    rng = np.random.default_rng(3)
    centres = np.array([[1.0, 0, 0], [0.7, 0.5, 0], [-2.0, 1, 0], [0, 0, 1.5]])
    xs = [
        (c + 0.3 * rng.normal(size=(n, 3))).astype(np.float32)
        for c, n in zip(centres, (20, 20, 20, 4), strict=True)
    ]
    data = federation(xs, [np.zeros(len(x), np.int32) for x in xs])
    val = [x[16:] for x in xs]
    algorithm = made(fedfomo, quadratic)
    alone = made(local, quadratic)
    begin = rng.normal(size=(4, 3)).astype(np.float32)
    begin[2] = val[2].mean(axis=0)
    start = algorithm.init(quick_key(0), data.train)._replace(
        clients=Clients({"w": jnp.asarray(begin)})
    )
    state, info, _ = run(algorithm, data, 1, state=start)
    trained = np.asarray(run(alone, data, 1, state=start)[0].clients.memory["w"], np.float64)

    def loss(i, w):
        return 0.5 * np.mean(np.sum((val[i] - w) ** 2, axis=1))

    for i in range(4):
        gain = np.zeros(4)
        if len(val[i]):
            for j in range(4):
                lowered = loss(i, begin[i]) - loss(i, trained[j])
                gain[j] = max(0, lowered / np.linalg.norm(trained[j] - begin[i]))
        if gain.sum() > 0:
            row = gain / gain.sum()
            model = begin[i] + sum(w * (trained[j] - begin[i]) for j, w in enumerate(row))
        else:
            row = np.eye(4)[i]
            model = {2: begin[2], 3: trained[3]}[i]
        np.testing.assert_allclose(info.weights[0, i], row, atol=1e-5)
        np.testing.assert_allclose(deployed(algorithm, state, 4)["w"][i], model, atol=1e-5)
    assert np.count_nonzero(info.weights[0, 0]) > 1
    # The four models, which of them have arrived, and the client's place among them.
    assert info.down.tolist() == [[4 * 3 + 4 + 1] * 4]


def test_a_short_step_of_its_own_is_not_lost():
    """Steps of some ten-thousandths of the distances between clients are still progress."""
    rng = np.random.default_rng(0)
    xs = [np.float32(3 * i + 0.1 * rng.normal(size=(20, 3))) for i in range(4)]
    data = federation(xs, [np.zeros(20, np.int32)] * 4)
    algorithm = made(fedfomo, quadratic, steps=1, learning_rate=1e-3)
    begin = np.stack([x.mean(axis=0) + 0.5 for x in xs])
    start = algorithm.init(quick_key(0), data.train)._replace(
        clients=Clients({"w": jnp.asarray(begin)})
    )
    state, info, _ = run(algorithm, data, 1, state=start)
    np.testing.assert_allclose(np.diag(info.weights[0]), 1, atol=1e-3)
    moved = np.abs(np.asarray(state.clients.memory["w"]) - begin).max(axis=1)
    assert (moved > 0).all()


@pytest.mark.slow
def test_a_loss_that_is_not_finite_leaves_the_derivatives_finite():
    losses = jnp.array([[1.0, jnp.inf, 0.5], [2.0, jnp.nan, 3.0]])
    distances = jnp.array([[0.0, 1.0, 2.0], [1.0, 2.0, 0.5]])

    def first(before, distances):
        return jnp.sum(fomo_weights(before, losses, distances)[:, 2])

    before = jnp.array([2.0, 2.5])
    assert fomo_weights(before, losses, distances)[:, 1].tolist() == [0, 0]
    grads = jax.grad(first, argnums=(0, 1))(before, distances)
    assert all(bool(jnp.isfinite(grad).all()) for grad in grads)
