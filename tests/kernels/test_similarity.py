import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist
from sklearn.metrics.pairwise import cosine_similarity

from jaxfl.core import tree
from jaxfl.core.errors import InputError
from jaxfl.core.row_products import LONG_ROW
from jaxfl.kernels.attention import layer_norm
from jaxfl.kernels.consensus import disagreement
from jaxfl.kernels.similarity import (
    cosine,
    dice,
    distances_l1,
    distances_l2,
    gram,
    inner,
    inverse_norms,
    root,
    similarities,
    squared_differences,
    squared_distances,
)
from jaxfl.simulation import mesh


def models(clients, seed):
    rng = np.random.default_rng(seed)
    shapes = {"kernel": (clients, 5, 3), "bias": (clients, 3)}
    return {
        name: jnp.asarray(rng.normal(size=shape), jnp.float32) for name, shape in shapes.items()
    }


@pytest.mark.slow
@settings(deadline=None, max_examples=12)
@given(st.sampled_from([1, 2, 9]), st.integers(0, 2**32 - 1))
def test_leaf_by_leaf_equals_the_whole_matrix_equals_scikit_learn(clients, seed):
    stacked = models(clients, seed)
    matrix = tree.ravel(stacked)
    exact = np.asarray(matrix, np.float64)
    expected = cosine_similarity(exact)
    np.testing.assert_allclose(cosine(stacked), expected, atol=1e-6)
    np.testing.assert_allclose(cosine(matrix), expected, atol=1e-6)
    np.testing.assert_allclose(gram(stacked), exact @ exact.T, atol=1e-4)


@pytest.mark.slow
@settings(deadline=None, max_examples=12)
@given(st.sampled_from([2, 6]), st.integers(0, 2**32 - 1), st.floats(1e-3, 1e3))
def test_cosine_ignores_the_scale_of_a_model_and_follows_a_permutation(clients, seed, factor):
    stacked = models(clients, seed)
    scaled = tree.scale(stacked, jnp.full(clients, factor).at[0].set(1.0))
    np.testing.assert_allclose(cosine(scaled), cosine(stacked), atol=1e-5)
    order = np.random.default_rng(seed).permutation(clients)
    moved = cosine(tree.take(stacked, jnp.asarray(order)))
    np.testing.assert_allclose(moved, cosine(stacked)[order][:, order], atol=1e-6)


def test_a_zero_model_is_similar_to_no_model():
    similarity = cosine(jnp.array([[0.0, 0.0], [1.0, 2.0], [2.0, 4.0]]))
    np.testing.assert_allclose(similarity, [[0, 0, 0], [0, 1, 1], [0, 1, 1]], atol=1e-6)
    assert inverse_norms(jnp.zeros((1, 4))).tolist() == [0.0]


@pytest.mark.slow
def test_dice_is_the_cosine_of_models_of_equal_length_and_falls_with_the_ratio_of_lengths():
    stacked = models(4, 0)
    equal = tree.scale(stacked, 3 * inverse_norms(stacked))
    np.testing.assert_allclose(dice(equal), cosine(equal), atol=1e-6)
    ten_times = jnp.array([[1.0, 2.0], [10.0, 20.0], [0.0, 0.0], [1e25, 2e25]])
    expected = [[1, 20 / 101, 0, 0], [20 / 101, 1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 1]]
    np.testing.assert_allclose(dice(ten_times), expected, atol=1e-6)


