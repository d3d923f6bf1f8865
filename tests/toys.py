"""Small federations with known answers, and the helpers of the tests."""

import functools
import os
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn

import jaxfl
from jaxfl.core.ragged import ragged
from jaxfl.core.types import Cohort, Dataset, Federation, Problem, State, Task
from jaxfl.models.mlp import mlp
from jaxfl.simulation import mesh
from jaxfl.training.gradients import full_gradient, full_loss
from jaxfl.training.trainer import trainer
from jaxfl.training.upload import faithful, upload_through

# The compiler options of a user, for programs whose bits are compared; conftest.py sets others.
SHIPPED = (
    {"xla_cpu_use_fusion_emitters": True}
    if "xla_cpu_use_fusion" in os.environ.get("XLA_FLAGS", "")
    else None
)
# The number of examples of each client in most tests of the contract.
SIZES = [40, 25, 31, 40, 12, 9]


def once(make):
    """As `functools.cache`, for arrays that tests share; a thread of its own makes them.

    The test that asks first may be in a trace, or in `jax.set_mesh`, whose arrays are on all its
    devices and stay there: the programs of later tests would be programs of these devices too, with
    other last digits. Traces and meshes are those of a thread.
    """

    @functools.cache
    @functools.wraps(make)
    def made_alone(*arguments):
        with ThreadPoolExecutor(1) as alone:
            return alone.submit(make, *arguments).result()

    return made_alone


def stack(xs, ys, pad=0, rubbish=0.0):
    """The clients' x and y as a Dataset [C, n, ...], each with at least `pad` rows of rubbish."""
    longest = max(map(len, xs)) + pad

    def fill(values, value):
        out = np.full((len(values), longest, *values[0].shape[1:]), value, values[0].dtype)
        for row, v in zip(out, values, strict=True):
            row[: len(v)] = v
        return jnp.asarray(out)

    mask = np.arange(longest)[None] < np.array([len(x) for x in xs])[:, None]
    return Dataset(fill(xs, rubbish), fill(ys, 0), jnp.asarray(mask))


def federation(xs, ys, pad=0, rubbish=0.0):
    """The last fifth of each client's examples is for validation; all examples are the test set."""
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
    """Even clients label examples by the side of a plane, odd clients in the opposite way."""
    rng = np.random.default_rng(seed)
    normal = rng.normal(size=features)
    xs = []
    ys = []
    for client in range(clients):
        x = rng.normal(size=(sizes[client] if sizes else examples, features)).astype(np.float32)
        xs.append(x)
        ys.append(((x @ normal > 0) ^ (client % 2 == 1)).astype(np.int32))
    return federation(xs, ys, pad, rubbish)


def coins(clients=4):
    """Clients with the same examples of two kinds, where only label frequencies can be learned.

    Returns:
      The federation, the two kinds [2, 8], and the frequencies of the labels in each [2, 2].
    """
    kinds = np.array([[1, 0, 1, 0, 1, 0, 1, 0], [0, 1, 0, -1, 0, 1, 0, -1]], np.float32)
    # The labels of four examples of each kind.
    labels = np.array([[1, 1, 1, 0], [1, 0, 1, 0]], np.int32)
    # The last eight examples are for validation.
    x = np.tile(kinds.repeat(4, axis=0), (5, 1))
    y = np.tile(labels.ravel(), 5)
    ones = labels.mean(axis=1)
    frequencies = np.stack([1 - ones, ones], axis=1)
    return federation([x] * clients, [y] * clients), jnp.asarray(kinds), frequencies


@functools.cache
def linear(**options):
    """Logistic regression on 8 features."""
    options = {"steps": 5, "batch_size": 8, "optimizer": jaxfl.sgd(0.1)} | options
    return jaxfl.classification(mlp(2, hidden=()), jnp.zeros(8), **options)


