"""The contract of `test_contract` on models of other kinds: of nnx, and frozen with adapters.

And on times to an event, whose error of an example depends on the batch.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from toys import (
    SIZES,
    deployed,
    equal,
    half,
    jit,
    once,
    opposite_groups,
    pick,
    quick_key,
    run,
)

import jaxfl
from jaxfl.algorithms import ALGORITHMS
from jaxfl.core import tree
from jaxfl.core.errors import InputError
from jaxfl.models import mlp
from jaxfl.simulation import checkpoint
from jaxfl.testing.results import relabelled
from jaxfl.testing.runs import cohort_of
from jaxfl.training.nnx_model import from_nnx

C = len(SIZES)
asked = []


def of_round(number):
    """The optimiser of a round."""
    asked.append(number)
    return jaxfl.sgd(0.1)


OPTIONS = {"steps": 5, "batch_size": 8, "optimizer": of_round}


class Perceptron(nnx.Module):
    """A body of 8 and a head, as `toys.shallow` has them."""

    def __init__(self, rngs):
        self.body = nnx.Linear(8, 8, rngs=rngs)
        self.out = nnx.Linear(8, 2, rngs=rngs)

    def inside(self, x):
        return nnx.relu(self.body(x))

    def __call__(self, x):
        return self.out(self.inside(x))


@functools.cache
def task_of(kind):
    if kind == "times":
        return jaxfl.survival(mlp(1, hidden=(8,)), jnp.zeros(8), **OPTIONS)
    if kind == "nnx":
        model = from_nnx(Perceptron, features="inside", head="out")
    else:
        module = mlp(2, hidden=(8,))
        weights = module.init(quick_key(9), jnp.zeros((1, 8)))
        model = jaxfl.freeze(jaxfl.lora(module, 1, "Dense_0"), weights, "^lora|Dense_1")
    return jaxfl.classification(model, jnp.zeros(8), **OPTIONS)


@functools.cache
def made(factory, kind):
    return factory(task_of(kind))


@once
def uneven():
    return opposite_groups(sizes=SIZES)


@once
def times():
    data = opposite_groups(sizes=SIZES)

    def part(of):
        pairs = jnp.stack([jnp.abs(of.x[..., 0]), of.y.astype(jnp.float32)], axis=-1)
        return of._replace(y=pairs)

    return data._replace(train=part(data.train), val=part(data.val), test=part(data.test))


KINDS = ("nnx", "frozen")
# Of prototypes of labels, or of their frequencies.
LABELLED = (
    *("feddistill", "fedgh", "fedpac", "fedproto", "fedrod", "fedtgp", "fml", "mutual_graph"),
    "pfedccg",
)
OF_LABELS = [ALGORITHMS[name] for name in LABELLED]


@pytest.mark.long
def test_a_round_keeps_shapes_and_holds_no_frozen_weight(factory):
    """Its number reaches the training."""
    for kind in (*KINDS, "times"):
        algorithm, data = made(factory, kind), times() if kind == "times" else uneven()
        cohort = cohort_of(data, np.arange(C))
        asked.clear()
        if kind == "times" and factory in OF_LABELS:
            with pytest.raises(InputError, match="needs labels"):
                jax.eval_shape(algorithm.init, quick_key(0), data.train)
            continue
        state = jax.eval_shape(algorithm.init, quick_key(0), data.train)
        after, info = jax.eval_shape(algorithm.round, quick_key(0), state, cohort)
        assert asked or factory is ALGORITHMS["pfedbayes"]  # which has an optimiser of its own
        assert jax.tree.structure(after) == jax.tree.structure(state)
        for old, new in zip(jax.tree.leaves(state), jax.tree.leaves(after), strict=True):
            assert (new.shape, new.dtype) == (old.shape, old.dtype)
        models = jax.eval_shape(algorithm.models, state, cohort)
        assert jax.tree.structure(info.trained) == jax.tree.structure(models)
        paths = [
            tree.path(keys) for keys, _ in jax.tree_util.tree_leaves_with_path((state, models))
        ]
        assert kind != "frozen" or not [path for path in paths if "params/Dense_0" in path]


@pytest.mark.slow(seconds=10)
@pytest.mark.sample(every=8)
@pytest.mark.parametrize("kind", KINDS)
def test_rounds_are_relabelled_restored_and_learned_from(factory, kind, tmp_path):
    """In one group, the mean client's loss is lower after ten rounds than at first.

    A method with one model for all need not get better where there are two opposite groups.
    """
    algorithm, data = made(factory, kind), uneven()
    whole, _, _ = run(algorithm, data, 2, participation=half(C))
    first, _, _ = run(algorithm, data, 1, participation=half(C))
    relabelled(jit(algorithm.round), data, first)
    checkpoint.save(tmp_path / "one", 1, first)
    like = jax.eval_shape(algorithm.init, quick_key(0), data.train)
    number, restored = checkpoint.restore(tmp_path / "one", like)
    state, _, _ = run(algorithm, data, 1, participation=half(C), state=restored, start=number)
    equal(state, whole)
    alike = pick(data, np.arange(C) // 2 * 2)
    state, info, _ = run(algorithm, alike, 10)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves((state, info)))
    models = deployed(algorithm, state, C, alike)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(models))
    assert info.loss[-1].mean() < info.loss[0].mean()
