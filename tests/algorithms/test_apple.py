"""APPLE: rounds of a quadratic loss beside NumPy, step by step."""

import jax
import numpy as np
import pytest
from toys import deployed, federation, full, opposite_groups, quadratic, quick_key, run, shallow

import jaxfl
from jaxfl.algorithms import apple, local

STEPS = 7
RATE = 0.1  # of `quadratic`
# Each client has copies of one example, so that all of its batches are alike.
EXAMPLES = np.array([[1.0, 0.5, -1.0], [0.0, 2.0, 0.3], [-1.0, 1.0, 1.0], [0.5, -0.5, 2.0]])
SIZES = [10, 5, 15, 10]


def four_clients():
    xs = [np.tile(x, (n, 1)).astype(np.float32) for x, n in zip(EXAMPLES, SIZES, strict=True)]
    return federation(xs, [np.zeros(n, np.int32) for n in SIZES])


def round_in_numpy(core, p, rounds, ids, p0, options):
    """A round of the clients `ids`, one after the other: cores, p, and the deployed models."""
    new_core, new_p, deployed = core.copy(), p.copy(), {}
    for i in ids:
        others = [j for j in ids if j != i and rounds[j] > 0]
        w, q = core[i].copy(), p[i].copy()
        share = rounds[i] / options["until"]
        if options["schedule"] == "cosine":
            share = (1 + np.cos(np.pi * share)) / 2
        else:
            share = np.exp(share * np.log(0.001))
        strength = options["mu"] * share * (rounds[i] < options["until"])
        # What is not known weighs for the client's own core.
        unknown = sum(p[i, j] for j in range(len(p)) if j != i and j not in others)

        def personal(w, q, i=i, others=others, unknown=unknown):
            return (q[i] + unknown) * w + sum(q[j] * core[j] for j in others)

        for _ in range(STEPS):
            slope = personal(w, q) - EXAMPLES[i]
            by_core = (q[i] + unknown) * slope
            by_p = np.zeros(len(p))
            for j in [i, *others] if others else []:
                by_p[j] = slope @ (w if j == i else core[j]) + strength * (q[j] - p0[j])
            w = w - RATE * options["core_rate"] * by_core
            q = q - RATE * options["rate"] * by_p
        new_core[i], new_p[i], deployed[i] = w, q, personal(w, q)
    return new_core, new_p, deployed


@pytest.mark.parametrize("schedule", ["exponential", "cosine"])
def test_rounds_follow_the_steps_of_numpy(schedule):
    """With cohorts in which a client is absent, for the first time or not."""
    options = {"rate": 0.3, "core_rate": 2.0, "mu": 0.5, "until": 3, "schedule": schedule}
    chosen = np.array([[0, 2, 1], [2, 0, 3], [3, 1, 0], [1, 2, 3], [0, 1, 2]])
    algorithm = apple(quadratic(STEPS), **options)
    data = four_clients()
    who = jaxfl.participation.schedule(chosen)
    state, info, cohorts = run(algorithm, data, len(chosen), participation=who)

    start = jax.jit(algorithm.init)(jax.random.fold_in(quick_key(0), 10**6), data.train)
    core = np.asarray(start.clients.record.core["w"], np.float64)
    counts = np.asarray(data.train.mask).sum(axis=1)
    p0 = counts / counts.sum()
    np.testing.assert_allclose(start.clients.memory.relation, np.tile(p0, (4, 1)), rtol=1e-6)
    p, rounds, served = np.tile(p0, (4, 1)), np.zeros(4, int), core.copy()
    for number, ids in enumerate(cohorts):
        known = [j for j in ids if rounds[j] > 0]
        core, p, models = round_in_numpy(core, p, rounds, ids, p0, options)
        for place, i in enumerate(ids):
            served[i] = models[i]
            found = np.array([p[i, j] if j == i or j in known else 0 for j in ids])
            found[place] += sum(p[i, j] for j in range(4) if j != i and j not in known)
            found = np.maximum(found, 0)
            np.testing.assert_allclose(info.weights[number, place], found / found.sum(), atol=2e-4)
        rounds[ids] += 1
    np.testing.assert_array_equal(state.clients.record.rounds, rounds)
    np.testing.assert_allclose(state.clients.record.core["w"], core, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(state.clients.memory.relation, p, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(deployed(algorithm, state, 4)["w"], served, rtol=1e-3, atol=1e-4)
    assert np.abs(p - p0).max() > 0.05


@pytest.mark.slow
def test_the_first_round_is_local_training():
    data = opposite_groups(clients=4, sizes=[40, 25, 31, 40])
    state, info, _ = run(apple(shallow(), rate=0.1), data, 1, participation=full(4))
    expected, _, _ = run(local(shallow()), data, 1, participation=full(4))
    np.testing.assert_array_equal(info.weights[0], np.eye(4))
    for one, other in zip(
        jax.tree.leaves(state.clients.memory.model),
        jax.tree.leaves(expected.clients.memory),
        strict=True,
    ):
        np.testing.assert_allclose(one, other, atol=1e-5)


@pytest.mark.slow
def test_the_regulariser_holds_the_weights_until_it_ends():
    """A strong one keeps p at the clients' fractions, as long as lambda is not 0."""
    data = opposite_groups(clients=4)
    _, held, _ = run(apple(shallow(), rate=0.01, mu=500.0, until=100, schedule="cosine"), data, 4)
    _, free, _ = run(apple(shallow(), rate=0.01, mu=500.0, until=0), data, 4)
    assert (
        np.abs(held.metrics["own"] - 1 / 4).max() < 0.2 * np.abs(free.metrics["own"] - 1 / 4).max()
    )


def test_clients_of_the_other_group_lose_their_weight():
    data = opposite_groups(clients=6)
    state, info, _ = run(apple(shallow(), rate=0.1), data, 20)
    same = np.equal.outer(np.arange(6) % 2, np.arange(6) % 2)
    p = np.asarray(state.clients.memory.relation)
    assert p[~same].max() < p[same & ~np.eye(6, dtype=bool)].min()
    # Negative weights count as 0 in the normal form.
    assert (info.metrics["negative"][-1] > 0) == (p < 0).any()
    assert info.weights[-1].min() >= 0