@functools.cache
def shallow(**options):
    """As `linear`, with a hidden layer of 8, so that there is a body and a head."""
    options = {"steps": 5, "batch_size": 8, "optimizer": jaxfl.sgd(0.1)} | options
    return jaxfl.classification(mlp(2, hidden=(8,)), jnp.zeros(8), **options)


class Normed(nn.Module):
    """A layer, its outputs normalised over the batch, dropout, and a layer.

    The first layer has no bias: normalisation would take it away, and leave its gradient to
    rounding errors.
    """

    head = "Dense_1"

    @nn.compact
    def __call__(self, x, train: bool = False, *, until_head: bool = False):
        x = nn.BatchNorm(use_running_average=not train, momentum=0.8)(
            nn.Dense(8, use_bias=False)(x)
        )
        x = nn.Dropout(0.1, deterministic=not train)(nn.relu(x))
        return x if until_head else nn.Dense(2)(x)

    def features(self, x):
        return self(x, until_head=True)


@functools.cache
def normed(**options):
    """As `shallow`, with batch normalisation and dropout."""
    options = {"steps": 5, "batch_size": 8, "optimizer": jaxfl.sgd(0.1)} | options
    return jaxfl.classification(Normed(), jnp.zeros(8), **options)


class Marked(nn.Module):
    """A model that normalises the first six features alone, over the batch, as they come.

    Its statistics are those of the last batch of data that passed through it in training, whatever
    its parameters are.
    """

    rate: float = 0.5
    head = "Dense_1"

    @nn.compact
    def __call__(self, x, train: bool = False, *, until_head: bool = False):
        norm = nn.BatchNorm(use_running_average=not train, momentum=0.0, epsilon=1.0)
        x = jnp.concatenate([norm(x[:, :6]), x[:, 6:]], axis=1)
        x = nn.Dropout(self.rate, deterministic=not train)(nn.relu(nn.Dense(8)(x)))
        return x if until_head else nn.Dense(2)(x)

    def features(self, x, train: bool = False):
        return self(x, train, until_head=True)


@functools.cache
def marked(rate=0.5, **options):
    """A task with `Marked`, in which clients take different numbers of steps."""
    options = {"epochs": 1, "batch_size": 8, "optimizer": jaxfl.sgd(0.1)} | options
    return jaxfl.classification(Marked(rate), jnp.zeros(14), **options)


@once
def marked_groups():
    """`opposite_groups` of six clients, with six features more: client i has 1 in the i-th of them.

    So each batch of client i has the mean e_i and the variance 0 in these features.
    """
    data = opposite_groups(sizes=SIZES, pad=3, rubbish=1e3)

    def mark(part):
        marks = np.broadcast_to(np.eye(6, dtype=np.float32)[:, None], (*part.mask.shape, 6))
        return part._replace(x=jnp.concatenate([jnp.asarray(marks), part.x], axis=2))

    return Federation(*(mark(part) for part in data))


def quadratic(steps=20, learning_rate=0.1):
    """The loss of the model w on an example x is |w - x|^2 / 2; the best w is the mean of all x."""

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
        if "epochs" in changes:
            options |= {"steps": None}
        return trainer(objective, **options)

    def gradient(objective):
        return full_gradient(objective, batch_size=4)

    def evaluate(objective):
        return full_loss(objective, batch_size=4)

    return Task(problem, train, gradient, evaluate, upload_through(faithful))


@functools.cache
def made(factory, make_task=None, **options):
    """`factory(linear(**options))`, the same object each time, so that it is compiled only once."""
    return factory((make_task or linear)(**options))


@functools.cache
def full(clients):
    return jaxfl.participation.full(clients)


@functools.cache
def half(clients):
    return jaxfl.participation.uniform(clients, 0.5)


