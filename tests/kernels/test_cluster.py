from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score

from jaxfl.core import tree
from jaxfl.kernels.cluster import kmeans, predecessors
from jaxfl.kernels.mixing import mix
from jaxfl.kernels.similarity import squared_distances

cluster = jax.jit(kmeans, static_argnums=2)


def sets(count, models, length, clusters):
    """Random sets: noise, groups near and far, of different sizes, outliers; some far from zero."""
    rng = np.random.default_rng(models)
    made = []
    for number in range(count):
        x = rng.normal(size=(models, length))
        means = rng.normal(size=(clusters, length))
        if number % 5 == 1:
            x += 5 * means[rng.integers(clusters, size=models)]
        if number % 5 == 2:
            x += 2 * means[np.minimum(rng.geometric(0.5, models) - 1, clusters - 1)]
        if number % 5 == 3:
            x *= rng.exponential(size=(models, 1)) ** 2
        made.append(10 * (number % 3) + 10.0 ** -(number % 4) * x)
    return np.stack(made).astype(np.float32)


def inertia(x, averaging, assignment):
    x = np.asarray(x, np.float64)
    centres = np.asarray(averaging, np.float64) @ x
    return ((x - centres[np.asarray(assignment)]) ** 2).sum()


@pytest.mark.long
@pytest.mark.parametrize(
    ("count", "models", "length", "clusters"), [(20, 30, 40, 5), (20, 60, 3, 7), (10, 12, 500, 4)]
)
def test_as_good_as_scikit_learn_within_one_per_cent(count, models, length, clusters):
    many = sets(count, models, length, clusters)
    keys = jax.random.split(jax.random.key(0), count)
    one = partial(kmeans, ids=jnp.arange(models), clusters=clusters)
    found = jax.jit(jax.vmap(one))(keys, jnp.asarray(many))
    for x, assignment, averaging, claimed in zip(many, *found, strict=True):
        reached = inertia(x, averaging, assignment)
        assert (
            reached
            <= 1.01 * KMeans(clusters, n_init=10, random_state=0).fit(x.astype(np.float64)).inertia_
        )
        assert claimed == pytest.approx(reached, rel=1e-3)


def check_division(found, ids, clusters):
    """`averaging` is that of `assignment`; clusters are numbered by smallest id without gaps."""
    assignment = np.asarray(found.assignment)
    averaging = np.asarray(found.averaging)
    held = assignment.max() + 1
    for k in range(clusters):
        members = assignment == k
        assert members.any() == (k < held)
        np.testing.assert_allclose(averaging[k], members / max(members.sum(), 1), rtol=1e-6)
    first = [ids[assignment == k].min() for k in range(held)]
    assert first == sorted(first)
    return held


@pytest.mark.slow
def test_the_result_follows_the_clients_not_the_rows():
    x = sets(1, 20, 6, 4)[0]  # noise without clear clusters: the result depends on the seeds
    ids = np.arange(20) * 3
    order = np.random.default_rng(0).permutation(20)
    once = jax.jit(partial(kmeans, clusters=4, restarts=1))
    for seed in range(5):
        plain = once(jax.random.key(seed), jnp.asarray(x), ids=jnp.asarray(ids))
        moved = once(jax.random.key(seed), jnp.asarray(x[order]), ids=jnp.asarray(ids[order]))
        np.testing.assert_array_equal(moved.assignment, plain.assignment[order])
        np.testing.assert_array_equal(moved.averaging, plain.averaging[:, order])
        assert check_division(plain, ids, 4) == 4


@pytest.mark.slow
def test_models_that_do_not_count_move_no_centre_and_join_the_nearest():
    x = np.random.default_rng(0).normal(size=(8, 14, 3)).astype(np.float32)
    x[:, [2, 5, 11]] += 3
    counted = ~np.isin(np.arange(14), [2, 5, 11])
    for key, points in zip(jax.random.split(jax.random.key(1), 8), x, strict=True):
        found = cluster(key, points, 3, jnp.arange(14), counted)
        alone = cluster(key, points[counted], 3, jnp.arange(14)[counted])
        np.testing.assert_array_equal(found.assignment[counted], alone.assignment)
        np.testing.assert_allclose(found.averaging[:, counted], alone.averaging)
        assert not found.averaging[:, ~counted].any()
        gaps = points[~counted, None] - np.asarray(alone.averaging @ points[counted])[None]
        nearest = np.where(alone.averaging.any(axis=1), (gaps**2).sum(axis=-1), np.inf)
        np.testing.assert_array_equal(found.assignment[~counted], nearest.argmin(axis=1))


