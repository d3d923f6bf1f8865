"""Weights from evidence, against NumPy, SciPy and means that are known."""

import jax.numpy as jnp
import numpy as np
import pytest
from test_measured import solve

from jaxfl.kernels.evidence import embedding_rows, predictable, shrunk_means


def samples(rng, centres, counts, dimension=60):
    """The means of normal samples and their variances, as a client computes them."""
    draws = [c + rng.normal(size=(n, dimension)) for c, n in zip(centres, counts, strict=True)]
    covariances = [np.cov(x.T) for x in draws]
    means = np.array([x.mean(axis=0) for x in draws])
    variances = np.array([np.trace(c) / n for c, n in zip(covariances, counts, strict=True)])
    return [jnp.asarray(x, jnp.float32) for x in (means, variances)]


@pytest.mark.slow
def test_embedding_rows_minimise_the_estimated_error_of_the_mixture():
    rng = np.random.default_rng(1)
    counts = np.array([40, 80, 40, 160])
    centres = rng.normal(size=(2, 60))[[0, 0, 1, 1]] * 0.1
    means, variances = samples(rng, centres, counts)
    m, v = (np.asarray(x, float) for x in (means, variances))
    expected = []
    for i in range(4):
        bias = np.zeros(4)
        for j in range(4):
            if i != j:
                bias[j] = max(np.sum((m[i] - m[j]) ** 2) - v[i] - v[j], 0)
        # In units in which SciPy's tolerance is small.
        expected.append(solve(bias / v.min(), v / v.min()))
    found = embedding_rows(means, variances, jnp.ones(4, bool))
    np.testing.assert_allclose(found, expected, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("clients", [10, 50])
def test_clients_of_one_distribution_weigh_by_their_sizes(clients):
    rng = np.random.default_rng(2)
    counts = rng.integers(30, 200, size=clients)
    centre = np.repeat(rng.normal(size=(1, 60)), clients, axis=0)
    rows = embedding_rows(*samples(rng, centre, counts), jnp.ones(clients, bool))
    # In effect a mixture has at least a third of all examples.
    variance = np.sum(np.asarray(rows) ** 2 / counts, axis=1)
    assert np.mean(variance) < 3 / counts.sum()


def test_the_mixture_is_nearly_that_of_one_who_knows_the_groups():
    rng = np.random.default_rng(3)
    group = np.arange(20) % 4
    centres = rng.normal(size=(4, 60))[group]
    counts = np.full(20, 50)
    means, variances = samples(rng, centres, counts)
    rows = np.asarray(embedding_rows(means, variances, jnp.ones(20, bool)))
    same = np.equal.outer(group, group)
    assert rows[~same].max() == 0
    oracle = same / same.sum(axis=1, keepdims=True)
    errors = [np.sum((w @ np.asarray(means) - centres) ** 2) for w in (rows, oracle)]
    assert errors[0] < 1.2 * errors[1]


@pytest.mark.slow
def test_a_distance_may_cost_less_than_the_variance_that_it_saves():
    """With few examples a client mixes with one that differs, with many it does not."""
    rng = np.random.default_rng(4)
    centres = np.array([np.zeros(60), np.full(60, 0.12)])
    few = embedding_rows(*samples(rng, centres, np.array([10, 10])), jnp.ones(2, bool))
    many = embedding_rows(*samples(rng, centres, np.array([2000, 2000])), jnp.ones(2, bool))
    assert few[0, 1] > 0.3
    assert many[0, 1] == 0


def hierarchy(rng, between, counts):
    """True scores of clients, and their means and mean squares over few examples each."""
    true = 0.1 + np.sqrt(between) * rng.normal(size=counts.size)
    draws = [t + rng.normal(size=n) for t, n in zip(true, counts, strict=True)]
    means = np.array([[x.mean()] for x in draws])
    squares = np.array([[np.mean(x**2)] for x in draws])
    given = (jnp.asarray(x, jnp.float32) for x in (means, squares, counts))
    return true, means, squares, shrunk_means(*given)


def test_shrunk_means_are_the_expectations_of_random_effects():
    rng = np.random.default_rng(5)
    counts = rng.integers(2, 30, size=12)
    _, means, squares, found = hierarchy(rng, 0.5, counts)
    # DerSimonian and Laird (1986), (8), with equal variances within all studies.
    within = np.sum(counts * (squares - means**2)[:, 0]) / np.sum(counts - 1)
    w = counts / within
    Q = np.sum(w * (means[:, 0] - np.average(means[:, 0], weights=w)) ** 2)
    between = max(0, (Q - 11) / (w.sum() - np.sum(w**2) / w.sum()))
    common = np.average(means[:, 0], weights=1 / (1 / w + between))
    expected = [
        (m / (within / n) + common / between) / (n / within + 1 / between)
        for m, n in zip(means[:, 0], counts, strict=True)
    ]
    assert between > 0
    np.testing.assert_allclose(found.mean[:, 0], expected, rtol=1e-4)
    np.testing.assert_allclose(found.common[0], common, rtol=1e-4)
    variance = 1 / (counts / within + 1 / between)
    np.testing.assert_allclose(found.variance[:, 0], variance, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("between", [0.0, 0.1, 4.0])
def test_shrunk_means_are_nearer_to_the_truth_than_the_means_and_their_mean(between):
    rng = np.random.default_rng(6)
    errors = np.zeros(3)
    for _ in range(20):
        true, means, _, found = hierarchy(rng, between, np.full(20, 8))
        candidates = (np.asarray(found.mean)[:, 0], means[:, 0], np.full(20, means.mean()))
        errors += [np.mean((x - true) ** 2) for x in candidates]
    assert errors[0] < errors[1:].min() + 0.1 * errors[1:].max()


def test_a_client_without_examples_has_the_common_mean():
    means = jnp.array([[0.2], [0.4], [9.0]])
    squares = means**2 + 0.01
    found = shrunk_means(means, squares, jnp.array([10.0, 10.0, 0.0])).mean
    np.testing.assert_allclose(found[2], 0.3, atol=1e-6)
    assert shrunk_means(means, squares, jnp.zeros(3)).mean.tolist() == [[0.0]] * 3


def moments(x):
    return [np.mean(x), np.mean(np.square(x))]


@pytest.mark.parametrize("labels", [2, 10])
@pytest.mark.parametrize("size", [1, 2, 5, 20, 100])
def test_clients_of_random_labels_are_told_from_those_that_can_be_predicted(size, labels):
    """Of twelve clients four are right in nine of ten, one has one label, and six random labels."""
    rng = np.random.default_rng(7)
    found = []
    for _ in range(40):
        right = [rng.random(size) < p for p in [0.9] * 4 + [1.0, 0.6] + [1 / labels] * 6]
        chance = [rng.random(size) < p for p in [1 / labels] * 4 + [1.0] + [1 / labels] * 7]
        given = [jnp.array([moments(x) for x in of]) for of in (right, chance)]
        found.append(np.asarray(predictable(*given, jnp.full(12, float(size)))))
    share = np.mean(found, axis=0)
    assert share[:5].min() >= 0.99
    if labels == 10:
        assert share[5] > 0.8  # right in six of ten, where chance is in one
    # One example accuses nobody, twenty find random ones of ten labels, 100 also of two.
    if size == 1:
        assert share.min() == 1
    if size * labels >= 200:
        assert share[6:].max() < 0.1


def test_scores_of_any_scale_give_the_same_answer_and_who_has_none_counts():
    scores = jnp.array([[0.9, 0.9], [0.8, 0.8], [0.1, 0.1], [jnp.nan, 0.1], [0.1, 0.1]])
    chance, counts = jnp.full((5, 2), 0.1), jnp.array([20.0, 20, 20, 20, 0])
    for scale in (1.0, 1e-9, 1e9):
        by = jnp.array([[scale, scale**2]])
        found = predictable(scores * by, chance * by, counts)
        assert found.tolist() == [True, True, False, True, True]


def test_where_no_client_has_two_examples_all_have_the_common_mean():
    means = jnp.array([[0.4], [-0.6], [0.4], [0.4]])
    found = shrunk_means(means, means**2, jnp.ones(4)).mean
    np.testing.assert_allclose(found, np.full((4, 1), 0.15), atol=1e-6)


def test_nobody_is_accused_where_nobody_is_predicted():
    """Scores of numbers are negative."""
    scores = jnp.tile(jnp.array([[-1.0, 2.0]]), (4, 1))
    assert predictable(scores, scores, jnp.full(4, 500.0)).all()
