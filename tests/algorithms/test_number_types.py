"""Every method in float64 and in bfloat16, without compiling anything."""

import itertools

import jax
import jax.numpy as jnp
import pytest
from flax import linen as nn
from toys import SIZES, full, once, opposite_groups

import jaxfl
from jaxfl.core.errors import InputError
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


def check_types(factory, dtype, hyper):
    """Two rounds, in a scan, keep all types; models that are deployed have that of the model."""
    task = jaxfl.classification(
        Typed(dtype), jnp.zeros(8), steps=2, batch_size=8, optimizer=jaxfl.sgd(0.1)
    )
    algorithm = factory(task, **hyper)
    rounds = jaxfl.make_rounds(algorithm, full(C))
    evaluate = jaxfl.make_evaluate(algorithm, task)

    def run(key):
        data = uneven()
        before = algorithm.init(key, data.train)
        after, (info, ids) = rounds(key, data, before, 0, 2)
        cohort = jaxfl.types.Cohort(jnp.arange(C), data.train, data.val)
        models = algorithm.models(after, cohort)
        return before, after, models, info, evaluate(key, data, after, ids[-1])

    before, after, models, info, scores = jax.eval_shape(run, jax.random.key(0))
    assert types(after) == types(before)
    # What a method adds to the model may have the wider type of its predictions.
    wide = jnp.promote_types(dtype, jnp.float32)
    floats = {x for x in types(models) if jnp.issubdtype(x, jnp.floating)}
    assert jnp.dtype(dtype) in floats <= {jnp.dtype(dtype), wide}
    assert all(jnp.issubdtype(x, jnp.floating) for x in types((info.loss, info.weights, scores)))


@pytest.mark.long
def test_a_round_in_float64_and_in_bfloat16_keeps_every_type(factory):
    for dtype, x64 in TYPES:
        with jax.enable_x64(x64):
            check_types(factory, dtype, {})


@pytest.mark.slow(seconds=15)
def test_so_it_does_under_each_option(factory):
    """Each option in one of the types, in turn."""
    for hyper, (dtype, x64) in zip(variants(factory), itertools.cycle(TYPES), strict=False):
        with jax.enable_x64(x64):
            try:
                check_types(factory, dtype, hyper)
            except InputError:  # an option that takes effect beside another one only
                continue
            except Exception as error:
                raise AssertionError(f"{hyper} in {dtype}") from error