@pytest.mark.slow
def test_a_pytree_gives_what_its_matrix_gives():
    rng = np.random.default_rng(3)
    stacked = {
        name: jnp.asarray(rng.normal(size=(20, *s)), jnp.float32)
        for name, s in (("a", (2, 2)), ("b", (2,)))
    }
    key = jax.random.key(1)
    ids = jnp.arange(20)
    whole = cluster(key, tree.ravel(stacked), 4, ids)
    leafwise = cluster(key, stacked, 4, ids)
    np.testing.assert_array_equal(leafwise.assignment, whole.assignment)
    np.testing.assert_array_equal(
        mix(leafwise.averaging, stacked)["b"], mix(whole.averaging, stacked)["b"]
    )


@pytest.mark.parametrize("spread", [1.0, 1e-3, 1e-5])
def test_models_that_are_nearly_equal_are_told_apart(spread):
    """As a few steps after a common start: squared norms of 1e6, squared distances of 1e-6."""
    rng = np.random.default_rng(0)
    group = np.arange(20) % 4
    common = rng.normal(size=5000) * 15
    means = rng.normal(size=(4, 5000))
    x = (common + spread * (means[group] + 0.3 * rng.normal(size=(20, 5000)))).astype(np.float32)
    found = cluster(jax.random.key(0), jnp.asarray(x), 4, jnp.arange(20))
    assert adjusted_rand_score(group, np.asarray(found.assignment)) == 1
    exact = ((x[:, None].astype(np.float64) - x[None]) ** 2).sum(axis=-1)
    np.testing.assert_allclose(squared_distances(jnp.asarray(x)), exact, rtol=1e-3)


@pytest.mark.parametrize("copies", [[0] * 20, [0, 1] * 10, [0, 1, 2, 2, 1] * 4])
def test_fewer_distinct_models_than_clusters(copies):
    x = jnp.asarray(100 + np.random.default_rng(1).normal(size=(3, 6))[copies], jnp.float32)
    found = cluster(jax.random.key(0), x, 4, jnp.arange(20))
    assert check_division(found, np.arange(20), 4) == len(set(copies))
    assert found.assignment.tolist() == copies
    assert float(found.inertia) == pytest.approx(0, abs=1e-6)


def test_models_that_differ_by_rounding_are_one():
    rng = np.random.default_rng(1)
    x = (100 + rng.normal(size=(2, 6))[np.arange(20) % 2]).astype(np.float32)
    up = np.nextafter(x, np.float32(np.inf))
    found = cluster(
        jax.random.key(0),
        jnp.asarray(np.where(rng.random(x.shape) < 0.5, x, up)),
        4,
        jnp.arange(20),
    )
    assert found.assignment.tolist() == [0, 1] * 10


def test_more_clusters_than_models():
    """Every client is a cluster of its own; the remaining clusters are empty."""
    x = jnp.asarray(np.random.default_rng(2).normal(size=(4, 6)), jnp.float32)
    found = cluster(jax.random.key(0), x, 6, jnp.array([7, 2, 9, 4]))
    assert found.assignment.tolist() == [2, 0, 3, 1]
    assert check_division(found, np.array([7, 2, 9, 4]), 6) == 4


def test_no_move_of_one_model_saves():
    """Stronger than Lloyd's own condition, that every model is nearest to its own centre."""
    x = np.random.default_rng(4).normal(size=(20, 6)).astype(np.float32)
    found = cluster(jax.random.key(0), jnp.asarray(x), 4, jnp.arange(20))
    best = np.asarray(found.assignment)

    def total(assignment):
        groups = [x[assignment == k].astype(np.float64) for k in range(4)]
        return sum(((g - g.mean(axis=0)) ** 2).sum() for g in groups if len(g))

    for model in range(20):
        for k in range(4):
            assert total(np.where(np.arange(20) == model, k, best)) >= total(best) * (1 - 1e-5)


def test_the_cost_of_an_iteration_does_not_depend_on_the_length_of_a_model():
    def loops(length):
        x = jnp.zeros((6, length))
        program = jax.make_jaxpr(partial(kmeans, clusters=3))(jax.random.key(0), x)
        return [str(e) for e in program.jaxpr.eqns if e.primitive.name in ("while", "scan")]

    assert len(loops(10)) == 3  # seeding, iterations, moves
    assert loops(10) == loops(1000)


def test_a_member_weighs_more_than_all_distances():
    """The only member of each new cluster was in the farther one of two old ones."""
    votes = jnp.array([[0, 1], [1, 0]])
    distances = jnp.array([[0.0, 9.0], [9.0, 0.0]])
    found = predecessors(votes, distances, jnp.ones(2, bool), jnp.ones(2, bool))
    np.testing.assert_array_equal(found, [1, 0])
