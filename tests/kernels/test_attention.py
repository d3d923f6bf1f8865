import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxprs_in_params
from jax.test_util import check_grads

from jaxfl.core import tree
from jaxfl.kernels.attention import attention_weights, init_attention, layer_norm

HEADS = 3
WIDTH = 4
NEGATIVE_SLOPE = 0.3
SCORES = ["gat", "gatv2", "dot"]


def models(clients=5, seed=0):
    """Stacked models with leaves of every rank, a scalar included."""
    rng = np.random.default_rng(seed)
    shapes = {"kernel": (clients, 4, 3), "bias": (clients, 3), "scale": (clients,)}
    return {
        name: jnp.asarray(rng.normal(0.3, 2.0, size=shape), jnp.float32)
        for name, shape in shapes.items()
    }


def attention_of(stacked, score, heads=HEADS, spread=1.0):
    """As from `init_attention`, but with random values in place of zeros."""
    one = jax.tree.map(lambda x: x[0], stacked)
    start = init_attention(jax.random.key(1), one, score, heads, WIDTH)
    rng = np.random.default_rng(5)
    last = "sender" if score == "dot" else "vector"

    def draw(x):
        return jnp.asarray(rng.normal(0, spread, size=x.shape), jnp.float32)

    return start._replace(**{last: jax.tree.map(draw, getattr(start, last))})


def rows(stacked):
    return np.asarray(tree.ravel(stacked), np.float64)


def maps(projection):
    """[H, d', D] of W's leaves."""
    leaves = [
        np.asarray(x, np.float64).reshape(HEADS, WIDTH, -1) for x in jax.tree.leaves(projection)
    ]
    return np.concatenate(leaves, axis=2)


def leaky(x):
    return x if x >= 0 else NEGATIVE_SLOPE * x


def loops(attention, h, score):
    """Graph attention as the papers write it, head by head, pair by pair."""
    n = len(h)
    total = np.zeros((n, n))
    for m in range(HEADS):
        left = maps(attention.receiver)[m]
        right = left if score == "gat" else maps(attention.sender)[m]
        a = None if score == "dot" else np.asarray(attention.vector[m], np.float64)
        for i in range(n):
            e = np.zeros(n)
            for j in range(n):
                zi, zj = left @ h[i], right @ h[j]
                if score == "gat":
                    e[j] = leaky(a.reshape(-1) @ np.concatenate([zi, zj]))
                elif score == "gatv2":
                    e[j] = sum(w * leaky(x) for w, x in zip(a, zi + zj, strict=True))
                else:
                    e[j] = zi @ zj / np.sqrt(WIDTH)
            total[i] += np.exp(e) / np.exp(e).sum()
    return total / HEADS


@pytest.mark.slow
@pytest.mark.parametrize("score", SCORES)
def test_leaf_by_leaf_equals_the_whole_matrix_equals_loops(score):
    features = layer_norm(models())
    attention = attention_of(features, score)
    weights = jax.jit(attention_weights, static_argnums=2)(
        attention, features, score, NEGATIVE_SLOPE
    )
    expected = loops(attention, rows(features), score)
    assert np.ptp(expected, axis=1).min() > 0.02  # the weights differ
    np.testing.assert_allclose(weights, expected, atol=1e-5)
    np.testing.assert_allclose(weights.sum(axis=1), 1, atol=1e-6)
    flat = attention._replace(
        **{
            side: jnp.asarray(maps(getattr(attention, side)), jnp.float32)
            for side in ("receiver", "sender")
            if getattr(attention, side)
        }
    )
    np.testing.assert_allclose(
        attention_weights(flat, tree.ravel(features), score, NEGATIVE_SLOPE), expected, atol=1e-5
    )


