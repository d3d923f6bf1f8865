import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax

from jaxfl.core.errors import InputError
from jaxfl.kernels.propagate import contraction, graph_rows, propagate
from jaxfl.kernels.similarity import cosine

seeds = st.integers(0, 2**32 - 1)


def stochastic(rows, columns, seed):
    return (
        np.random.default_rng(seed).dirichlet(np.full(columns, 0.5), size=rows).astype(np.float32)
    )


def equal_cosines(nodes, value):
    return np.where(np.eye(nodes) > 0, 1.0, value).astype(np.float32)


@pytest.mark.slow
@settings(deadline=None, max_examples=10)
@given(st.sampled_from([1, 5]), seeds)
def test_the_sum_equals_the_papers_division_where_no_cosine_is_negative(nodes, seed):
    models = np.abs(np.random.default_rng(seed).normal(size=(nodes, 7))).astype(np.float32)
    cosines = cosine(jnp.asarray(models))
    expected = [
        [float(cosines[i, j]) / float(cosines[i].sum()) for j in range(nodes)] for i in range(nodes)
    ]
    np.testing.assert_allclose(graph_rows(cosines), expected, atol=1e-6)


def test_negative_cosines_make_no_edge():
    cosines = jnp.array([[1.0, -0.5, 0.5], [-0.5, 1.0, -1.0], [0.5, -1.0, 1.0]])
    np.testing.assert_allclose(
        graph_rows(cosines), [[2 / 3, 0, 1 / 3], [0, 1, 0], [1 / 3, 0, 2 / 3]], atol=1e-6
    )


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [None, 0.01, 1.0])
def test_softmax_equals_scipys(temperature):
    cosines = cosine(jnp.asarray(np.random.default_rng(0).normal(size=(5, 4)), jnp.float32))
    expected = softmax(np.asarray(cosines, np.float64) / (temperature or 0.1), axis=1)
    np.testing.assert_allclose(graph_rows(cosines, "softmax", temperature), expected, atol=1e-5)


@pytest.mark.parametrize("form", ["sum", "softmax"])
def test_a_zero_model_stands_alone(form):
    cosines = cosine(jnp.array([[1.0, 1.0], [0.0, 0.0], [1.0, 0.5]]))
    rows = np.asarray(graph_rows(cosines, form))
    assert rows[1].tolist() == [0, 1, 0]
    assert rows[[0, 2], 1].tolist() == [0, 0]
    np.testing.assert_allclose(rows.sum(axis=1), 1, atol=1e-6)


@pytest.mark.parametrize("hops", range(6))
def test_hops_equal_numpys_matrix_power(hops):
    rows = stochastic(5, 5, hops)
    expected = np.linalg.matrix_power(rows.astype(np.float64), hops)
    np.testing.assert_allclose(propagate(jnp.asarray(rows), hops), expected, atol=1e-6)


def test_a_node_that_does_not_exist_receives_the_mean_of_those_that_do():
    exists = np.array([True, False, True, True])
    rows = np.zeros((4, 4), np.float32)
    rows[np.ix_(exists, exists)] = stochastic(3, 3, 0)
    rows[1, 1] = 1
    power = np.asarray(propagate(jnp.asarray(rows), 2, jnp.asarray(exists)))
    inner = np.linalg.matrix_power(rows[np.ix_(exists, exists)].astype(np.float64), 2)
    np.testing.assert_allclose(power[np.ix_(exists, exists)], inner, atol=1e-6)
    np.testing.assert_allclose(power[1], np.insert(inner.mean(axis=0), 1, 0), atol=1e-6)
    np.testing.assert_allclose(power.mean(axis=0), power[1], atol=1e-6)


@pytest.mark.parametrize(
    ("nodes", "value", "hops"),
    [(5, 0.9, 2), (5, 0.5, 1), (5, 0.2, 2), (3, 0.0, 4), (3, 0.5, 0), (1, 1.0, 1), (3, 0.9999, 2)],
)
def test_contraction_of_equal_cosines_in_closed_form(nodes, value, hops):
    rows = graph_rows(jnp.asarray(equal_cosines(nodes, value)))
    expected = ((1 - value) / (1 + (nodes - 1) * value)) ** hops if nodes > 1 else 0
    assert float(contraction(rows, hops)) == pytest.approx(expected, rel=1e-2, abs=1e-12)


@pytest.mark.parametrize("hops", range(4))
def test_contraction_is_half_the_largest_distance_of_rows_of_the_power(hops):
    rows = stochastic(5, 5, hops)
    power = np.linalg.matrix_power(rows.astype(np.float64), hops)
    expected = np.abs(power[:, None] - power[None]).sum(axis=-1).max() / 2
    assert float(contraction(jnp.asarray(rows), hops)) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("hops", range(4))
def test_contraction_is_that_of_the_nodes_that_exist(hops):
    for exists in ([True, False, True, True], [False, False, True, False]):
        exists = np.array(exists)
        inner = np.asarray(graph_rows(jnp.asarray(equal_cosines(exists.sum(), 0.9999))))
        rows = np.eye(4, dtype=np.float32)
        rows[np.ix_(exists, exists)] = inner
        found = contraction(jnp.asarray(rows), hops, jnp.asarray(exists))
        assert float(found) == pytest.approx(float(contraction(jnp.asarray(inner), hops)), rel=1e-2)


@settings(deadline=None, max_examples=20)
@given(st.sampled_from([2, 4]), seeds)
def test_contraction_bounds_every_difference_and_is_reached(nodes, seed):
    weights = stochastic(nodes, nodes, seed)
    factor = float(contraction(jnp.asarray(weights)))
    models = np.random.default_rng(seed).normal(size=(nodes, 3))

    def widest(x):
        return np.linalg.norm(x[:, None] - x[None], axis=-1).max()

    assert widest(weights @ models) <= factor * widest(models) + 1e-6
    i, j = np.unravel_index(
        np.abs(weights[:, None] - weights[None]).sum(axis=-1).argmax(), (nodes, nodes)
    )
    hardest = (weights[i] > weights[j]).astype(float)[
        :, None
    ]  # the scalar models that this pair separates
    assert widest(weights @ hardest) == pytest.approx(factor, abs=1e-6)


def test_contraction_of_no_mixing_and_of_one_mean():
    assert float(contraction(jnp.eye(4))) == 1
    assert float(contraction(jnp.full((4, 4), 1 / 4))) == 0


def test_a_temperature_without_a_softmax_is_refused():
    with pytest.raises(InputError, match="temperature is of the softmax"):
        graph_rows(jnp.eye(3), temperature=0.5)
