"""Federations so small that the right answer is known."""

import functools
import os

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn

import jaxfl
from jaxfl import mesh
from jaxfl.gradients import full_gradient, full_loss
from jaxfl.local import trainer
from jaxfl.models.mlp import mlp
from jaxfl.task import faithful, upload_through
from jaxfl.types import Dataset, Federation, Problem, Task

# Compiler options of programs whose bits are compared: as shipped, where the suite is compiled
# otherwise (conftest.py).
SHIPPED = (
    {"xla_cpu_use_fusion_emitters": True}
    if "xla_cpu_use_fusion" in os.environ.get("XLA_FLAGS", "")
    else None
)
SIZES = [40, 25, 31, 40, 12, 9]  # examples of each client in most tests of the contract


def stack(xs, ys, pad=0, rubbish=0.0):
    """Lists of a client's x and y -> Dataset [C, n, ...], `pad` rows longer than needed and padded with rubbish."""
    longest = max(map(len, xs)) + pad

    def fill(values, value):
        out = np.full((len(values), longest, *values[0].shape[1:]), value, values[0].dtype)
        for row, v in zip(out, values, strict=True):
            row[: len(v)] = v
        return jnp.asarray(out)

    mask = np.arange(longest)[None] < np.array([len(x) for x in xs])[:, None]
    return Dataset(fill(xs, rubbish), fill(ys, 0), jnp.asarray(mask))


