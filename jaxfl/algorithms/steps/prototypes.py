"""Prototypes, the mean features of each class: FedProto and FedPAC."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Shaped

from jaxfl.algorithms.steps.heads import class_features
from jaxfl.algorithms.steps.labels import class_count
from jaxfl.core import tree
from jaxfl.core.types import Dataset, Params, Problem, Scalar
from jaxfl.kernels.mixing import mix
from jaxfl.training.objectives import masked_mean

Features = Callable[[Params, Array], Array]


class Prototypes(NamedTuple):
    """Of the server, or of each client."""

    # the mean features of each class [K, d]
    values: Float[Array, "*m k d"]
    # the classes that have them [K]
    known: Shaped[Array, "*m k"]


def no_prototypes(problem: Problem, features: Features, train: Dataset) -> Prototypes:
    """The prototypes of the server before a client has sent any.

    Example:
      >>> no_prototypes(task.problem, task.problem.features, cohort.train).values.shape
      (2, 8)
    """
    classes = class_count(problem, train)
    model = jax.eval_shape(problem.init, jax.random.key(0))
    shape = jax.eval_shape(features, model, tree.shapes(train.x, 1, axes=2))
    values = jnp.zeros((classes, shape.shape[-1]), shape.dtype)
    return Prototypes(values, jnp.zeros(classes, bool))


def distance_to_prototypes(
    embeddings: Float[Array, "b d"], batch: Dataset, prototypes: Prototypes
) -> Scalar:
    """The mean squared difference of features from the prototypes of their classes, if known.

    Example:
      >>> prototypes = Prototypes(jnp.array([[1.0], [9.0]]), jnp.array([True, False]))
      >>> batch = Dataset((), jnp.array([0, 1]), jnp.ones(2, bool))
      >>> distance_to_prototypes(jnp.array([[3.0], [3.0]]), batch, prototypes).item()
      2.0
    """
    squared = jnp.mean((embeddings - prototypes.values[batch.y]) ** 2, axis=1)
    return masked_mean(jnp.where(prototypes.known[batch.y], squared, 0.0), batch.weights)


def client_prototypes(
    features: Features, model: Params, data: Dataset, server: Prototypes
) -> Prototypes:
    """The client's mean features of each class, and the server's where it has no example.

    Example:
      >>> data = Dataset(jnp.array([[1.0], [3.0]]), jnp.array([1, 1]), jnp.ones(2, bool))
      >>> server = Prototypes(jnp.array([[7.0], [7.0]]), jnp.zeros(2, bool))
      >>> own = client_prototypes(lambda model, x: model * x, 10.0, data, server)
      >>> own.values.tolist(), own.known.tolist()
      ([[7.0], [20.0]], [False, True])
    """
    means, counts = class_features(features, model, data, server.known.size)
    has = counts > 0
    return Prototypes(jnp.where(has[:, None], means, server.values), has)


def mean_prototypes(
    sent: Prototypes, reported: Bool[Array, "m"], server: Prototypes
) -> tuple[Prototypes, Float[Array, "k m"]]:
    """The means over the clients that have a class, which count equally; the server's if none has.

    Args:
      sent: of each client [M].
      reported: whose have arrived [M].
      server: those of the last round.

    Returns:
      The prototypes, and the weights of the senders [K, M], 0 for a class without one.

    Example:
      >>> values = jnp.array([[[1.0], [0.0]], [[3.0], [0.0]]])
      >>> sent = Prototypes(values, jnp.array([[True, False], [True, False]]))
      >>> server = Prototypes(jnp.full((2, 1), 7.0), jnp.zeros(2, bool))
      >>> mean, rows = mean_prototypes(sent, jnp.ones(2, bool), server)
      >>> mean.values.tolist(), rows.tolist()
      ([[2.0], [7.0]], [[0.5, 0.5], [0.0, 0.0]])
    """
    senders = (sent.known & reported[:, None]).T.astype(float)
    rows = senders / jnp.maximum(senders.sum(axis=1, keepdims=True), 1)
    exists = senders.any(axis=1)
    means = jax.vmap(mix)(rows, jnp.swapaxes(sent.values, 0, 1))
    values = jnp.where(exists[:, None], means, server.values)
    return Prototypes(values, server.known | exists), rows
