import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxfl.core.errors import InputError
from jaxfl.simulation import participation

KEYS = jax.vmap(jax.random.key)(jnp.arange(400))


def draw(sample, rounds=400):
    return np.sort(jax.vmap(sample)(KEYS[:rounds], jnp.arange(rounds)), axis=1)


def test_full():
    assert (draw(participation.full(5)) == np.arange(5)).all()


def test_uniform_draws_each_client_equally_often_and_none_twice():
    ids = draw(participation.uniform(10, 0.3))
    assert ids.shape == (400, 3)
    assert (np.diff(ids, axis=1) > 0).all()
    frequency = np.bincount(ids.ravel(), minlength=10) / 400
    np.testing.assert_allclose(frequency, 0.3, atol=4 * np.sqrt(0.3 * 0.7 / 400))


def test_many_clients_are_drawn_equally_often_and_none_twice():
    clients = 2 * participation.PERMUTED
    ids = draw(participation.uniform(clients, 0.1))
    assert ids.shape == (400, clients // 10)
    assert (np.diff(ids, axis=1) > 0).all()
    times = np.bincount(ids.ravel(), minlength=clients)
    # A binomial variance: no client is drawn more often than others.
    variance = 400 * 0.1 * 0.9
    np.testing.assert_allclose(times.var(), variance, rtol=0.05)
    by_id = times.reshape(100, -1).mean(axis=1)
    np.testing.assert_allclose(by_id, 40, atol=4 * np.sqrt(variance / (clients / 100)))
    together = [np.intersect1d(one, other).size for one, other in zip(ids[1:], ids, strict=False)]
    np.testing.assert_allclose(np.mean(together), clients / 100, rtol=0.05)


@pytest.mark.parametrize(("fraction", "size"), [(1.0, 10), (0.96, 10), (0.5, 5), (0.01, 1)])
def test_uniform_rounds_and_takes_at_least_one(fraction, size):
    assert draw(participation.uniform(10, fraction), 2).shape == (2, size)


def test_a_schedule_repeats():
    ids = draw(participation.schedule(np.array([[3, 1], [0, 2], [4, 0]])), 4)
    assert ids.tolist() == [[1, 3], [0, 2], [0, 4], [1, 3]]


def test_stratified_takes_as_many_of_each_group():
    groups = np.array([0, 1, 0, 1, 1, 0, 2, 2])
    ids = draw(participation.stratified(groups, 2))
    assert ids.shape == (400, 6)
    assert all((np.bincount(groups[row]) == 2).all() for row in ids)
    assert len({tuple(row) for row in ids}) == 3 * 3 * 1


def test_every_fifth_round_is_special():
    special = participation.schedule(np.array([[0, 1]]))
    otherwise = participation.schedule(np.array([[2, 3]]))
    ids = draw(participation.every(5, special, otherwise), 12)
    assert np.flatnonzero((ids == [0, 1]).all(axis=1)).tolist() == [0, 5, 10]


def test_clients_that_join_late_are_not_drawn_before():
    first = np.array([0, 0, 0, 7, 0, 300])
    ids = draw(participation.joining(first, 3))
    seen = [np.flatnonzero((ids == client).any(axis=1)).min() for client in range(6)]
    assert seen[3] >= 7
    assert seen[5] >= 300
    assert max(seen) < 400
    assert (np.diff(ids, axis=1) > 0).all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: participation.uniform(10, 0.0),
            r"participation is 0.0: expected a fraction in \(0, 1\]",
        ),
        (lambda: participation.uniform(10, 1.5), "participation is 1.5"),
        (lambda: participation.schedule(np.array([1, 2])), "expected client ids"),
        (lambda: participation.schedule(np.array([[0.5, 1.0]])), "expected client ids"),
        (lambda: participation.schedule(np.array([[1, 1]])), "names a client twice"),
        (lambda: participation.stratified(np.array([0, 0, 1]), 2), "expected 1 to 1"),
        (lambda: participation.joining(np.array([0, 5]), 2), "expected 1 to 1"),
        (
            lambda: participation.every(0, participation.full(2), participation.full(2)),
            "a period of 0 rounds",
        ),
    ],
)
def test_bad_input(make, message):
    with pytest.raises(InputError, match=message):
        make()