def federation(xs, ys, pad=0, rubbish=0.0):
    """The last fifth of each client's examples validates and the whole tests."""
    cuts = [len(x) - len(x) // 5 for x in xs]
    train = stack(
        [x[:c] for x, c in zip(xs, cuts, strict=True)],
        [y[:c] for y, c in zip(ys, cuts, strict=True)],
        pad,
        rubbish,
    )
    val = stack(
        [x[c:] for x, c in zip(xs, cuts, strict=True)],
        [y[c:] for y, c in zip(ys, cuts, strict=True)],
        pad + 1,
        rubbish,
    )
    return Federation(train, val, stack(xs, ys, pad, rubbish))


def opposite_groups(clients=6, examples=40, features=8, seed=0, sizes=None, pad=0, rubbish=0.0):
    """Even clients label by the side of a plane, odd clients the other way round: no one model can serve both."""
    rng = np.random.default_rng(seed)
    normal = rng.normal(size=features)
    xs, ys = [], []
    for client in range(clients):
        x = rng.normal(size=(sizes[client] if sizes else examples, features)).astype(np.float32)
        xs.append(x)
        ys.append(((x @ normal > 0) ^ (client % 2 == 1)).astype(np.int32))
    return federation(xs, ys, pad, rubbish)


def coins(clients=4):
    """Clients with the same examples, of two kinds, whose labels no model can tell but by their frequencies.

    Returns:
      The federation, the two kinds [2, 8], and the frequencies of the labels in each [2, 2].
    """
    kinds = np.array([[1, 0, 1, 0, 1, 0, 1, 0], [0, 1, 0, -1, 0, 1, 0, -1]], np.float32)
    labels = np.array([[1, 1, 1, 0], [1, 0, 1, 0]], np.int32)  # of four examples of each kind
    x, y = (
        np.tile(kinds.repeat(4, axis=0), (5, 1)),
        np.tile(labels.ravel(), 5),
    )  # the last eight validate
    ones = labels.mean(axis=1)
    return (
        federation([x] * clients, [y] * clients),
        jnp.asarray(kinds),
        np.stack([1 - ones, ones], axis=1),
    )


@functools.cache
def linear(**options):
    """Logistic regression on 8 features."""
    options = {"steps": 5, "batch_size": 8, "optimizer": jaxfl.sgd(0.1)} | options
    return jaxfl.classification(mlp(2, hidden=()), jnp.zeros(8), **options)


@functools.cache
def shallow(**options):
    """As `linear`, with a layer of 8 before: a body and a head."""
    options = {"steps": 5, "batch_size": 8, "optimizer": jaxfl.sgd(0.1)} | options
    return jaxfl.classification(mlp(2, hidden=(8,)), jnp.zeros(8), **options)


class Normed(nn.Module):
    """A layer, its outputs normalised over the batch, dropout, and a layer."""

    head = "Dense_1"

    @nn.compact
    def __call__(self, x, train: bool = False, *, until_head: bool = False):
        x = nn.BatchNorm(use_running_average=not train, momentum=0.8)(nn.Dense(8)(x))
        x = nn.Dropout(0.1, deterministic=not train)(nn.relu(x))
        return x if until_head else nn.Dense(2)(x)

    def features(self, x):
        return self(x, until_head=True)


@functools.cache
def normed(**options):
    """As `shallow`, with batch normalisation and dropout."""
    options = {"steps": 5, "batch_size": 8, "optimizer": jaxfl.sgd(0.1)} | options
    return jaxfl.classification(Normed(), jnp.zeros(8), **options)


def quadratic(steps=20, learning_rate=0.1):
    """Each example pulls the model w towards itself: loss |w - x|^2 / 2; the best w is the mean."""

    def init(key):
        return {"w": jax.random.normal(key, (3,))}

    def apply(params, x):
        return params["w"][None] - x

    def error(prediction, y):
        return 0.5 * jnp.sum(prediction**2, axis=-1)

    def score(prediction, y):
        return -jnp.sum(prediction**2, axis=-1)

    problem = Problem(init, apply, error, score)

    def train(objective, **changes):
        options = {"optimizer": optax.sgd(learning_rate), "batch_size": 4, "steps": steps} | changes
        return trainer(
            objective, **(options if "epochs" not in changes else options | {"steps": None})
        )

    def gradient(objective):
        return full_gradient(objective, batch_size=4)

    def evaluate(objective):
        return full_loss(objective, batch_size=4)

    return Task(problem, train, gradient, evaluate, upload_through(faithful))


@functools.cache
def made(factory, make_task=None, **options):
    """`factory(linear(**options))`, the same object each time, so that what it compiled is compiled once."""
    return factory((make_task or linear)(**options))


@functools.cache
def full(clients):
    return jaxfl.participation.full(clients)


@functools.cache
def half(clients):
    return jaxfl.participation.uniform(clients, 0.5)


@functools.cache
def make_rounds(algorithm, participation, exact=False):
    """As the library's; compiled as a user has it if `exact`, see conftest.py."""
    rounds = jaxfl.make_rounds(algorithm, participation)
    return (
        jax.jit(rounds, static_argnums=4, compiler_options=SHIPPED) if exact and SHIPPED else rounds
    )


make_evaluate = functools.cache(jaxfl.make_evaluate)
jit = functools.cache(jax.jit)


def run(
    algorithm,
    federation,
    rounds=3,
    *,
    key=None,
    participation=None,
    state=None,
    start=0,
    exact=False,
):
    """`rounds` rounds from the initial state -> (state, info, ids). One by one, so that one program does any number."""
    clients = federation.train.mask.shape[0]
    key = jax.random.key(0) if key is None else key
    if state is None:
        state = jit(algorithm.init)(jax.random.fold_in(key, 10**6), federation.train)
    advance = make_rounds(algorithm, participation or full(clients), exact)
    said = []
    for number in range(start, start + rounds):
        state, one = advance(key, federation, state, number, 1)
        said.append(one)
    traced = any(isinstance(x, jax.core.Tracer) for x in jax.tree.leaves(said))
    together, said = (jnp.concatenate, said) if traced else (np.concatenate, mesh.fetch(said))
    info, ids = jax.tree.map(lambda *x: together(x), *said)
    return state, info, ids


def pick(tree, ids):
    """`tree[ids]` of every leaf, on the host: a test's own arithmetic need not be compiled."""
    return jax.tree.map(lambda x: np.asarray(x)[ids], tree)


def deployed(algorithm, state, clients):
    return jit(algorithm.models)(state, np.arange(clients))


def predictors(algorithm, state, train):
    """What `apply` takes when the clients predict: their models, or what they recall."""
    models = deployed(algorithm, state, train.mask.shape[0])
    return models if algorithm.recall is None else jit(jax.vmap(algorithm.recall))(models, train)


def equal(a, b):
    """Same structure, same bits."""
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(np.asarray(x), np.asarray(y))


def close(a, b, tolerance=1e-5):
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(np.asarray(x), np.asarray(y), rtol=tolerance, atol=tolerance)


def differ(a, b):
    """Some bit of the two is not the same."""
    return any(
        (np.asarray(x) != np.asarray(y)).any()
        for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    )
