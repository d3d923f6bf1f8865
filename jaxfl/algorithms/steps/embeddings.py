"""Kernel means of the clients' examples: what a client tells of its data in few numbers."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from jaxfl.core import tree
from jaxfl.core.over_clients import over_clients
from jaxfl.core.types import Dataset, Params, Problem
from jaxfl.training.loop import sum_parts

__all__ = ["Embedding", "embeddings"]

# of the signs that stand for the inputs of an example
SIGNS = 64
# Targets have at most so many numbers; gradients of more are projected at random.
TARGETS = 32
# Ids are counted in so many bins.
BINS = 256
# number of examples that are embedded at a time
PART = 32


class Embedding(NamedTuple):
    """What a client sends of its examples."""

    # [M, D] the mean of the examples' embeddings
    mean: Float[Array, "m d"]
    # [M] tr(S) / n, the expected squared distance of the mean from that of endless examples
    variance: Float[Array, "m"]


def input_numbers(x: PyTree) -> Float[Array, "f"]:
    """The inputs of one example as numbers: ids as counts in 256 bins, all others as they are.

    Example:
      >>> input_numbers({"a": jnp.array([1.0, 2.0]), "b": jnp.array([[3.0]])}).tolist()
      [1.0, 2.0, 3.0]
    """

    def leaf(x: Array) -> Array:
        if jnp.issubdtype(x.dtype, jnp.signedinteger):
            return jax.nn.one_hot(x.ravel() % BINS, BINS).sum(axis=0)
        return x.ravel().astype(jnp.float32)

    return jnp.concatenate([leaf(jnp.asarray(x)) for x in jax.tree.leaves(x)])


def embeddings(problem: Problem) -> Callable[[Dataset], Embedding]:
    """The kernel means of clients' examples, in random features that all clients have in common.

    The embedding of an example is the product of two unit vectors: the signs of 64 random
    projections of its input, less the input's mean, and the gradient of its error by a prediction
    of 0. It is the direction in which the example would move a linear model of the signs. So
    it tells apart clients that differ in inputs, in targets, or in what a target means, and needs
    neither a trained model nor the scale of the data. The kernel of the signs is 1 - 2 a / pi
    of the angle a of two inputs (Charikar, 2002, https://doi.org/10.1145/509907.509965).

    Args:
      problem: of the model; its error and the shape of its predictions are used.

    Returns:
      (data [M, n]) -> `Embedding`.

    Example:
      >>> embedding = embeddings(task.problem)(cohort.train)
      >>> embedding.mean.shape, embedding.variance.shape
      ((4, 128), (4,))
    """
    zero = jax.random.key(0)
    model = jax.eval_shape(problem.init, zero)

    def predictions(model: Params, x: PyTree, y: PyTree) -> PyTree:
        recall = problem.recall
        complete = model if recall is None else recall(model, Dataset(x, y, jnp.ones(1, bool)))
        return problem.apply(complete, x)

    def numbers_of(x: PyTree, y: PyTree) -> tuple[Array, Array]:
        """The input of an example, and the gradient of its error by a prediction of 0."""
        inputs = input_numbers(x)
        x, y = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], (x, y))
        shape = jax.eval_shape(predictions, model, x, y)
        start = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shape)
        target = problem.compared(x, y)
        by_prediction = jax.grad(lambda p: problem.error(p, target).sum())(start)
        return inputs, tree.ravel(by_prediction)[0].astype(jnp.float32)

    def sums(part: Dataset) -> tuple[Array, Array]:
        """The sum of the embeddings of some examples, and that of their squared lengths."""
        inputs, pulls = jax.vmap(numbers_of)(part.x, part.y)
        projected = jnp.matmul(
            inputs - inputs.mean(axis=1, keepdims=True),
            jax.random.normal(zero, (inputs.shape[1], SIGNS)),
            precision="highest",
        )
        signs = jnp.where(projected >= 0, 1.0, -1.0) / np.sqrt(SIGNS)
        if pulls.shape[1] > TARGETS:
            of_targets = jax.random.normal(zero, (pulls.shape[1], TARGETS))
            pulls = jnp.matmul(pulls, of_targets, precision="highest")
        norms = jnp.sqrt(jnp.sum(pulls**2, axis=1, keepdims=True))
        pulls = pulls / jnp.where(norms > 0, norms, 1.0)
        pulls = jnp.where((part.mask > 0)[:, None] & jnp.isfinite(pulls), pulls, 0.0)
        return jnp.matmul(signs.T, pulls, precision="highest").ravel(), jnp.sum(pulls**2)

    def of_client(data: Dataset) -> Embedding:
        total, squares = sum_parts(sums, data, PART)
        count = (jnp.asarray(data.mask) > 0).sum()
        mean = total / jnp.maximum(count, 1)
        # tr(S), from n - 1 degrees of freedom
        spread = jnp.maximum(squares - count * jnp.sum(mean**2), 0.0) / jnp.maximum(count - 1, 1)
        # A client of one example or none may be anything.
        return Embedding(mean, jnp.where(count > 1, spread / jnp.maximum(count, 1), 1.0))

    return over_clients(of_client, "auto")
