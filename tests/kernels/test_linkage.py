"""The tree of average linkage beside SciPy's."""

import jax.numpy as jnp
import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

from jaxfl.kernels.linkage import merges


def same(cluster):
    cluster = np.asarray(cluster)
    return cluster[:, None] == cluster[None]


def test_clusters_of_every_number_are_those_of_scipy():
    for seed in range(5):
        rng = np.random.default_rng(seed)
        points = rng.normal(size=(12, 3))
        distances = np.linalg.norm(points[:, None] - points[None], axis=2)
        tree = linkage(squareform(distances), "average")
        found = merges(jnp.asarray(distances, jnp.float32))
        for clusters in range(1, 13):
            expected = fcluster(tree, clusters, "maxclust")
            np.testing.assert_array_equal(same(found[12 - clusters]), same(expected))


def test_who_does_not_count_stays_alone():
    places = jnp.array([0.0, 1.0, 2.5, 9.0])
    distances = jnp.abs(places[:, None] - places[None])
    found = merges(distances, counted=jnp.array([True, False, True, True]))
    assert np.unique(found[2]).size == 2
    np.testing.assert_array_equal(found[2], found[3])
    assert found[3].tolist() == [0, 1, 0, 0]
