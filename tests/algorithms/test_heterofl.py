"""HeteroFL beside NumPy, and where a narrower model is in a wide one."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen as nn
from perceptron import DATA, RATE, SIZES, STEPS, X, Y, as_numpy
from scipy.special import softmax
from toys import full, quick_key, run

import jaxfl
from jaxfl.algorithms import fedavg, heterofl
from jaxfl.core import tree
from jaxfl.core.errors import InputError
from jaxfl.core.messages import ServerState
from jaxfl.core.types import Cohort
from jaxfl.models import MODELS
from jaxfl.training.widths import gather_part, part_of, scatter_part


def task_of(model, example):
    options = {"steps": STEPS, "batch_size": 4, "optimizer": optax.sgd(RATE)}
    return jaxfl.classification(model, example, **options)


TASKS = {
    "wide": task_of(jaxfl.models.mlp(3, hidden=(6,)), jnp.zeros(4)),
    "half": task_of(jaxfl.models.mlp(3, hidden=(6,), narrow=2), jnp.zeros(4)),
}


def train(model, x, y):
    for _ in range(STEPS):
        features = np.maximum(x @ model[0] + model[1], 0)
        error = (softmax(features @ model[2] + model[3], axis=1) - np.eye(3)[y]) / len(x)
        hidden = error @ model[2].T * (features > 0)
        grads = [x.T @ hidden, hidden.sum(axis=0), features.T @ error, error.sum(axis=0)]
        model = [w - RATE * g for w, g in zip(model, grads, strict=True)]
    return model


def cut(model, units):
    return [model[0][:, :units], model[1][:units], model[2][:units], model[3]]


def test_rounds_equal_numpy():
    """Clients 0 and 2 have three of six units."""
    task = jaxfl.heterogeneous(TASKS, ["half", "wide", "half"])
    algorithm = heterofl(task)
    state = algorithm.init(quick_key(0), DATA.train)
    model = as_numpy(state.server)
    state, info, _ = run(algorithm, DATA, 2, state=state)
    units = [3, 6, 3]
    for _ in range(2):
        sent = [train(cut(model, n), x, y) for n, x, y in zip(units, X, Y, strict=True)]
        new = []
        for place, old in enumerate(model):
            total, weight = np.zeros(old.shape), np.zeros(old.shape)
            for size, one in zip(SIZES, sent, strict=True):
                part = tuple(slice(n) for n in one[place].shape)
                total[part] += size * one[place]
                weight[part] += size
            new.append(total / weight)
        model = new
    for found, expected in zip(as_numpy(state.server), model, strict=True):
        np.testing.assert_allclose(found, expected, atol=2e-5)
    # A model has 4 n + n + 3 n + 3 entries with n units.
    assert info.up.tolist() == info.down.tolist() == [[27, 51, 27]] * 2
    shares = SIZES / SIZES.sum()
    np.testing.assert_allclose(info.weights[-1][0], shares, rtol=1e-5)
    of_wide = (27 * shares + 24 * np.array([0, 1, 0])) / 51
    np.testing.assert_allclose(info.weights[-1][1], of_wide, rtol=1e-5)
    cohort = Cohort(jnp.arange(3), DATA.train, DATA.val, 0)
    own = jax.tree.map(lambda x: x[1], algorithm.models(state, cohort))
    logits = np.maximum(X[1] @ model[0] + model[1], 0) @ model[2] + model[3]
    np.testing.assert_allclose(task.problem.apply(own, jnp.asarray(X[1])), logits, atol=1e-4)


def test_entries_that_no_client_of_a_round_has_stay():
    algorithm = heterofl(jaxfl.heterogeneous(TASKS, ["half", "wide", "half"]))
    state = algorithm.init(quick_key(0), DATA.train)
    before = as_numpy(state.server)
    lost = jaxfl.make_rounds(algorithm, full(3), lost=lambda key, ids, work: ids == 1)
    state, (info, _) = lost(quick_key(0), DATA, state, 0, 1)
    after = as_numpy(state.server)
    np.testing.assert_array_equal(after[0][:, 3:], before[0][:, 3:])
    assert (after[0][:, :3] != before[0][:, :3]).any()
    np.testing.assert_allclose(info.weights[-1], np.tile([2 / 3, 0, 1 / 3], (3, 1)), rtol=1e-5)


def test_a_client_alone_sends_what_it_sends_in_a_cohort():
    algorithm = heterofl(jaxfl.heterogeneous(TASKS, ["half", "wide", "half"]))
    state = algorithm.init(quick_key(0), DATA.train)
    client = algorithm.wire.exchanges[0].client

    def sent(ids):
        memory, record = tree.take(state.clients, ids)
        cohort = Cohort(ids, tree.take(DATA.train, ids), tree.take(DATA.val, ids), 0)
        down = algorithm.wire.download(ServerState(state.server, record))
        return client(quick_key(1), memory, down, cohort)[1]

    together = sent(jnp.arange(3))
    for number in range(3):
        alone = sent(jnp.array([number]))
        for one, other in zip(jax.tree.leaves(together), jax.tree.leaves(alone), strict=True):
            np.testing.assert_allclose(one[number], other[0], atol=1e-6)


@pytest.mark.parametrize("name", ["mlp", "cnn", "resnet8"])
def test_a_narrower_model_is_the_wide_one_without_the_other_units(name):
    """Whatever lies between two layers: a flattened image, group normalisation, a short cut."""
    x = jax.random.normal(quick_key(2), (5, 12, 12, 2))
    wide, narrow = MODELS[name](3), MODELS[name](3, narrow=2)
    start = jax.jit(wide.init)(quick_key(1), x)
    shapes = jax.eval_shape(narrow.init, quick_key(0), x)
    part = part_of(start, shapes)
    own = gather_part(start, part)
    assert jax.tree.map(jnp.shape, own) == jax.tree.map(lambda one: one.shape, shapes)
    alone = scatter_part(own, part, jax.tree.map(jnp.zeros_like, start))
    np.testing.assert_allclose(narrow.apply(own, x), wide.apply(alone, x), atol=1e-5)


class Blocks(nn.Module):
    """A residual network whose head comes before its blocks, as names are sorted."""

    width: int

    @nn.compact
    def __call__(self, x):
        x = nn.Conv(self.width, (3, 3))(x)
        x = x + nn.Conv(self.width, (3, 3), name="Residual")(x)
        return nn.Dense(3)(x.mean(axis=(1, 2)))


class Branches(nn.Module):
    """Two convolutions side by side, and one on both."""

    width: int

    @nn.compact
    def __call__(self, x):
        x = jnp.concatenate([nn.Conv(self.width, (3, 3))(x) for _ in range(2)], axis=3)
        return nn.Dense(3)(nn.Conv(self.width, (3, 3))(x).mean(axis=(1, 2)))


@pytest.mark.parametrize(
    ("wide", "narrow", "message"),
    [
        (jaxfl.models.mlp(3, (6,)), jaxfl.models.mlp(3, (6, 6)), "one has other layers"),
        (jaxfl.models.mlp(3, (6, 4)), jaxfl.models.mlp(3, (4, 6)), "fewer in others"),
        (Blocks(8), Blocks(4), "Dense_0/kernel has shapes"),
        (Branches(8), Branches(4), "Conv_2/kernel has shapes"),
    ],
)
def test_models_of_which_no_part_can_be_told_are_refused(wide, narrow, message):
    example = jnp.zeros((6, 6, 1))
    two = {"wide": task_of(wide, example), "narrow": task_of(narrow, example)}
    task = jaxfl.heterogeneous(two, [0, 1, 0])
    with pytest.raises(InputError, match=f"widths of one model, such as mlp.*{message}") as caught:
        heterofl(task)
    assert "\n" not in str(caught.value)


def test_one_architecture_is_fedavg():
    task = TASKS["half"]
    expected, told, _ = run(fedavg(task), DATA, 2)
    found, info, _ = run(heterofl(task), DATA, 2)
    for one, other in zip(as_numpy(found.server), as_numpy(expected.server), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
    np.testing.assert_allclose(info.weights, told.weights, atol=1e-6)
