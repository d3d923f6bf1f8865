import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxfl.kernels.mixing import (
    disturbance,
    isolate,
    leave_out,
    mix,
    positive_rows,
    size_weights,
)


@settings(deadline=None, max_examples=10)
@given(st.sampled_from([1, 2, 6]), st.sampled_from([1, 5]), st.integers(0, 2**32 - 1))
def test_mix_equals_a_loop_over_pairs(senders, receivers, seed):
    rng = np.random.default_rng(seed)
    weights = rng.dirichlet(np.ones(senders), size=receivers).astype(np.float32)
    shapes = {"kernel": (senders, 3, 2), "scalar": (senders,)}
    stacked = {
        name: jnp.asarray(rng.normal(size=shape), jnp.float32) for name, shape in shapes.items()
    }
    mixed = mix(jnp.asarray(weights), stacked)
    for name, x in stacked.items():
        for r in range(receivers):
            expected = sum(
                np.float64(weights[r, m]) * np.asarray(x[m], np.float64) for m in range(senders)
            )
            np.testing.assert_allclose(mixed[name][r], expected, atol=1e-5)


def test_one_row_makes_one_model_and_types_are_kept():
    model = mix(jnp.array([0.25, 0.75]), {"w": jnp.array([[0.0, 4.0], [4.0, 0.0]], jnp.bfloat16)})
    assert model["w"].dtype == jnp.bfloat16
    assert model["w"].tolist() == [3.0, 1.0]


def stochastic(receivers, senders, seed):
    rows = np.random.default_rng(seed).dirichlet(np.ones(senders), size=receivers)
    return rows.astype(np.float32)


def two_parts(senders=4, seed=0):
    """Stacked models of a body with two leaves and a head."""
    rng = np.random.default_rng(seed)
    return {
        "body": {
            "kernel": jnp.asarray(rng.normal(size=(senders, 3, 2)), jnp.float32),
            "bias": jnp.asarray(rng.normal(size=(senders, 2)), jnp.float32),
        },
        "head": jnp.asarray(rng.normal(size=(senders, 5)), jnp.float32),
    }


def by_numpy(matrix, x):
    flat = np.asarray(x, np.float64).reshape(len(x), -1)
    return (np.asarray(matrix, np.float64) @ flat).reshape(len(matrix), *x.shape[1:])


def test_each_part_of_a_model_may_have_its_own_matrix():
    """A matrix for the body, which has two leaves, and the identity, so that heads stay."""
    stacked = two_parts()
    matrix = stochastic(4, 4, 1)
    mixed = mix({"body": jnp.asarray(matrix), "head": jnp.eye(4)}, stacked)
    for name, x in stacked["body"].items():
        np.testing.assert_allclose(mixed["body"][name], by_numpy(matrix, x), atol=1e-6)
    np.testing.assert_array_equal(mixed["head"], stacked["head"])


def test_each_leaf_of_a_model_may_have_its_own_matrix():
    stacked = two_parts()
    matrices = {
        "body": {"kernel": stochastic(4, 4, 1), "bias": stochastic(4, 4, 2)},
        "head": stochastic(4, 4, 3),
    }
    mixed = mix(jax.tree.map(jnp.asarray, matrices), stacked)
    expected = jax.tree.map(by_numpy, matrices, stacked)
    for found, wanted in zip(jax.tree.leaves(mixed), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-6)


def test_equal_matrices_for_all_parts_give_the_bits_of_the_one_matrix():
    stacked = two_parts()
    matrix = jnp.asarray(stochastic(3, 4, 1))
    parts = mix({"body": matrix, "head": matrix}, stacked)
    jax.tree.map(np.testing.assert_array_equal, parts, mix(matrix, stacked))


def test_a_row_for_each_part_makes_one_model():
    stacked = two_parts()
    model = mix({"body": jnp.full(4, 0.25), "head": jnp.eye(4)[2]}, stacked)
    expected = np.mean(stacked["body"]["bias"], axis=0)
    np.testing.assert_allclose(model["body"]["bias"], expected, atol=1e-6)
    np.testing.assert_array_equal(model["head"], stacked["head"][2])


