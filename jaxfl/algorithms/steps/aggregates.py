"""The server's side of many methods: one model of those that arrived."""

from collections.abc import Callable

import jax
from jaxtyping import Array, Float

from jaxfl.algorithms.steps.heads import part_weights
from jaxfl.core import tree
from jaxfl.core.messages import Outcome, ServerState, Uploads
from jaxfl.core.trainable import of_statistics
from jaxfl.core.types import Params, PRNGKey, Scalar
from jaxfl.kernels.mixing import mix, size_weights
from jaxfl.kernels.products import mix_products
from jaxfl.training.lora import LORA, is_adapter

# uploads -> (the aggregate, the senders' weights [M]); the weights are None if the aggregate is not
# a weighted mean
Aggregate = Callable[[Uploads], tuple[Params, Float[Array, "m"] | None]]


def mean_by_size(uploads: Uploads) -> tuple[Params, Float[Array, "m"]]:
    """FedAvg's aggregate: the mean of the models that arrived, weighted by numbers of examples.

    Example:
      >>> received = jnp.array([[1.0], [3.0], [90.0], [90.0]])
      >>> reported = jnp.array([True, True, False, False])
      >>> uploads = Uploads(cohort.ids, cohort.sizes, reported, received, received)
      >>> [result.tolist() for result in mean_by_size(uploads)]
      [[2.0], [0.5, 0.5, 0.0, 0.0]]
    """
    weights = size_weights(uploads.sizes * uploads.reported)
    return mix(weights, uploads.received), weights


def mean_of_products(uploads: Uploads) -> tuple[Params, Float[Array, "m"]]:
    """`mean_by_size`, where an adapter is the mean of products of two factors, cut to its rank.

    Where clients train one factor alone, the mean of this factor is that of the products.

    Example:
      >>> a, b = jnp.arange(1.0, 5).reshape(4, 1, 1), jnp.arange(5.0, 9).reshape(4, 1, 1)
      >>> received = {"lora": {"Dense_0": {"a": a, "b": b}}}
      >>> uploads = Uploads(cohort.ids, cohort.sizes, jnp.ones(4, bool), received, received)
      >>> mean = mean_of_products(uploads)[0]["lora"]["Dense_0"]
      >>> (mean["a"] * mean["b"]).item()  # of 1 * 5, 2 * 6, 3 * 7 and 4 * 8
      17.5
    """
    mean, weights = mean_by_size(uploads)
    if not isinstance(mean, dict) or LORA not in mean:
        return mean, weights

    def cut(adapter: Params, factors: Params) -> Params:
        if not is_adapter(factors):
            return adapter
        a, b = mix_products(weights[None], factors["a"], factors["b"])
        return {"a": a[0], "b": b[0]}

    received = uploads.received[LORA]
    adapters = jax.tree.map(cut, mean[LORA], received, is_leaf=is_adapter)
    return {**mean, LORA: adapters}, weights


def equal_mean(uploads: Uploads) -> tuple[Params, Float[Array, "m"]]:
    """The mean of the models that arrived, in which clients count equally, and the weights [M].

    Example:
      >>> received = jnp.array([[1.0], [3.0], [90.0], [90.0]])
      >>> reported = jnp.array([True, True, False, False])
      >>> uploads = Uploads(cohort.ids, cohort.sizes, reported, received, received)
      >>> [result.tolist() for result in equal_mean(uploads)]
      [[2.0], [0.5, 0.5, 0.0, 0.0]]
    """
    weights = size_weights(uploads.reported)
    return mix(weights, uploads.received), weights


# `Exchange.server`
Step = Callable[[PRNGKey, ServerState, Uploads], Outcome]


def take_mean(aggregate: Aggregate = equal_mean, fraction: Scalar | None = None) -> Step:
    """The step of a server whose state is one model, which becomes the mean of those that arrived.

    Args:
      aggregate: the mean, with weights.
      fraction: how far the model moves from what it was to the mean; its statistics of BatchNorm
        are the mean. None: it is the mean.

    Example:
      >>> received = jnp.array([[8.0], [8.0], [8.0], [8.0]])
      >>> uploads = Uploads(cohort.ids, cohort.sizes, jnp.ones(4, bool), received, received)
      >>> state = ServerState(jnp.array([0.0]))
      >>> take_mean(fraction=0.25)(jax.random.key(0), state, uploads).state.server.tolist()
      [2.0]
    """

    def server(key: PRNGKey, state: ServerState, uploads: Uploads) -> Outcome:
        model, weights = aggregate(uploads)
        if fraction is not None:
            moved = tree.interpolate(state.server, model, fraction)
            model = tree.combine(of_statistics, model, moved)
        return Outcome(ServerState(model), weights=tree.broadcast(weights, uploads.ids.size))

    return server


def take_part(shared: str, personal: str, aggregate: Aggregate = mean_by_size) -> Step:
    """The step of a server whose state is one part of a model, of which clients keep the other.

    Args:
      shared: the name of the part that the server has.
      personal: the name of the part that clients keep.
      aggregate: the mean, with weights.

    Example:
      >>> received = jnp.array([[8.0], [8.0], [8.0], [8.0]])
      >>> uploads = Uploads(cohort.ids, cohort.sizes, jnp.ones(4, bool), received, received)
      >>> outcome = take_part("body", "head")(jax.random.key(0), ServerState(), uploads)
      >>> outcome.weights["head"][0].tolist()
      [1.0, 0.0, 0.0, 0.0]
    """
    step = take_mean(aggregate)

    def server(key: PRNGKey, state: ServerState, uploads: Uploads) -> Outcome:
        outcome = step(key, state, uploads)
        return outcome._replace(
            weights=part_weights(outcome.weights, shared, personal, uploads.received)
        )

    return server
