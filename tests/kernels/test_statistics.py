"""Models are compared by their parameters: running statistics of BatchNorm have no part in it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxfl.core.tree import scale
from jaxfl.kernels import attention, cluster, consensus, robust, similarity, sketch

M = 6
RNG = np.random.default_rng(0)
PARAMETERS = {
    "bias": jnp.asarray(RNG.normal(size=(M, 2)), jnp.float32),
    "kernel": jnp.asarray(RNG.normal(size=(M, 3, 2)), jnp.float32),
}
STATISTICS = {"mean": jnp.asarray(1e3 + RNG.normal(size=(M, 2)), jnp.float32)}
MODELS = {"batch_stats": STATISTICS, "params": PARAMETERS}
KEY = jax.random.key(0)
COMPARISONS = {
    "gram": similarity.gram,
    "cosine": similarity.cosine,
    "dice": similarity.dice,
    "inner": similarity.inner,
    "l2": similarity.minus_l2,
    "l1": similarity.minus_l1,
    "squared_distances": similarity.squared_distances,
    "squared_differences": similarity.squared_differences,
    "inverse_norms": similarity.inverse_norms,
    "a measure of one's own": lambda x: similarity.similarities(x, similarity.distances_l1),
    "sketches": lambda x: sketch.sketches(KEY, x, 16),
    "kmeans": lambda x: cluster.kmeans(KEY, x, 3, jnp.arange(M)).assignment,
    "krum": lambda x: robust.krum(x, jnp.arange(M), jnp.ones(M, bool), 1, 2),
    "geometric_median": robust.geometric_median_weights,
    "layer_norm": lambda x: jax.tree.leaves(attention.layer_norm(x)),
    "disagreement": lambda x: consensus.disagreement(jax.tree.map(lambda y: y[:, None], x)),
}


@pytest.mark.parametrize("name", COMPARISONS)
def test_models_are_compared_by_their_parameters(name):
    found, expected = (COMPARISONS[name](x) for x in (MODELS, {"params": PARAMETERS}))
    jax.tree.map(np.testing.assert_array_equal, found, expected)


def test_updates_of_parameters_and_of_statistics_are_cut_to_lengths_of_their_own():
    before = jax.tree.map(jnp.zeros_like, MODELS)
    clipped = robust.clip_updates(before, MODELS, 0.5)
    norms = 1 / similarity.inverse_norms(clipped)
    np.testing.assert_allclose(norms, 0.5, rtol=1e-5)
    lengths = np.linalg.norm(STATISTICS["mean"], axis=1)
    factors = jnp.asarray(np.minimum(1, np.median(lengths) / lengths), jnp.float32)
    expected = scale(STATISTICS, factors)
    np.testing.assert_allclose(clipped["batch_stats"]["mean"], expected["mean"], rtol=1e-5)
