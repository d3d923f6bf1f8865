"""FedAsync and FedBuff, beside simulations of their papers' events in continuous time."""

import heapq
from itertools import permutations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import linear, make_rounds, opposite_groups, quick_key, run

from jaxfl.algorithms import fedasync, fedavg, fedbuff, fedprox
from jaxfl.algorithms.steps.staleness import discount
from jaxfl.core import tree
from jaxfl.simulation import clock, participation

C = 5
STEPS = 14
DURATIONS = np.random.default_rng(2).lognormal(size=C)
DATA = opposite_groups(clients=C)


def known(key, before, after, ids):
    """Local training by a rule that NumPy can repeat: a third of the way to (id - 2) / 2."""
    ids = (ids - 2.0) / 2
    return jax.tree.map(lambda x: x + (ids.reshape(-1, *[1] * (x.ndim - 1)) - x) / 3, before)


def train(start, client):
    return start + ((client - 2.0) / 2 - start) / 3


def flat(model):
    return np.asarray(tree.ravel(tree.broadcast(model, 1))[0], np.float64)


def simulate(x, buffer, step):
    """The server's model after each step, from events in continuous time.

    Args:
      x: the initial model.
      buffer: the number of arrivals for which the server waits.
      step: (x, arrivals) -> x, where an arrival is (trained, start, how old the start is).
    """
    events = [(duration, client, x, 0) for client, duration in enumerate(DURATIONS)]
    heapq.heapify(events)
    arrived, models = [], []
    while len(models) < STEPS:
        now, client, start, version = heapq.heappop(events)
        arrived.append((client, train(start, client), start, len(models) - version))
        if len(arrived) == buffer:
            x = step(x, [rest for _, *rest in arrived])
            models.append(x)
            for one, *_ in arrived:
                heapq.heappush(events, (now + DURATIONS[one], one, x, len(models)))
            arrived = []
    return models


def states(algorithm, buffer):
    """The states before the first round and after each, the infos and the cohorts."""
    ids, _ = clock.arrivals(DURATIONS, buffer, STEPS)
    advance = make_rounds(algorithm, participation.schedule(ids))
    state = algorithm.init(quick_key(0), DATA.train)
    found, infos = [state], []
    for number in range(STEPS):
        state, (info, _) = advance(quick_key(1), DATA, state, number, 1)
        found.append(state)
        infos.append(info)
    return found, infos, np.sort(ids, axis=1)


@pytest.mark.slow
@pytest.mark.parametrize("buffer", [1, 2])
def test_fedbuff_moves_as_the_events_of_its_paper(buffer):
    found, infos, _ = states(fedbuff(linear(uplink=known), rate=0.7), buffer)

    def step(x, arrived):
        deltas = [(new - start) / np.sqrt(1 + age) for new, start, age in arrived]
        return x + 0.7 * sum(deltas) / buffer

    expected = simulate(flat(found[0].server[0]), buffer, step)
    for state, model in zip(found[1:], expected, strict=True):
        np.testing.assert_allclose(flat(state.server[0]), model, atol=2e-6)
    assert max(float(info.metrics["largest_staleness"][0]) for info in infos) > 2


@pytest.mark.long(every=3)
@pytest.mark.parametrize(
    ("hyper", "scale"),
    [
        ({"staleness": "constant"}, lambda d: 1.0),
        ({"a": 0.8}, lambda d: (d + 1) ** -0.8),
        ({"staleness": "hinge", "a": 2.0, "b": 1.0}, lambda d: 1 if d <= 1 else 1 / (2 * d - 1)),
    ],
)
def test_fedasync_moves_as_the_events_of_its_paper(hyper, scale):
    found, infos, _ = states(fedasync(linear(uplink=known), alpha=0.4, **hyper), 1)
    ages = []

    def step(x, arrived):
        ((new, _, age),) = arrived
        ages.append(age)
        return (1 - 0.4 * scale(age)) * x + 0.4 * scale(age) * new

    expected = simulate(flat(found[0].server[0]), 1, step)
    for state, model in zip(found[1:], expected, strict=True):
        np.testing.assert_allclose(flat(state.server[0]), model, atol=2e-6)
    assert [float(info.metrics["staleness"][0]) for info in infos] == ages


