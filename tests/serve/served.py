"""Methods that are served in this process, and the same rounds by `make_rounds`."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from flower_nodes import Nodes
from toys import SIZES, opposite_groups, shallow

import jaxfl
from jaxfl.algorithms import ALGORITHMS
from jaxfl.serve.client import client_app
from jaxfl.serve.client_half import client_of
from jaxfl.serve.flower import FlowerStrategy

CLIENTS = len(SIZES)
EXAMPLE = (np.zeros(8, np.float32), np.int32(0))


@functools.cache
def federation():
    return opposite_groups(sizes=SIZES)


@functools.cache
def method(name, task=None, **options):
    return ALGORITHMS[name](task or shallow(), **options)


@functools.cache
def app_of(algorithm, task=None, directory=None):
    """One for all tests of a method, so that its clients are compiled once."""
    data = functools.partial(client_of, federation())
    return client_app(
        algorithm,
        task or shallow(),
        data,
        directory=directory,
        send_loss=True,
        send_scores=True,
    )


def strategy_of(algorithm, task=None, participation=None, **options):
    return FlowerStrategy(
        algorithm,
        task or shallow(),
        participation or jaxfl.participation.full(CLIENTS),
        clients=CLIENTS,
        example=EXAMPLE,
        key=jax.random.key(5),
        init_key=jax.random.key(1),
        **options,
    )


def serve(algorithm, rounds, task=None, participation=None, **nodes):
    """The strategy and the nodes after some rounds."""
    strategy = strategy_of(algorithm, task, participation)
    grid = Nodes(app_of(algorithm, task), CLIENTS, **nodes)
    strategy.start(grid, num_rounds=rounds)
    return strategy, grid


def simulate(algorithm, rounds, task=None, loses=None):
    """The state, the info and the scores after the same rounds; loses: (round, ids) -> [M]."""
    state = jax.jit(algorithm.init)(jax.random.key(1), federation().train)
    infos = []
    for number in range(rounds):
        lost = None if loses is None else lambda _, ids, __, number=number: loses(number, ids)
        step = rounds_of(algorithm) if loses is None else rounds_of(algorithm, lost=lost)
        state, (info, _) = step(jax.random.key(5), federation(), state, number, 1)
        infos.append(info)
    info = jax.tree.map(lambda *x: np.concatenate(x), *infos)
    return state, info, evaluate(algorithm, task, state)


def lossy(algorithm, rounds, participation, drop):
    """The state, the info, the scores and the ids after rounds in which uploads are lost."""
    state = jax.jit(algorithm.init)(jax.random.key(1), federation().train)
    step = rounds_of(algorithm, participation, lost=drop)
    state, (info, ids) = step(jax.random.key(5), federation(), state, 0, rounds)
    info, ids = jax.tree.map(np.asarray, (info, ids))
    return state, info, evaluate(algorithm, None, state), ids


@functools.cache
def rounds_of(algorithm, participation=None, lost=None):
    participation = participation or jaxfl.participation.full(CLIENTS)
    return jaxfl.make_rounds(algorithm, participation, lost=lost)


def evaluate(algorithm, task, state):
    scores = jaxfl.make_evaluate(algorithm, task or shallow(), after="none")
    ids = jnp.arange(CLIENTS)
    return scores(jax.random.key(0), federation(), state, ids).deployed


def alike(strategy, state, info, scores, tolerance=2e-6):
    """Asserts that a served method is where the simulation is."""

    def close(a, b):
        for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
            np.testing.assert_allclose(np.asarray(x), np.asarray(y), rtol=0, atol=tolerance)

    close(strategy.progress.server, state.server)
    close(strategy.progress.record, state.clients.record)
    logs = strategy.rounds
    np.testing.assert_array_equal(np.stack([log.reported for log in logs]), info.reported)
    # Weights that clients choose themselves stay with them.
    if logs[0].weights is not None:
        close(jax.tree.map(lambda *x: np.stack(x), *[log.weights for log in logs]), info.weights)
    loss = np.stack([log.loss for log in logs])
    close(np.where(info.reported, loss, 0), np.where(info.reported, info.loss, 0))
    np.testing.assert_allclose(strategy.scores[-1].test, scores.test, atol=1e-6)
    np.testing.assert_allclose(strategy.scores[-1].val, scores.val, atol=1e-6)