def test_a_function_of_ones_own_is_a_measure_whose_values_are_finite():
    """Sign, range and symmetry are its own; what is no number is the least similarity."""

    def mine(stacked):
        return jnp.array([[jnp.nan, 2.0], [-jnp.inf, jnp.inf]]) + 0 * stacked["bias"][:, :1]

    values = similarities(models(2, 0), mine, snap=0.9)
    np.testing.assert_array_equal(values, np.float32([[-1e30, 2], [-1e30, 1e30]]))


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: jnp.zeros((2, 3)), r"are float32 \[2, 3\]: expected floating-point .* \[3, 3\]"),
        (lambda x: jnp.zeros((3, 3), int), r"are int32 \[3, 3\]: expected floating-point numbers"),
        (lambda x: [[0.0] * 3] * 3, "are list: expected floating-point numbers"),
        (lambda x: None, "are NoneType: expected floating-point numbers"),
    ],
)
def test_a_function_with_other_values_is_refused_where_it_is_traced(function, message):
    with pytest.raises(InputError, match=message) as refusal:
        jax.eval_shape(lambda x: similarities(x, function), models(3, 0))
    assert "the values of measure <lambda> " in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_inverse_norms():
    stacked = models(4, 0)
    np.testing.assert_allclose(
        inverse_norms(stacked), 1 / np.linalg.norm(tree.ravel(stacked), axis=1), rtol=1e-6
    )


def test_the_matrix_is_not_needed():
    """No intermediate of the leaf-wise cosine is as large as [M, D]."""
    stacked = {str(i): jnp.zeros((4, 100)) for i in range(10)}
    sizes = [v.aval.size for e in jax.make_jaxpr(cosine)(stacked).jaxpr.eqns for v in e.outvars]
    assert max(sizes) <= 400


def test_the_five_measures_equal_loops():
    stacked = models(5, 1)
    rows = np.asarray(tree.ravel(stacked), np.float64)
    pairs = {
        "inner": lambda a, b: a @ b,
        "l2": lambda a, b: -np.linalg.norm(a - b),
        "l1": lambda a, b: -np.abs(a - b).sum(),
        "cosine": lambda a, b: a @ b / np.linalg.norm(a) / np.linalg.norm(b),
        "dice": lambda a, b: 2 * (a @ b) / (a @ a + b @ b),
    }
    for measure, pair in pairs.items():
        expected = [[pair(a, b) for b in rows] for a in rows]
        np.testing.assert_allclose(similarities(stacked, measure), expected, rtol=1e-4, atol=2e-3)
    snapped = np.asarray(similarities(stacked, "cosine", 0.1))
    np.testing.assert_array_equal(snapped == 1, np.asarray(cosine(stacked)) > 0.1)


def test_models_near_each_other_and_far_from_zero_keep_their_distance():
    rng = np.random.default_rng(0)
    base = 9 / np.sqrt(200) * rng.choice([-1, 1], size=200)
    stacked = np.float32(base + 1e-4 * rng.normal(size=(3, 200)))
    exact = np.asarray(stacked, np.float64)
    expected = np.linalg.norm(exact[:, None] - exact[None], axis=2)
    assert 0 < expected[0, 1] < 0.003
    np.testing.assert_allclose(distances_l2(jnp.asarray(stacked)), expected, rtol=1e-5)
    found = similarities(jnp.asarray(stacked), "l2")
    np.testing.assert_allclose(found, -expected, rtol=1e-5)
    far = np.concatenate([stacked, np.full((1, 200), 1e20, np.float32)])
    np.testing.assert_allclose(distances_l2(jnp.asarray(far))[:3, :3], expected, rtol=1e-5)