@pytest.mark.slow
def test_fedasync_mixes_in_the_models_of_a_cohort_one_after_the_other():
    """In any order, and not always in the same; each has become more stale by those before it."""
    found, infos, cohorts = states(fedasync(linear(uplink=known), alpha=0.4), 3)
    orders = []
    for before, after, info, ids in zip(found, found[1:], infos, cohorts, strict=False):
        fits = []
        for order in permutations(range(3)):
            x, mixed = flat(before.server[0]), int(before.server[1])
            ages = []
            for place in order:
                client = ids[place]
                start = flat(jax.tree.map(lambda leaf, c=client: leaf[c], before.clients.memory))
                ages.append(mixed - int(before.clients.record[client]))
                step = 0.4 / np.sqrt(1 + ages[-1])
                x = (1 - step) * x + step * train(start, client)
                mixed += 1
            if np.abs(x - flat(after.server[0])).max() < 2e-6:
                fits.append(order)
                assert float(info.metrics["staleness"][0]) == pytest.approx(np.mean(ages))
        assert len(fits) == 1
        orders.append(fits[0])
        assert int(after.server[1]) == int(before.server[1]) + 3
        np.testing.assert_allclose(info.weights.sum(axis=-1), 1, atol=1e-6)
    assert len(set(orders)) > 2


@pytest.mark.slow
def test_fedbuff_with_everybody_in_time_is_fedavg_of_equal_clients():
    state, info, _ = run(fedbuff(linear()), DATA, 3)
    expected, said, _ = run(fedavg(linear()), DATA, 3)
    np.testing.assert_allclose(flat(state.server[0]), flat(expected.server), atol=1e-6)
    np.testing.assert_allclose(info.weights, said.weights, atol=1e-6)
    assert not np.any(info.metrics["staleness"])


@pytest.mark.slow
def test_fedasync_of_one_fresh_client_at_alpha_one_is_fedprox():
    who = participation.schedule([[1]])
    state, _, _ = run(fedasync(linear(), alpha=1.0, rho=0.5), DATA, 3, participation=who)
    expected, _, _ = run(fedprox(linear(), mu=0.5), DATA, 3, participation=who)
    np.testing.assert_allclose(flat(state.server[0]), flat(expected.server), atol=1e-6)


@pytest.mark.slow
def test_the_proximal_term_of_fedasync_is_to_the_start_however_stale_it_is():
    """Client 0 arrives after client 1, and has the initial model still."""
    who = participation.schedule([[1], [0]])
    method = fedasync(linear(), alpha=1.0, staleness="constant", rho=0.5)
    state, _, _ = run(method, DATA, 2, participation=who)
    alone = participation.schedule([[0]])
    expected, _, _ = run(fedprox(linear(), mu=0.5), DATA, 1, participation=alone, start=1)
    np.testing.assert_allclose(flat(state.server[0]), flat(expected.server), atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("method", [fedasync, fedbuff])
def test_a_client_that_was_away_trains_from_what_it_received_then(method):
    """Not from the server's newest model, which everybody deploys."""
    table = [[0, 1], [2, 3], [2, 4], [3, 4]]
    algorithm = method(linear(uplink=known))
    state, _, _ = run(algorithm, DATA, 4, participation=participation.schedule(table))
    first, _, _ = run(algorithm, DATA, 1, participation=participation.schedule(table))
    for client in (0, 1):
        np.testing.assert_array_equal(
            state.clients.memory["params"]["Dense_0"]["kernel"][client],
            first.server[0]["params"]["Dense_0"]["kernel"],
        )
    assert state.clients.record.tolist() == (
        [1, 1, 3, 4, 4] if method is fedbuff else [2, 2, 6, 8, 8]
    )


@pytest.mark.long
@pytest.mark.parametrize("method", [fedasync, fedbuff])
def test_a_client_that_has_not_reported_counts_nothing(method):
    def broken(key, before, after, ids):
        return jax.tree.map(
            lambda x, y: jnp.where((ids == 1).reshape(-1, *[1] * (x.ndim - 1)), jnp.nan, y),
            before,
            known(key, before, after, ids),
        )

    state, info, _ = run(method(linear(uplink=broken)), DATA, 1)
    assert info.reported[0].tolist() == [True, False, True, True, True]
    np.testing.assert_array_equal(info.weights[0][:, 1], 0)
    assert state.clients.record[1] == 0
    if method is fedasync:
        assert int(state.server[1]) == 4
    else:
        x = flat(method(linear()).init(jax.random.fold_in(quick_key(0), 10**6), DATA.train)
                 .server[0])  # fmt: skip
        expected = np.mean([train(x, client) for client in (0, 2, 3, 4)], axis=0)
        np.testing.assert_allclose(flat(state.server[0]), expected, atol=2e-6)


def test_no_discount_exceeds_one_or_grows_with_staleness():
    d = jnp.arange(30)
    for form in ("constant", "polynomial", "hinge"):
        found = np.asarray(discount(d, form, 0.7, 3.0))
        assert found[0] == 1
        assert (np.diff(found) <= 0).all()
        assert (found > 0).all()
