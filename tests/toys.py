"""The helpers of the tests: those of `jaxfl.testing`, and models and federations beside them."""

import functools
import os

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn

import jaxfl
from jaxfl.algorithms import local
from jaxfl.core.messages import Clients
from jaxfl.core.ragged import ragged
from jaxfl.core.types import Federation, Problem, State, Task
from jaxfl.testing import runs
from jaxfl.testing.equality import close as close
from jaxfl.testing.equality import differ as differ
from jaxfl.testing.equality import equal as equal
from jaxfl.testing.federations import SIZES as SIZES
from jaxfl.testing.federations import coins as coins
from jaxfl.testing.federations import federation as federation
from jaxfl.testing.federations import opposite_groups as opposite_groups
from jaxfl.testing.federations import stack as stack
from jaxfl.testing.once import once as once
from jaxfl.testing.quick_key import quick_key as quick_key
from jaxfl.testing.runs import deployed as deployed
from jaxfl.testing.runs import full as full
from jaxfl.testing.runs import half as half
from jaxfl.testing.runs import init_key as init_key
from jaxfl.testing.runs import jit as jit
from jaxfl.testing.runs import made as made
from jaxfl.testing.runs import make_evaluate as make_evaluate
from jaxfl.testing.runs import pick as pick
from jaxfl.testing.runs import predictors as predictors
from jaxfl.testing.runs import run_key as run_key
from jaxfl.testing.tasks import Normed as Normed
from jaxfl.testing.tasks import linear as linear
from jaxfl.testing.tasks import normed as normed
from jaxfl.testing.tasks import shallow as shallow
from jaxfl.training.channel import Channel, faithful
from jaxfl.training.gradients import full_gradient, full_loss
from jaxfl.training.trainer import trainer

# The compiler options of a user, for programs whose bits are compared; conftest.py sets others.
SHIPPED = (
    {"xla_cpu_use_fusion_emitters": True}
    if "xla_cpu_use_fusion" in os.environ.get("XLA_FLAGS", "")
    else None
)


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

    return Task(problem, train, gradient, evaluate, Channel(faithful))


def run(algorithm, federation, rounds=3, *, participation=None, exact=False, **options):
    """As `runs.run`; `exact` compiles with the options of a user, see conftest.py."""
    clients = federation.train.mask.shape[0]
    advance = make_rounds(algorithm, participation or full(clients), exact)
    options |= {"participation": participation, "advance": advance}
    return runs.run(algorithm, federation, rounds, **options)


def trained(models, data, number):
    """Models of `quadratic` [C, 3] after the local training of a round."""
    start = State(Clients({"w": jnp.asarray(models, jnp.float32)}), ())
    state, _, _ = run(made(local, quadratic), data, 1, state=start, start=number)
    return np.asarray(state.clients.memory["w"], np.float64)


@functools.cache
def make_rounds(algorithm, participation, exact=False):
    """`jaxfl.make_rounds`, with the compiler options of a user if `exact`, see conftest.py."""
    rounds = runs.make_rounds(algorithm, participation)
    if exact and SHIPPED:
        return jax.jit(rounds, static_argnums=4, compiler_options=SHIPPED)
    return rounds


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