@pytest.mark.parametrize("devices", [1, 4])
def test_pairs_of_long_models_are_those_of_scipy_on_each_device(devices):
    """Columns go in pieces, of which the first is shorter, and each device has some of the rows."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(10, LONG_ROW + 5)).astype(np.float32)
    far = np.concatenate([x, x[:1]])
    far[-1, -1] = 1e25
    grad = rng.normal(size=(10, 10)).astype(np.float32)
    with jax.set_mesh(mesh.make_mesh(devices)):
        for measure, metric in (
            (distances_l1, "cityblock"),
            (distances_l2, "euclidean"),
            (squared_differences, "sqeuclidean"),
            (lambda x: 1 - cosine(x), "cosine"),
        ):
            for models in (x, far):
                expected = np.minimum(cdist(*[np.float64(models)] * 2, metric), 1e30)
                found = jax.jit(measure)(mesh.place(jnp.array(models)))
                np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)

        def weighted(x):
            return jnp.sum(grad * distances_l1(x))

        (by_x,) = jax.jit(jax.grad(weighted, (0,)))(mesh.place(jnp.array(x)))
        signs = np.sign(x[:, None] - x[None])
        np.testing.assert_allclose(by_x, np.einsum("ij,ijd->id", grad + grad.T, signs), atol=1e-4)


def test_the_mean_of_models_is_a_product():
    """XLA on CPU adds the rows of [M, D] some 25 times more slowly than a product does."""
    program = str(jax.make_jaxpr(squared_distances)(jnp.ones((4, 30))))
    assert "f32[30] = reduce_sum" not in program


@pytest.mark.slow
def test_sums_over_models_in_bfloat16_are_float32():
    """The rows of the models are exact in float64, and so must the sums nearly be."""
    rows = np.random.default_rng(0).normal(size=(4, 300)) + 2
    models = jnp.asarray(rows, jnp.bfloat16)
    exact = np.asarray(models, np.float64)
    gaps = exact[:, None] - exact[None]
    squares = (gaps**2).sum(axis=2)
    norms = np.linalg.norm(exact, axis=1)
    np.testing.assert_allclose(inverse_norms(models), 1 / norms, rtol=1e-5)
    np.testing.assert_allclose(distances_l2(models), np.sqrt(squares), rtol=1e-5)
    np.testing.assert_allclose(squared_differences(models), squares, rtol=1e-5)
    np.testing.assert_allclose(squared_distances(models), squares, rtol=1e-4)
    np.testing.assert_allclose(tree.dot(models[0], models[1]), exact[0] @ exact[1], rtol=1e-5)
    centred = exact - exact.mean(axis=1, keepdims=True)
    unit = centred / np.linalg.norm(centred, axis=1, keepdims=True)
    np.testing.assert_allclose(layer_norm(models, unit=True), unit, atol=1e-6)
    spread = np.sqrt(((exact - exact.mean(axis=0)) ** 2).sum() / 4)
    np.testing.assert_allclose(disagreement(models[:, None]), spread, rtol=1e-5)


@pytest.mark.parametrize(
    "kernel",
    [cosine, gram, inverse_norms, distances_l2, squared_distances, squared_differences],
)
def test_models_of_whole_numbers_are_as_those_of_equal_floats(kernel):
    counts = np.random.default_rng(0).integers(-9, 9, (4, 30))
    np.testing.assert_array_equal(kernel(jnp.asarray(counts)), kernel(jnp.asarray(counts, float)))


def test_square_roots_have_a_derivative_of_0_at_0():
    squares = jnp.array([0.0, 1.0, 4.0])
    np.testing.assert_array_equal(root(squares), [0, 1, 2])
    np.testing.assert_array_equal(jax.jacrev(root)(squares), np.diag([0, 0.5, 0.25]))


@pytest.mark.parametrize("function", [cosine, dice, inner, squared_distances])
@pytest.mark.parametrize("scale", [1.0, 1e10])
def test_gradients_are_complex_steps_in_numpy(function, scale):
    """Models are scaled by powers of two, of which no gradient may be left."""
    x = np.random.default_rng(3).normal(size=(3, 5))
    factors = np.array([[1.0], [scale], [1.0]])
    # Without a model's value with itself, whose gradient is 0 for two of the functions
    share = np.random.default_rng(4).normal(size=(3, 3)) * (1 - np.eye(3))

    def value(x):
        products = (x * factors) @ (x * factors).T
        squares = np.diagonal(products)
        both = squares[:, None] + squares[None]
        values = {
            cosine: products / np.sqrt(np.outer(squares, squares)),
            dice: 2 * products / both,
            inner: products,
            squared_distances: both - 2 * products,
        }
        return (share * values[function]).sum()

    expected = np.zeros_like(x)
    for place in np.ndindex(*x.shape):
        step = np.zeros_like(x, complex)
        step[place] = 1e-20j
        expected[place] = value(x + step).imag / 1e-20
    found = jax.grad(lambda x: (share * function(x * jnp.float32(factors))).sum())(jnp.float32(x))
    size = np.abs(expected).max(axis=1, keepdims=True)
    np.testing.assert_allclose(found / size, expected / size, atol=2e-4)