@functools.cache
def make_rounds(algorithm, participation, exact=False):
    """`jaxfl.make_rounds`, with the compiler options of a user if `exact`, see conftest.py."""
    rounds = jaxfl.make_rounds(algorithm, participation)
    if exact and SHIPPED:
        return jax.jit(rounds, static_argnums=4, compiler_options=SHIPPED)
    return rounds


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
    """The state, info and ids after some rounds, run one by one, so that one program is enough."""
    clients = federation.train.mask.shape[0]
    if state is None:
        first_key = init_key() if key is None else jax.random.fold_in(key, 10**6)
        state = jit(algorithm.init)(first_key, federation.train)
    key = run_key() if key is None else key
    advance = make_rounds(algorithm, participation or full(clients), exact)
    outputs = []
    for number in range(start, start + rounds):
        state, output = advance(key, federation, state, number, 1)
        outputs.append(output)
    if any(isinstance(x, jax.core.Tracer) for x in jax.tree.leaves(outputs)):
        info, ids = jax.tree.map(lambda *x: jnp.concatenate(x), *outputs)
    else:
        info, ids = jax.tree.map(lambda *x: np.concatenate(x), *mesh.fetch(outputs))
    return state, info, ids


def check_relabelling(algorithm, federation, state):
    """A round of six clients in another order gives what it gives them in the first one."""
    order = np.array([3, 0, 5, 1, 4, 2])
    step, key = jit(algorithm.round), jax.random.key(7)

    def cohort_of(ids):
        return Cohort(ids, pick(federation.train, ids), pick(federation.val, ids))

    plain, info = step(key, state, cohort_of(np.arange(order.size)))
    moved_state = State(pick(state.clients, order), state.server)
    moved, moved_info = step(key, moved_state, cohort_of(order))
    close(moved.clients, pick(plain.clients, order))
    close(moved.server, plain.server)
    close(moved_info.loss, info.loss[order])
    close(moved_info.weights, jax.tree.map(lambda w: w[order][:, order], info.weights))


@once
def run_key():
    """The key of `run`'s rounds if none is given."""
    return jax.random.key(0)


@once
def init_key():
    """The key of `run`'s initial state if no key is given, made once for all algorithms."""
    return jax.random.fold_in(run_key(), 10**6)


def pick(tree, ids):
    """Rows `ids` of every leaf, taken by NumPy, so that nothing has to be compiled."""
    return jax.tree.map(lambda x: np.asarray(x)[ids], tree)


def deployed(algorithm, state, clients, data=None):
    """The deployed models of all clients; the data are for methods that look at them to deploy."""
    train, val = (None, None) if data is None else (data.train, data.val)
    return jit(algorithm.models)(state, Cohort(np.arange(clients), train, val))


def predictors(algorithm, state, train):
    """The first argument of `apply` when clients predict: their models, or what they recall."""
    everybody = Cohort(np.arange(train.mask.shape[0]), train, train)
    models = jit(algorithm.models)(state, everybody)
    return models if algorithm.recall is None else jit(jax.vmap(algorithm.recall))(models, train)


def equal(a, b):
    """Asserts that two pytrees have the same structure and the same bits."""
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(np.asarray(x), np.asarray(y))


def close(a, b, tolerance=1e-5):
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(np.asarray(x), np.asarray(y), rtol=tolerance, atol=tolerance)


def differ(a, b):
    """Whether two pytrees of the same structure differ in any element."""
    return any(
        (np.asarray(x) != np.asarray(y)).any()
        for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    )


def unpadded(data):
    """The federation with the same examples in arrays without padding, in an order of their own."""

    def by_rows(part):
        mask = np.asarray(part.mask) > 0
        assert (mask == np.sort(mask, axis=1)[:, ::-1]).all(), "padding comes last"
        place = np.random.default_rng(0).permutation(mask.sum())
        parts = np.split(place, np.cumsum(mask.sum(axis=1))[:-1])

        def leaf(x):
            values = np.asarray(x)[mask]
            return ragged(values[np.argsort(place)], parts, length=mask.shape[1])

        return part._replace(x=leaf(part.x), y=leaf(part.y))

    return jaxfl.types.Federation(*(by_rows(part) for part in data))