def test_a_part_that_a_model_lacks_is_not_mixed():
    """As `tree.split` leaves None in the places of the other part."""
    stacked = two_parts() | {"head": None}
    mixed = mix({"body": jnp.eye(4), "head": jnp.eye(4)}, stacked)
    assert mixed["head"] is None
    np.testing.assert_array_equal(mixed["body"]["bias"], stacked["body"]["bias"])


def test_matrices_that_are_no_prefix_of_the_models_are_refused():
    with pytest.raises(ValueError, match="body"):
        mix({"body": jnp.eye(4), "neck": jnp.eye(4)}, two_parts())


def test_matrices_compose():
    rng = np.random.default_rng(0)
    a, b = (jnp.asarray(rng.dirichlet(np.ones(4), size=4), jnp.float32) for _ in range(2))
    x = jnp.asarray(rng.normal(size=(4, 7)), jnp.float32)
    np.testing.assert_allclose(mix(a, mix(b, x)), mix(a @ b, x), atol=1e-6)


def test_size_weights():
    np.testing.assert_allclose(size_weights(jnp.array([1, 3, 0])), [0.25, 0.75, 0])
    np.testing.assert_allclose(size_weights(jnp.array([0, 0])), [0.5, 0.5])
    impossible = jnp.array([1.0, 3.0, -2.0, jnp.nan, jnp.inf])
    np.testing.assert_allclose(size_weights(impossible), [0.25, 0.75, 0, 0, 0])


def test_a_sender_left_out_has_no_weight_and_the_others_grow_in_proportion():
    weights = jnp.array([[0.5, 0.3, 0.2], [0.0, 1.0, 0.0], [0.1, 0.1, 0.8]])
    reported = jnp.array([True, False, True])
    np.testing.assert_allclose(
        leave_out(weights, reported), [[5 / 7, 0, 2 / 7], [0, 1, 0], [1 / 9, 0, 8 / 9]], atol=1e-6
    )
    np.testing.assert_allclose(
        isolate(weights, reported), [[5 / 7, 0, 2 / 7], [0, 1, 0], [1 / 9, 0, 8 / 9]], atol=1e-6
    )
    np.testing.assert_allclose(isolate(weights, jnp.array([True, True, False]))[2], [0, 0, 1])
    np.testing.assert_allclose(
        leave_out(weights, jnp.array([True, True, False]))[2], [0.5, 0.5, 0], atol=1e-6
    )
    np.testing.assert_array_equal(leave_out(weights, jnp.ones(3, bool)), weights)
    np.testing.assert_allclose(size_weights(jnp.array([True, False, True])), [0.5, 0, 0.5])


def test_disturbances_keep_the_sums_of_rows_and_have_equal_variance_in_all_other_directions():
    steps = jax.vmap(lambda key: disturbance(key, 3, 0.5))(
        jax.random.split(jax.random.key(0), 20_000)
    )
    np.testing.assert_allclose(steps.sum(axis=2), 0, atol=1e-6)
    seen = np.einsum("kri,krj->rij", steps, steps) / len(steps)
    np.testing.assert_allclose(seen, np.tile(0.25 * (np.eye(3) - 1 / 3), (3, 1, 1)), atol=0.01)


@pytest.mark.slow
@settings(deadline=None, max_examples=20)
@given(st.integers(0, 2**32 - 1))
def test_positive_rows_are_shares_of_what_is_positive(seed):
    values = np.random.default_rng(seed).normal(-0.5, size=(3, 3)).astype(np.float32)
    found = positive_rows(jnp.asarray(values))
    for place, row in enumerate(values.astype(np.float64)):
        total = sum(value for value in row if value > 0)
        expected = [value / total if value > 0 else 0 for value in row] if total else None
        np.testing.assert_allclose(found[place], expected or np.eye(3)[place], atol=1e-6)
    gradient = jax.grad(lambda x: positive_rows(x)[0, 0])(jnp.zeros((3, 3)))
    assert np.isfinite(gradient).all()
