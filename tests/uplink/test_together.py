"""Attacks of clients that know all models, against NumPy programs written from the papers."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import jit, quick_key

from jaxfl.core import tree
from jaxfl.uplink import attack

RNG = np.random.default_rng(5)
M = 7
SHAPES = {"kernel": (M, 4, 3), "bias": (M, 3)}
BEFORE = {name: jnp.asarray(RNG.normal(size=shape), jnp.float32) for name, shape in SHAPES.items()}
STEPS = {name: jnp.asarray(RNG.normal(size=shape), jnp.float32) for name, shape in SHAPES.items()}
AFTER = jax.tree.map(jnp.add, BEFORE, STEPS)
MALICIOUS = np.array([False, True, False, False, True, False, False])
IDS = np.arange(M)
NAMES = ["boost", "collude", "ipm", "mimic", "min_max", "min_sum"]


@functools.cache
def uplink_of(name, scale):
    return attack(name, MALICIOUS, scale)


def sent_updates(name, scale=None, after=AFTER, ids=IDS, before=BEFORE):
    """The updates that arrive [M, D], as NumPy floats."""
    received = jit(uplink_of(name, scale))(quick_key(0), before, after, jnp.asarray(ids))
    difference = jax.tree.map(jnp.subtract, received, before)
    return np.asarray(tree.ravel(difference), np.float64)


UPDATES = np.asarray(tree.ravel(STEPS), np.float64)
BENIGN = UPDATES[~MALICIOUS]


@pytest.mark.parametrize("name", NAMES)
def test_malicious_clients_send_one_update_and_benign_ones_their_own(name):
    found = sent_updates(name)
    np.testing.assert_allclose(found[~MALICIOUS], BENIGN, atol=1e-5)
    np.testing.assert_allclose(found[1], found[4], atol=1e-5)


@pytest.mark.parametrize(
    ("name", "scale", "expected"),
    [
        ("boost", None, 10 * BENIGN.mean(axis=0)),
        ("boost", 2.0, 2 * BENIGN.mean(axis=0)),
        ("collude", None, UPDATES[MALICIOUS].mean(axis=0)),
        ("collude", 3.0, 3 * UPDATES[MALICIOUS].mean(axis=0)),
        ("ipm", None, -BENIGN.mean(axis=0)),
        ("ipm", 0.1, -0.1 * BENIGN.mean(axis=0)),
    ],
)
def test_multiples_of_a_mean(name, scale, expected):
    np.testing.assert_allclose(sent_updates(name, scale)[1], expected, atol=1e-5)


@pytest.mark.parametrize("scale", [None, 10.0])
def test_mimic_copies_the_client_furthest_along_the_direction_of_most_variance(scale):
    direction = np.linalg.svd(BENIGN - BENIGN.mean(axis=0))[2][0]
    victim = BENIGN[np.argmax(np.abs(BENIGN @ direction))]
    np.testing.assert_allclose(sent_updates("mimic", scale)[1], (scale or 1) * victim, atol=1e-4)


def largest_distance(x):
    return max(np.linalg.norm(x - other) for other in BENIGN)


def sum_of_squares(x):
    return sum(np.linalg.norm(x - other) ** 2 for other in BENIGN)


@pytest.mark.parametrize(
    ("name", "far"), [("min_max", largest_distance), ("min_sum", sum_of_squares)]
)
def test_the_deviation_is_the_largest_that_stays_as_near_as_benign_updates(name, far):
    """By the search of the paper's Algorithm 1, in NumPy."""
    deviation = -BENIGN.std(axis=0)
    bound = max(far(x) for x in BENIGN)
    low = 0.0
    high = 100.0
    while high - low > 1e-7:
        gamma = (low + high) / 2
        if far(BENIGN.mean(axis=0) + gamma * deviation) <= bound:
            low = gamma
        else:
            high = gamma
    expected = BENIGN.mean(axis=0) + low * deviation
    assert low > 0.5
    np.testing.assert_allclose(sent_updates(name)[1], expected, atol=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_a_relabelling_of_the_clients_relabels_what_they_send(name):
    order = np.array([3, 1, 6, 0, 4, 2, 5])
    before, after = (tree.take(x, jnp.asarray(order)) for x in (BEFORE, AFTER))
    moved = sent_updates(name, after=after, ids=order, before=before)
    np.testing.assert_allclose(moved, sent_updates(name)[order], atol=1e-4)


@pytest.mark.long(every=6)
@pytest.mark.parametrize("name", NAMES)
def test_a_benign_update_that_is_not_finite_does_not_count(name):
    """The attack is the one on the cohort without that client."""
    broken = jax.tree.map(lambda x: x.at[3].set(jnp.nan), AFTER)
    some = np.array([0, 1, 2, 4, 5, 6])
    before, after = (tree.take(x, jnp.asarray(some)) for x in (BEFORE, AFTER))
    expected = sent_updates(name, after=after, ids=some, before=before)[1]
    np.testing.assert_allclose(sent_updates(name, after=broken)[1], expected, atol=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_a_cohort_without_benign_clients_is_no_error(name):
    some = np.array([1, 4])
    before, after = (tree.take(x, jnp.asarray(some)) for x in (BEFORE, AFTER))
    found = sent_updates(name, after=after, ids=some, before=before)
    expected = found[:1] if name == "collude" else 0 * found[:1]
    np.testing.assert_allclose(found, np.repeat(expected, 2, axis=0), atol=1e-6)


@pytest.mark.parametrize("name", ["min_max", "min_sum"])
def test_equal_benign_updates_leave_no_room(name):
    equal = jax.tree.map(lambda b: b + 1.0, BEFORE)
    np.testing.assert_allclose(sent_updates(name, after=equal)[1], 1.0, atol=1e-3)


@pytest.mark.parametrize("size", [1e10, 1e14, 1e20, 3e38])
@pytest.mark.parametrize("name", NAMES)
def test_what_is_sent_is_finite_whatever_a_benign_client_sends(name, size):
    """Up to 1e15 it counts, and beyond it is left out."""
    after = jax.tree.map(lambda x: x.at[2].set(size), AFTER)
    found = sent_updates(name, after=after)[MALICIOUS]
    assert np.isfinite(found).all()
    if size > 1e15:
        without = MALICIOUS | (np.arange(M) == 2)
        expected = jit(attack(name, without, None))(quick_key(0), BEFORE, AFTER, IDS)
        expected = tree.ravel(jax.tree.map(jnp.subtract, expected, BEFORE))
        if name != "collude":
            np.testing.assert_allclose(found, np.asarray(expected)[MALICIOUS], rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("name", NAMES)
def test_statistics_decide_nothing_about_the_parameters(name):
    """One client's running statistics have gone far."""

    def models(part, moved):
        statistics = jnp.zeros((M, 2)).at[2].set(moved)
        return {"params": part, "batch_stats": {"mean": statistics}}

    parameters = []
    for moved in (0.0, 500.0):
        sent = uplink_of(name, None)(
            quick_key(0), models(BEFORE, 0.0), models(AFTER, moved), jnp.asarray(IDS)
        )
        parameters.append(sent["params"])
    for one, other in zip(*map(jax.tree.leaves, parameters), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)
