"""Gradients of an objective: on a batch, in parts or privately, and on all of a client's data."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jaxtyping import Array, Int, PyTree, Shaped

from jaxfl import tree
from jaxfl.streams import client_keys
from jaxfl.types import (
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


def accumulated(objective: Objective, batch_size: int, micro: int | None) -> Callable:
    """The gradient of an objective on a batch, computed a few examples at a time.

    That is faster where the work on a whole batch does not fit the cache. The objective is a mean
    over the batch's real examples plus terms that do not depend on them, so the gradient is the
    mean of the parts' gradients weighted by their numbers of real examples: the same up to
    rounding, for an objective that draws no random numbers. One that does gets a key of its own for
    each part.

    Args:
      objective: (params, batch [B], anchor, key) -> (loss, aux).
      batch_size: B.
      micro: examples of a part. None, or no smaller divisor of B: the whole batch at once.

    Returns:
      gradient(params, batch [B], anchor, key) -> (gradient, aux).
    """
    gradient = jax.grad(objective, has_aux=True)
    if micro is None or micro >= batch_size or batch_size % micro:
        return gradient

    def in_parts(
        params: Params, batch: Dataset, anchor: PyTree, key: PRNGKey
    ) -> tuple[Params, Array]:
        parts = jax.tree.map(lambda x: x.reshape(-1, micro, *x.shape[1:]), batch)
        real = jnp.maximum(jnp.count_nonzero(batch.mask), 1)
        fractions = jnp.count_nonzero(parts.mask, axis=1) / real

        def add(total, inputs):
            number, part, fraction = inputs
            found = gradient(params, part, anchor, jax.random.fold_in(key, number))
            return jax.tree.map(lambda t, f: t + fraction * f, total, found), None

        zero = jax.tree.map(jnp.zeros_like, jax.eval_shape(gradient, params, batch, anchor, key))
        return lax.scan(add, zero, (jnp.arange(fractions.size), parts, fractions))[0]

    return in_parts


def private(objective: Objective, clip: Scalar, noise: Scalar) -> Callable:
    """The gradient of an objective on a batch: each example's is clipped, and their sum is noised.

    Abadi et al., "Deep Learning with Differential Privacy", CCS 2016, Algorithm 1,
    https://arxiv.org/abs/1607.00133, by optax. An example's gradient is that of the objective on it
    alone, with the terms that do not depend on it. A padded row adds nothing.

    Differs: in the paper a batch is drawn anew from all examples and divided by its expected size;
    here it is a batch of an epoch and divided by its own size.

    Args:
      objective: (params, batch, anchor, key) -> (loss, aux).
      clip: largest L2 norm of an example's gradient.
      noise: standard deviation of the noise on each parameter of the sum, in units of `clip`.

    Returns:
      gradient(params, batch [B], anchor, key) -> (gradient, mean aux).
    """

    def gradient(
        params: Params, batch: Dataset, anchor: PyTree, key: PRNGKey
    ) -> tuple[Params, Array]:
        noise_key, key = jax.random.split(key)
        rows = batch.mask.size

        def one(x: Array, y: Array, key: PRNGKey) -> tuple[Params, Array]:
            alone = Dataset(x[None], y[None], jnp.ones(1, bool))
            return jax.grad(objective, has_aux=True)(params, alone, anchor, key)

        each = jax.vmap(one)(batch.x, batch.y, jax.random.split(key, rows))
        grads, aux = tree.choose(batch.mask, each, jax.tree.map(jnp.zeros_like, each))
        inverse = 1 / jnp.maximum(jnp.count_nonzero(batch.mask), 1)
        aggregate = optax.contrib.differentially_private_aggregate(clip, noise, noise_key)
        # The mean is over all rows, of which the padded ones are zero.
        mean, _ = aggregate.update(grads, aggregate.init(params))
        return jax.tree.map(lambda g: g * (rows * inverse), mean), jnp.sum(aux) * inverse

    return gradient


def full_gradient(
    objective: Objective, *, batch_size: int, micro: int | None = None, chunk: Chunk = "auto"
) -> Gradient:
    """A function that gives every client's mean loss and its gradient on all of its data.

    The examples are taken in parts of one size, so that padding changes no bit and memory does not
    grow with them.

    Args:
      objective: as of `trainer`, without an anchor.
      batch_size: B, the examples that count as one batch.
      micro: examples whose gradient is computed at a time; B if None.
      chunk: clients computed side by side, see `tree.over_clients`.

    Returns:
      gradient(key, params [M], data [M, n], ids [M]) -> Gradients.
    """

    def one(key: PRNGKey, params: Params, data: Dataset) -> tuple[Array, Params]:
        def weighted(part: Dataset) -> tuple[Array, Params]:
            (loss, _), grads = jax.value_and_grad(objective, has_aux=True)(params, part, None, key)
            return jax.tree.map(lambda x: x * part.mask.sum(), (loss, grads))

        return _mean_over_parts(weighted, data, micro or batch_size)

    def gradient(key: PRNGKey, params: Params, data: Dataset, ids: Int[Array, "m"]) -> Gradients:
        keys = client_keys(key, ids)
        loss, grads = tree.over_clients(one, chunk)(keys, params, data)
        return Gradients(loss, grads, count_batches(data.mask, batch_size, epochs=1))

    return gradient


def full_loss(objective: Objective, *, batch_size: int, chunk: Chunk = "auto") -> Evaluate:
    """A function that gives every client's mean loss on all of its data.

    Args:
      objective: as of `trainer`, without an anchor.
      batch_size: examples whose loss is computed at a time.
      chunk: clients computed side by side, see `tree.over_clients`.

    Returns:
      evaluate(key, params [M], data [M, n], ids [M]) -> mean loss [M], weighted by the mask; 0 for a
      client without examples.
    """

    def one(key: PRNGKey, params: Params, data: Dataset) -> Array:
        def weighted(part: Dataset) -> Array:
            return objective(params, part, None, key)[0] * part.mask.sum()

        return _mean_over_parts(weighted, data, batch_size)

    def evaluate(key: PRNGKey, params: Params, data: Dataset, ids: Int[Array, "m"]) -> Array:
        return tree.over_clients(one, chunk)(client_keys(key, ids), params, data)

    return evaluate


def _mean_over_parts(weighted: Callable, data: Dataset, size: int) -> PyTree:
    """The sums that `weighted` gives for parts of the data, over the sum of the mask; 0 without data."""
    total = data.mask.sum()
    sums = tree.sum_batches(weighted, data, size)
    return jax.tree.map(lambda x: x / jnp.where(total > 0, total, 1), sums)


def count_batches(
    mask: Shaped[Array, "m n"],
    batch_size: int,
    *,
    steps: int | None = None,
    epochs: int | None = None,
) -> Int[Array, "m"]:
    """The batches of each client in a `fit` of `trainer` [M]; 0 for a client without examples."""
    sizes = (mask > 0).sum(axis=1)
    return (steps if epochs is None else epochs * -(-sizes // batch_size)) * (sizes > 0)
