"""Every method in float64 and in bfloat16, without compiling anything."""

import functools
import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from toys import SIZES, once, opposite_groups, quick_key

import jaxfl
from jaxfl.core import shapes
from jaxfl.core.trainable import trainable
from jaxfl.core.types import Cohort
from jaxfl.simulation.rounds import cohort_round
from jaxfl.testing.program import check_variant
from jaxfl.testing.variants import variants

C = 6
# The type of the parameters, and whether JAX has float64.
TYPES = [("float32", True), ("float64", True), ("bfloat16", False)]


class Typed(nn.Module):
    """As `normed`, with parameters of a given type; running statistics are float32."""

    dtype: str
    head = "Dense_1"

    @nn.compact
    def __call__(self, x, train: bool = False, *, until_head: bool = False):
        types = {"dtype": self.dtype, "param_dtype": self.dtype}
        x = nn.BatchNorm(use_running_average=not train, **types)(nn.Dense(8, **types)(x))
        x = nn.Dropout(0.1, deterministic=not train)(nn.relu(x))
        return x if until_head else nn.Dense(2, **types)(x)

    def features(self, x):
        return self(x, until_head=True)


@once
def uneven():
    return opposite_groups(sizes=SIZES)


def types(tree):
    return [leaf.dtype for leaf in jax.tree.leaves(tree)]


@functools.cache
def task_of(dtype, **options):
    options = {"steps": 2, "batch_size": 8, "optimizer": jaxfl.sgd(0.1)} | options
    return jaxfl.classification(Typed(dtype), jnp.zeros(8), **options)


def run(algorithm):
    """The shapes of the deployed models after a round, and of what it tells."""

    def of(key):
        before = algorithm.init(key, uneven().train)
        cohort = Cohort(jnp.arange(C), uneven().train, uneven().val, 0)
        after, info = cohort_round(algorithm, key, before, cohort)
        return algorithm.models(after, cohort), info

    return jax.eval_shape(of, quick_key(0))


def check_types(dtype, models, info):
    """Models that are deployed have the type of the model; the engine keeps that of the state."""
    # What a method adds to the model may have the wider type of its predictions.
    wide = jnp.promote_types(dtype, jnp.float32)
    floats = {x for x in types(trainable(models)) if jnp.issubdtype(x, jnp.floating)}
    assert jnp.dtype(dtype) in floats <= {jnp.dtype(dtype), wide}
    assert all(jnp.issubdtype(x, jnp.floating) for x in types((info.loss, info.weights)))


scored = set()


@pytest.mark.long
def test_rounds_and_scores_in_float64_and_in_bfloat16_keep_every_type(factory):
    for dtype, x64 in TYPES:
        with jax.enable_x64(x64):
            algorithm = factory(task_of(dtype))
            check_types(dtype, *run(algorithm))
            # Most clients predict with the model alone, and then all scores are one program.
            predicts = (dtype, algorithm.apply, algorithm.predict, algorithm.recall)
            if predicts in scored:
                continue
            scored.add(predicts)
            evaluate = jaxfl.make_evaluate(algorithm, task_of(dtype))
            state = jax.eval_shape(algorithm.init, quick_key(0), uneven().train)
            scores = jax.eval_shape(evaluate, quick_key(0), uneven(), state, np.arange(C))
            assert all(jnp.issubdtype(x, jnp.floating) for x in types(scores))


@pytest.mark.long
def test_what_a_method_says_of_itself_holds_under_each_of_its_options(factory, monkeypatch):
    """Types as well, each option in one of them, in turn.

    Nor does it give kernels the leaves of a model as a list under any of them: outside compiled
    programs a list of equal shapes is taken for a list of models.
    """
    monkeypatch.setattr(shapes, "Tracer", type(None))
    for hyper, (dtype, x64) in zip(variants(factory), itertools.cycle(TYPES), strict=False):
        with jax.enable_x64(x64):
            found = check_variant(factory, partial(task_of, dtype), hyper)
            if found is not None:
                check_types(dtype, found.deployed, found.info)
