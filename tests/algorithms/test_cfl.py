"""CFL: its bipartition is the best possible, and two opposite groups are split once."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import deployed, linear, opposite_groups, run

from jaxfl.algorithms import cfl
from jaxfl.core import tree
from jaxfl.kernels.bipartition import bipartition, split_clusters


def best_cut(similarity, members):
    """The side without the first member in the best of all bipartitions, found by trying all."""
    sides = [s for n in range(1, len(members)) for s in itertools.combinations(members[1:], n)]

    def across(side):
        return max(similarity[i, j] for i in side for j in members if j not in side)

    return min(sides, key=across)


def test_the_bipartition_is_the_best_of_all():
    cut = jax.jit(bipartition)
    for seed in range(5):
        rng = np.random.default_rng(seed)
        similarity = rng.normal(size=(9, 9))
        similarity += similarity.T
        cluster = np.array([2, 0, 0, 2, 2, 0, 2, 2, 1])
        ids = np.arange(9) + 3
        expected = np.zeros(9, bool)
        for c in (0, 2):
            expected[list(best_cut(similarity, np.flatnonzero(cluster == c)))] = True
        # The order of the rows does not matter, only the ids do.
        shuffle = rng.permutation(9)
        shuffled = (similarity[shuffle][:, shuffle], cluster[shuffle], ids[shuffle])
        assert cut(*map(jnp.asarray, shuffled)).tolist() == expected[shuffle].tolist()


def test_new_clusters_get_the_next_free_numbers():
    cluster = jnp.array([0, 0, 1, 1, 2, 2])
    leaves = jnp.array([0, 1, 0, 1, 0, 1], bool)
    wanted = jnp.array([1, 0, 1, 0, 0], bool)
    after, parent, count = split_clusters(cluster, leaves, wanted, jnp.asarray(3))
    assert (after.tolist(), parent.tolist(), int(count)) == ([0, 3, 1, 1, 2, 4], [0, 1, 2, 0, 2], 5)
    after, parent, count = split_clusters(cluster, leaves, wanted[:4], jnp.asarray(3))
    assert (after.tolist(), parent.tolist(), int(count)) == ([0, 3, 1, 1, 2, 2], [0, 1, 2, 0], 4)


@pytest.mark.slow
def test_two_opposite_groups_are_split_once_and_averaged_apart():
    """Before the split all clients get one mean; afterwards each group has a mean of its own."""
    algorithm = cfl(linear(steps=20), eps1=0.3, eps2=0.5)
    state, info, _ = run(algorithm, opposite_groups(), 6)
    count = info.metrics["clusters"].tolist()
    group = np.arange(6) % 2
    assert count[-1] == 2
    same = (group[:, None] == group[None]) / 3
    for number, clusters in enumerate(count):
        np.testing.assert_allclose(
            info.weights[number], 1 / 6 if clusters == 1 else same, rtol=1e-6
        )
    assert state.clients.record.cluster.tolist() == group.tolist()
    models = tree.ravel(deployed(algorithm, state, 6, opposite_groups()))
    assert float(models[0] @ models[1]) < 0


@pytest.mark.slow
def test_a_client_that_has_not_reported_does_not_leave_its_cluster():
    """Six similar clients in a cluster that always splits; one client's update is zero."""
    data = jax.tree.map(lambda x: x[::2], opposite_groups(clients=12))
    spoilt = data._replace(train=data.train._replace(x=data.train.x.at[5].set(np.nan)))
    state, info, _ = run(cfl(linear(), eps1=1e9, eps2=1e-9), spoilt, 1)
    assert info.metrics["clusters"].tolist() == [2]
    assert state.clients.record.cluster[5] == 0
    assert state.clients.record.cluster[:5].max() == 1
