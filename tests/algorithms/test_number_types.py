"""Every method in float64 and in bfloat16, without compiling anything."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from toys import SIZES, once, opposite_groups, quick_key

import jaxfl
from jaxfl.core.errors import InputError
from jaxfl.core.types import Cohort
from jaxfl.simulation.rounds import cohort_round
from jaxfl.testing.variants import variants

C = 6
# The type of the parameters, and whether JAX has float64.
TYPES = [("float32", True), ("float64", True), ("bfloat16", False)]


class Typed(nn.Module):
    """As `shallow`, with parameters of a given type."""

    dtype: str
    head = "Dense_1"

    @nn.compact
    def __call__(self, x, until_head: bool = False):
        x = nn.relu(nn.Dense(8, dtype=self.dtype, param_dtype=self.dtype)(x))
        return x if until_head else nn.Dense(2, dtype=self.dtype, param_dtype=self.dtype)(x)

    def features(self, x):
        return self(x, until_head=True)


@once
def uneven():
    return opposite_groups(sizes=SIZES)


def types(tree):
    return [leaf.dtype for leaf in jax.tree.leaves(tree)]


def task_of(dtype):
    return jaxfl.classification(
        Typed(dtype), jnp.zeros(8), steps=2, batch_size=8, optimizer=jaxfl.sgd(0.1)
    )


def check_types(algorithm, dtype):
    """A round keeps all types; models that are deployed have that of the model."""

    def run(key):
        before = algorithm.init(key, uneven().train)
        cohort = Cohort(jnp.arange(C), uneven().train, uneven().val, 0)
        after, info = cohort_round(algorithm, key, before, cohort)
        return before, after, algorithm.models(after, cohort), info

    before, after, models, info = jax.eval_shape(run, quick_key(0))
    assert types(after) == types(before)
    # What a method adds to the model may have the wider type of its predictions.
    wide = jnp.promote_types(dtype, jnp.float32)
    floats = {x for x in types(models) if jnp.issubdtype(x, jnp.floating)}
    assert jnp.dtype(dtype) in floats <= {jnp.dtype(dtype), wide}
    assert all(jnp.issubdtype(x, jnp.floating) for x in types((info.loss, info.weights)))


@pytest.mark.long
def test_rounds_and_scores_in_float64_and_in_bfloat16_keep_every_type(factory):
    for dtype, x64 in TYPES:
        with jax.enable_x64(x64):
            algorithm = factory(task_of(dtype))
            check_types(algorithm, dtype)
            evaluate = jaxfl.make_evaluate(algorithm, task_of(dtype))
            state = jax.eval_shape(algorithm.init, quick_key(0), uneven().train)
            scores = jax.eval_shape(evaluate, quick_key(0), uneven(), state, np.arange(C))
            assert all(jnp.issubdtype(x, jnp.floating) for x in types(scores))


@pytest.mark.slow(seconds=15)
def test_so_it_does_under_each_option(factory):
    """Each option in one of the types, in turn."""
    for hyper, (dtype, x64) in zip(variants(factory), itertools.cycle(TYPES), strict=False):
        with jax.enable_x64(x64):
            try:
                check_types(factory(task_of(dtype), **hyper), dtype)
            except InputError:  # an option that takes effect beside another one only
                continue
            except Exception as error:
                raise AssertionError(f"{hyper} in {dtype}") from error
