"""SFL: rounds equal closed forms, with a given graph, with a learned graph, and with both."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import deployed, federation, jit, make_rounds, quadratic, quick_key, run

import jaxfl
from jaxfl.algorithms import sfl
from jaxfl.core import tree
from jaxfl.core.errors import InputError

GRAPH = np.array([[0, 2, 0, 0], [2, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0]], np.float32)


@pytest.mark.long(every=3)
@pytest.mark.parametrize("learned", [None, 0.05, "only"])
def test_rounds_equal_the_closed_form(learned):
    """If all examples are x, the optimum is (x + lam g + lam u) / (1 + 2 lam); 2 is absent."""
    x = np.random.default_rng(0).normal(size=(4, 3))
    lam = 0.4
    ids = np.array([0, 1, 3])
    data = federation(
        [np.tile(row, (10, 1)).astype(np.float32) for row in x], [np.zeros(10, np.int32)] * 4
    )
    given = {} if learned == "only" else {"graph": jnp.asarray(GRAPH), "learned": learned}
    algorithm = sfl(quadratic(steps=150), lam=lam, hops=2, temperature=0.5, **given)
    start = jit(algorithm.init)(quick_key(1), data.train)
    cohort = jaxfl.participation.schedule(ids[None])
    state, (info, _) = make_rounds(algorithm, cohort)(quick_key(0), data, start, 0, 3)

    initial = np.asarray(start.server["w"], np.float64)
    u = np.tile(initial, (3, 1))
    g = initial
    learned_weight = {"only": 1.0, None: 0.0}.get(learned, learned)
    edges = np.maximum(GRAPH, np.eye(4))[ids][:, ids]
    for number in range(3):
        w = (x[ids] + lam * g + lam * u) / (1 + 2 * lam)
        moved = (w - g) / np.linalg.norm(w - g, axis=1, keepdims=True)
        soft = np.exp(moved @ moved.T / 0.5)
        found = soft / soft.sum(axis=1, keepdims=True)
        given_rows = edges / edges.sum(axis=1, keepdims=True)
        rows = learned_weight * found + (1 - learned_weight) * given_rows
        np.testing.assert_allclose(info.weights[number], rows @ rows, atol=1e-5)
        u = rows @ rows @ w
        g = u.mean(axis=0)
    np.testing.assert_allclose(deployed(algorithm, state, 4)["w"][ids], u, atol=1e-5)
    np.testing.assert_allclose(state.server["w"], g, atol=1e-5)


def test_a_client_that_refuses_its_mixture_is_attracted_to_its_own_model():
    """The mean from which all clients start is still that of the mixtures."""
    x = np.random.default_rng(0).normal(size=(4, 3))
    lam = 0.4
    refusing = 1
    data = federation(
        [np.tile(row, (10, 1)).astype(np.float32) for row in x], [np.zeros(10, np.int32)] * 4
    )

    def accept(own, offered, cohort):
        accepted = cohort.ids != refusing
        return tree.choose(accepted, offered, own), accepted

    task = quadratic(steps=150)._replace(accept=accept)
    algorithm = sfl(task, graph=jnp.asarray(GRAPH), lam=lam, hops=1)
    state, info, _ = run(algorithm, data, 2)

    edges = np.maximum(GRAPH, np.eye(4))
    rows = edges / edges.sum(axis=1, keepdims=True)
    initial = np.asarray(
        jit(algorithm.init)(jax.random.fold_in(quick_key(0), 10**6), data.train).server["w"]
    )
    g = initial
    centre = np.tile(initial, (4, 1))
    for _ in range(2):
        w = (x + lam * g + lam * centre) / (1 + 2 * lam)
        offered = rows @ w
        g = offered.mean(axis=0)
        centre = offered.copy()
        centre[refusing] = w[refusing]
    np.testing.assert_allclose(deployed(algorithm, state, 4)["w"], centre, atol=1e-5)
    np.testing.assert_allclose(state.server["w"], g, atol=1e-5)
    rows[refusing] = np.eye(4)[refusing]
    np.testing.assert_allclose(info.weights[1], rows, atol=1e-5)


def test_a_weight_of_the_learned_graph_needs_a_given_graph():
    with pytest.raises(InputError, match="give graph"):
        sfl(quadratic(), learned=0.1)
