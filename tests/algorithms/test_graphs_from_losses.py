"""Graphs that clients find by losses or gradients: MeritFed, DPFL and CoBo, beside NumPy."""

import jax.numpy as jnp
import numpy as np
import pytest
from toys import federation, linear, made, opposite_groups, quadratic, quick_key, run

from jaxfl.algorithms import cobo, dpfl, local, meritfed
from jaxfl.core.messages import Clients
from jaxfl.core.types import State

rng = np.random.default_rng(1)
CENTRES = np.array([[1.0, 0, 0], [0.7, 0.5, 0], [-2.0, 1, 0], [0, 0, 1.5], [-1.8, 1, 0.2]])
SIZES = (20, 30, 10, 4, 15)
X = [
    (c + 0.5 * rng.normal(size=(n, 3))).astype(np.float32)
    for c, n in zip(CENTRES, SIZES, strict=True)
]
CUTS = [n - n // 5 for n in SIZES]  # client 3 has no validation examples
DATA = federation(X, [np.zeros(len(x), np.int32) for x in X])
BEGIN = rng.normal(size=(5, 3)).astype(np.float32)


def one_round(algorithm, steps=20):
    """The trained models, the new ones and the info of a round from different models."""
    begin = {"w": jnp.asarray(BEGIN)}
    state, info, _ = run(algorithm, DATA, 1, state=State(Clients(begin), ()))
    return trained_from(begin, 0, steps), state, info


def trained_from(models, number, steps):
    """The models after local training in this round."""
    alone = State(Clients(models), ())
    state, _, _ = run(made(local, quadratic, steps=steps), DATA, 1, state=alone, start=number)
    return np.asarray(state.clients.memory["w"], np.float64)


def test_a_round_of_meritfed_equals_numpy():
    algorithm = meritfed(quadratic(), rate=0.5, steps=4)
    trained, state, info = one_round(algorithm)
    for i, (x, cut) in enumerate(zip(X, CUTS, strict=True)):
        weights = np.full(5, 0.2) if cut < len(x) else np.eye(5)[i]
        for _ in range(4 if cut < len(x) else 0):
            slope = weights @ trained - x[cut:].mean(axis=0)
            weights = weights * np.exp(-0.5 * trained @ slope)
            weights /= weights.sum()
        np.testing.assert_allclose(info.weights[0, i], weights, atol=1e-5)
        np.testing.assert_allclose(state.clients.memory["w"][i], weights @ trained, atol=1e-5)
    # The five models, which of them have arrived, and the client's place among them.
    assert info.down.tolist() == [[5 * 3 + 5 + 1] * 5]


def test_a_round_of_dpfl_equals_a_greedy_choice_in_numpy():
    algorithm = dpfl(quadratic(), budget=2)
    trained, state, info = one_round(algorithm)
    edges = 0
    for i, (x, cut) in enumerate(zip(X, CUTS, strict=True)):
        chosen = [i]

        def loss(members, x=x, cut=cut):
            sizes = np.array([SIZES[j] for j in members])
            mean = sizes / sizes.sum() @ trained[members]
            return np.mean(np.sum((x[cut:] - mean) ** 2, axis=1))

        for _ in range(2 if cut < len(x) else 0):
            offers = {j: loss([*chosen, j]) for j in range(5) if j not in chosen}
            best = min(offers, key=offers.get)
            if offers[best] > loss(chosen):
                break
            chosen.append(best)
        weights = np.zeros(5)
        weights[chosen] = np.array(SIZES)[chosen] / np.array(SIZES)[chosen].sum()
        edges += len(chosen) - 1
        np.testing.assert_allclose(info.weights[0, i], weights, atol=1e-6)
        np.testing.assert_allclose(state.clients.memory["w"][i], weights @ trained, atol=1e-5)
    assert 0 < edges < 10
    np.testing.assert_allclose(info.metrics["edges"], edges / 5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("gamma", [0.1, None])
def test_rounds_of_cobo_equal_numpy(gamma):
    """With few local steps, so that clients are not yet where their own loss is lowest.

    Without gamma w is 1 where the gradients agree and 0 where they do not.
    """
    algorithm = cobo(quadratic(steps=1), pull=0.3, gamma=gamma)
    best = np.stack([x[:cut].mean(axis=0) for x, cut in zip(X, CUTS, strict=True)])
    w = 1 - np.eye(5)
    state = algorithm.init(quick_key(0), DATA.train)
    state = state._replace(clients=state.clients._replace(memory={"w": jnp.asarray(BEGIN)}))
    for number in range(2):
        trained = trained_from(state.clients.memory, number, steps=1)
        expected = trained.copy()
        state, info, _ = run(algorithm, DATA, 1, state=state, start=number)
        for i in range(5):
            for j in np.delete(np.arange(5), i):
                middle = (trained[i] + trained[j]) / 2
                agreement = (middle - best[i]) @ (middle - best[j])
                if gamma is None:
                    w[i, j] = agreement > 0
                else:
                    w[i, j] = np.clip(w[i, j] + gamma * agreement, 0, 1)
            for j in np.delete(np.arange(5), i):
                pull = min(0.3, 1 / max(w[i].sum(), 1))
                expected[i] -= pull * w[i, j] * (trained[i] - trained[j])
        np.testing.assert_allclose(state.clients.memory["w"], expected, atol=1e-5)
        np.testing.assert_allclose(state.clients.record * (1 - np.eye(5)), w, atol=1e-5)
        np.testing.assert_allclose(info.metrics["edges"], w.sum() / 5, atol=1e-5)
    between = w[~np.eye(5, dtype=bool)]
    assert between.min() < 0.9
    assert between.max() > 0
    assert info.up.tolist() == [[3 * 5] * 5]


@pytest.mark.slow
def test_they_find_opposite_groups():
    data = opposite_groups()
    same = np.arange(6)[:, None] % 2 == np.arange(6)[None] % 2
    for algorithm in (meritfed, dpfl, cobo):
        _, info, _ = run(algorithm(linear(steps=20)), data, 3)
        weights = np.asarray(info.weights[-1])
        assert weights[~same].max() < weights[same].min() or weights[~same].max() == 0, algorithm
