"""Gradients of an objective on a batch (in parts, or privately) and on all data of a client."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jaxtyping import Array, Int, PyTree, Shaped

from jaxfl.core import target, tree
from jaxfl.core.errors import InputError, check
from jaxfl.core.options import checked
from jaxfl.core.over_clients import over_clients
from jaxfl.core.streams import client_keys
from jaxfl.core.types import (
    Chunk,
    Dataset,
    Evaluate,
    Gradient,
    Gradients,
    Objective,
    Params,
    PRNGKey,
    Scalar,
)
from jaxfl.training.loop import sum_parts


class CacheSize(NamedTuple):
    """How many examples have activations that the cache of a CPU holds; elsewhere any number."""

    examples: int


# How many examples' gradient is computed at a time; None: that of all of a batch.
Micro = int | CacheSize | None


@checked
def accumulated_gradient(objective: Objective, batch_size: int, micro: Micro) -> Callable:
    """The gradient of an objective on a batch, computed a few examples at a time.

    This is faster where the data of a whole batch do not fit into the cache. The objective is a
    mean over the batch's real examples plus terms that do not depend on them. The gradient is
    therefore the mean of the gradients on the parts, weighted by their numbers of real examples, or
    by the sums of the examples' weights.
    For an objective without random numbers the result is the same up to rounding; an objective with
    random numbers gets a different key for each part.

    Args:
      objective: (params, batch [B], anchor, key) -> (loss, aux).
      batch_size: B.
      micro: number of examples in a part. The whole batch is computed at once if it is None, if it
        does not divide B, or if it is B or more. With `CacheSize` it is the largest number up to
        that size that divides B, on a CPU, if it is at least half of it.

    Returns:
      gradient(params, batch [B], anchor, key) -> (gradient, aux).

    Example:
      >>> loss = lambda w, batch, anchor, key: (jnp.mean(w * batch.x), jnp.zeros(()))
      >>> batch = Dataset(jnp.arange(4.0), jnp.zeros(4), jnp.ones(4, bool))
      >>> gradient = accumulated_gradient(loss, batch_size=4, micro=2)
      >>> gradient(jnp.array(1.0), batch, None, jax.random.key(0))[0].item()
      1.5
    """
    gradient = jax.grad(objective, has_aux=True)

    def in_parts(
        params: Params, batch: Dataset, anchor: PyTree, key: PRNGKey
    ) -> tuple[Params, Array]:
        size = _size_of_part(micro)
        if isinstance(micro, CacheSize) and size is not None:
            divisors = (d for d in range(size, (size - 1) // 2, -1) if batch_size % d == 0)
            size = next(divisors, None)
        if size is None or size >= batch_size or batch_size % size:
            return gradient(params, batch, anchor, key)
        parts = jax.tree.map(lambda x: x.reshape(-1, size, *x.shape[1:]), batch)
        real = jnp.maximum(jnp.count_nonzero(batch.mask), 1)
        fractions = jnp.count_nonzero(parts.mask, axis=1) / real
        if batch.weight is not None:
            total = batch.weights.sum()
            by_weight = parts.weights.sum(axis=1) / jnp.where(total > 0, total, 1.0)
            fractions = jnp.where(total > 0, by_weight, fractions)

        def add(total, inputs):
            number, part, fraction = inputs
            terms = gradient(params, part, anchor, jax.random.fold_in(key, number))
            return jax.tree.map(lambda t, f: t + fraction * f, total, terms), None

        # Sums in float32, as in `private`.
        shapes = jax.eval_shape(gradient, params, batch, anchor, key)
        zero = jax.tree.map(lambda shape: tree.wide(jnp.zeros(shape.shape, shape.dtype)), shapes)
        total, _ = lax.scan(add, zero, (jnp.arange(fractions.size), parts, fractions))
        return jax.tree.map(lambda t, shape: t.astype(shape.dtype), total, shapes)

    return in_parts


def _size_of_part(micro: Micro) -> int | None:
    """The number of examples in a part, on the platform that the program is compiled for."""
    if isinstance(micro, CacheSize):
        return micro.examples if target.platform() == "cpu" else None
    return micro


def private(objective: Objective, clip: Scalar, noise: Scalar) -> Callable:
    """A private gradient: the gradient on each example is clipped, and noise is added to their sum.

    Abadi et al., "Deep Learning with Differential Privacy", CCS 2016, Algorithm 1,
    https://arxiv.org/abs/1607.00133, computed by optax. The gradient on an example is that of the
    objective on a batch of this one example, including the terms that do not depend on the example.
    A padded row adds nothing.

    Differs: in the paper each batch is drawn from all examples, and the sum is divided by the
    expected size of a batch. Here batches are those of an epoch, and the sum is divided by the
    number of real examples in the batch.

    Args:
      objective: (params, batch, anchor, key) -> (loss, aux).
      clip: largest L2 norm of an example's gradient.
      noise: standard deviation of the noise on each parameter of the sum, in units of `clip`.

    Returns:
      gradient(params, batch [B], anchor, key) -> (gradient, mean aux).

    Raises:
      InputError: examples have weights; raised when the gradient is first traced.

    Example:
      >>> loss = lambda w, batch, anchor, key: (jnp.mean(w * batch.x), jnp.zeros(()))
      >>> batch = Dataset(jnp.array([0.5, 8.0]), jnp.zeros(2), jnp.ones(2, bool))
      >>> gradient = private(loss, clip=1.0, noise=0.0)
      >>> gradient(jnp.array(1.0), batch, None, jax.random.key(0))[0].item()
      0.75
    """

    def gradient(
        params: Params, batch: Dataset, anchor: PyTree, key: PRNGKey
    ) -> tuple[Params, Array]:
        check(
            batch.weight is None,
            "clipping example by example (example_clip) bounds what each example does, and weights "
            "of examples would change that: leave out one of the two",
        )
        noise_key, key = jax.random.split(key)
        rows = batch.mask.size

        def one(x: PyTree, y: PyTree, key: PRNGKey) -> tuple[Params, Array]:
            alone = Dataset(tree.at(x, None), tree.at(y, None), jnp.ones(1, bool))
            return jax.grad(objective, has_aux=True)(params, alone, anchor, key)

        each = jax.vmap(one)(batch.x, batch.y, jax.random.split(key, rows))
        grads, aux = tree.choose(batch.mask, each, jax.tree.map(jnp.zeros_like, each))
        # Norms and sums in float32: one in bfloat16 is up to 1 % too small.
        wide = jax.tree.map(lambda g: g.astype(jnp.promote_types(g.dtype, jnp.float32)), grads)
        inverse = 1 / jnp.maximum(jnp.count_nonzero(batch.mask), 1)
        if not jax.tree.leaves(params):  # such as a model without its head that is all head
            return params, jnp.sum(aux) * inverse
        aggregate = optax.contrib.differentially_private_aggregate(clip, noise, noise_key)
        # optax takes the mean over all rows; the gradients on padded rows are zero.
        mean, _ = aggregate.update(wide, aggregate.init(params))
        mean = jax.tree.map(lambda g, p: (g * (rows * inverse)).astype(p.dtype), mean, params)
        return mean, jnp.sum(aux) * inverse

    return gradient


@checked
def full_gradient(
    objective: Objective, *, batch_size: int, micro: Micro = None, chunk: Chunk = "auto"
) -> Gradient:
    """A function that computes each client's mean loss, and its gradient, on all of its data.

    The examples are taken in parts of equal size, so that padding changes no bit, and the memory
    needed does not grow with the number of examples. Parts of padding alone are not computed.

    Args:
      objective: as for `trainer`, without an anchor.
      batch_size: B, the number of examples that counts as one batch.
      micro: number of examples whose gradient is computed at a time, also more than B; B if None,
        and elsewhere than on a CPU if it is `CacheSize`.
      chunk: clients computed side by side, see `over_clients`.

    Returns:
      gradient(key, params [M], data [M, n], ids [M]) -> Gradients.

    Example:
      >>> loss = lambda w, batch, anchor, key: (jnp.mean(w * batch.x), jnp.zeros(()))
      >>> data = Dataset(jnp.array([[1.0, 3.0]]), jnp.zeros((1, 2)), jnp.ones((1, 2), bool))
      >>> gradient = full_gradient(loss, batch_size=2)
      >>> gradient(jax.random.key(0), jnp.array([10.0]), data, jnp.arange(1)).grads.tolist()
      [2.0]
    """

    def one(key: PRNGKey, params: Params, data: Dataset) -> tuple[Array, Params]:
        def weighted_sums(part: Dataset) -> tuple[Array, Params]:
            (loss, _), grads = jax.value_and_grad(objective, has_aux=True)(params, part, None, key)
            return jax.tree.map(lambda x: x * part.weights.sum(), (loss, grads))

        return _mean_over_parts(weighted_sums, data, _size_of_part(micro) or batch_size)

    def gradient(key: PRNGKey, params: Params, data: Dataset, ids: Int[Array, "m"]) -> Gradients:
        keys = client_keys(key, ids)
        loss, grads = over_clients(one, chunk)(keys, params, data)
        return Gradients(loss, grads, count_batches(data.mask, batch_size, epochs=1))

    return gradient


@checked
def full_loss(
    objective: Objective, *, batch_size: int, micro: Micro = None, chunk: Chunk = "auto"
) -> Evaluate:
    """A function that computes each client's mean loss on all of its data.

    Args:
      objective: as for `trainer`, without an anchor.
      batch_size: B, the number of examples that counts as one batch.
      micro: as for `full_gradient`.
      chunk: clients computed side by side, see `over_clients`.

    Returns:
      evaluate(key, params [M], data [M, n], ids [M]) -> mean loss [M] by the weights of the
      examples; 0 for a client without any.

    Example:
      >>> loss = lambda w, batch, anchor, key: (jnp.mean(w * batch.x), jnp.zeros(()))
      >>> data = Dataset(jnp.array([[1.0, 3.0]]), jnp.zeros((1, 2)), jnp.ones((1, 2), bool))
      >>> full_loss(loss, batch_size=2)(jax.random.key(0), jnp.array([10.0]), data, jnp.arange(1))
      Array([20.], dtype=float32)
    """

    def one(key: PRNGKey, params: Params, data: Dataset) -> Array:
        def weighted_loss(part: Dataset) -> Array:
            return objective(params, part, None, key)[0] * part.weights.sum()

        return _mean_over_parts(weighted_loss, data, _size_of_part(micro) or batch_size)

    def evaluate(key: PRNGKey, params: Params, data: Dataset, ids: Int[Array, "m"]) -> Array:
        return over_clients(one, chunk)(client_keys(key, ids), params, data)

    return evaluate


def _mean_over_parts(sum_of_part: Callable, data: Dataset, size: int) -> PyTree:
    """The sum of `sum_of_part` over all parts of the data, over their weight; 0 without data."""
    total = data.weights.sum()
    sums = sum_parts(sum_of_part, data, size)
    return jax.tree.map(lambda x: x / jnp.where(total > 0, total, 1), sums)


def count_batches(
    mask: Shaped[Array, "m n"],
    batch_size: int,
    *,
    steps: int | None = None,
    epochs: int | None = None,
) -> Int[Array, "m"]:
    """How many batches `trainer` takes from each client [M]; 0 for a client without examples.

    Raises:
      InputError: neither steps nor epochs are given.

    Example:
      >>> mask = jnp.array([[1, 1, 1], [1, 0, 0], [0, 0, 0]])
      >>> count_batches(mask, 2, epochs=5).tolist(), count_batches(mask, 2, steps=7).tolist()
      ([10, 5, 0], [7, 7, 0])
    """
    sizes = (mask > 0).sum(axis=1)
    if epochs is not None:
        return epochs * -(-sizes // batch_size) * (sizes > 0)
    if steps is None:
        raise InputError("there is no number of batches: give steps or epochs")
    return steps * (sizes > 0)
