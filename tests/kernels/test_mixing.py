import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxfl.kernels.mixing import disturbance, isolate, leave_out, mix, size_weights


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


def test_matrices_compose():
    rng = np.random.default_rng(0)
    a, b = (jnp.asarray(rng.dirichlet(np.ones(4), size=4), jnp.float32) for _ in range(2))
    x = jnp.asarray(rng.normal(size=(4, 7)), jnp.float32)
    np.testing.assert_allclose(mix(a, mix(b, x)), mix(a @ b, x), atol=1e-6)


def test_size_weights():
    np.testing.assert_allclose(size_weights(jnp.array([1, 3, 0])), [0.25, 0.75, 0])
    np.testing.assert_allclose(size_weights(jnp.array([0, 0])), [0.5, 0.5])


def test_who_is_left_out_has_no_weight_and_the_others_share_it_in_proportion():
    weights = jnp.array([[0.5, 0.3, 0.2], [0.0, 1.0, 0.0], [0.1, 0.1, 0.8]])
    heard = jnp.array([True, False, True])
    np.testing.assert_allclose(
        leave_out(weights, heard), [[5 / 7, 0, 2 / 7], [0, 1, 0], [1 / 9, 0, 8 / 9]], atol=1e-6
    )
    np.testing.assert_allclose(
        isolate(weights, heard), [[5 / 7, 0, 2 / 7], [0, 1, 0], [1 / 9, 0, 8 / 9]], atol=1e-6
    )
    np.testing.assert_allclose(isolate(weights, jnp.array([True, True, False]))[2], [0, 0, 1])
    np.testing.assert_allclose(
        leave_out(weights, jnp.array([True, True, False]))[2], [0.5, 0.5, 0], atol=1e-6
    )
    np.testing.assert_array_equal(leave_out(weights, jnp.ones(3, bool)), weights)
    np.testing.assert_allclose(size_weights(jnp.array([True, False, True])), [0.5, 0, 0.5])


def test_disturbances_keep_the_sums_of_rows_and_look_in_all_other_directions_alike():
    steps = jax.vmap(lambda key: disturbance(key, 3, 0.5))(
        jax.random.split(jax.random.key(0), 20_000)
    )
    np.testing.assert_allclose(steps.sum(axis=2), 0, atol=1e-6)
    seen = np.einsum("kri,krj->rij", steps, steps) / len(steps)
    np.testing.assert_allclose(seen, np.tile(0.25 * (np.eye(3) - 1 / 3), (3, 1, 1)), atol=0.01)