@pytest.mark.slow
@pytest.mark.parametrize("score", SCORES)
def test_gradients(score):
    features = layer_norm(models(clients=4))
    attention = attention_of(features, score)
    cotangent = np.random.default_rng(3).normal(size=(4, 4))

    @jax.jit
    def total(attention, features):
        return jnp.sum(attention_weights(attention, features, score, NEGATIVE_SLOPE) * cotangent)

    with jax.enable_x64(True):
        arguments = jax.tree.map(lambda x: jnp.asarray(x, jnp.float64), (attention, features))
        check_grads(total, arguments, order=1, modes=["rev"], atol=1e-6, rtol=1e-6)


@pytest.mark.slow
def test_layer_norm_is_over_the_whole_model():
    stacked = models()
    exact = rows(stacked)
    expected = (exact - exact.mean(axis=1, keepdims=True)) / exact.std(axis=1, keepdims=True)
    np.testing.assert_allclose(rows(layer_norm(stacked)), expected, atol=1e-5)
    np.testing.assert_allclose(
        rows(layer_norm(stacked, unit=True)), expected / np.sqrt(16), atol=1e-5
    )
    np.testing.assert_allclose(layer_norm(tree.ravel(stacked)), expected, atol=1e-5)


def test_a_constant_model_has_no_features():
    assert layer_norm(jnp.array([[0.0, 0.0], [1.0, 3.0]])).tolist() == [[0.0, 0.0], [-1.0, 1.0]]


@pytest.mark.long(every=3)
@pytest.mark.parametrize("score", SCORES)
def test_learning_starts_from_equal_weights_and_can_leave_them(score):
    features = layer_norm(models())
    one = jax.tree.map(lambda x: x[0], features)
    start = init_attention(jax.random.key(1), one, score, HEADS, WIDTH)
    np.testing.assert_allclose(attention_weights(start, features, score), 0.2, atol=1e-7)
    grads = jax.grad(lambda a: attention_weights(a, features, score)[0, 1])(start)
    last = grads.sender if score == "dot" else grads.vector
    assert all(float(jnp.abs(x).max()) > 1e-3 for x in jax.tree.leaves(last))


@pytest.mark.slow
@pytest.mark.parametrize("unit", [False, True])
def test_projections_start_with_variance_one(unit):
    matrix = jnp.asarray(np.random.default_rng(0).normal(size=(1, 400)), jnp.float32)
    start = init_attention(jax.random.key(0), matrix[0], "gat", 50, 40, unit=unit)
    projected = (
        np.asarray(start.receiver).reshape(2000, 400) @ np.asarray(layer_norm(matrix, unit=unit))[0]
    )
    np.testing.assert_allclose(projected.std(), 1, rtol=0.1)


def equations(jaxpr):
    """Those of the program and of every program inside it."""
    for equation in jaxpr.eqns:
        yield equation
        for inner in jaxprs_in_params(equation.params):
            yield from equations(inner)


@pytest.mark.parametrize("score", SCORES)
def test_nothing_is_as_large_as_a_vector_of_parameters_for_each_pair(score):
    clients = 20
    size = 500
    stacked = {str(i): jnp.zeros((clients, size // 10)) for i in range(10)}
    attention = attention_of(stacked, score)

    def gradient(attention):
        return jax.grad(lambda a: attention_weights(a, layer_norm(stacked), score)[0, 0])(attention)

    program = jax.make_jaxpr(gradient)(attention)
    sizes = [v.aval.size for e in equations(program.jaxpr) for v in e.outvars]
    assert max(sizes) <= clients * max(clients * HEADS * WIDTH, size)


@pytest.mark.slow
def test_gat_ranks_the_senders_in_one_order_and_gatv2_need_not():
    """In one head of "gat" every receiver prefers the same sender (a LeakyReLU is monotone)."""
    features = layer_norm(models(clients=12, seed=2))
    favourites = {}
    for score in ("gat", "gatv2"):
        weights = attention_weights(attention_of(features, score, heads=1), features, score)
        favourites[score] = set(np.argmax(weights, axis=1).tolist())
    assert len(favourites["gat"]) == 1
    assert len(favourites["gatv2"]) > 1
