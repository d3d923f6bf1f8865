"""The server's side of many methods: it takes the mean of what arrived."""

from collections.abc import Callable

from jaxfl.algorithms.steps.heads import part_weights
from jaxfl.algorithms.steps.templates import Aggregate, equal_mean, mean_by_size
from jaxfl.core import tree
from jaxfl.core.messages import Outcome, ServerState, Uploads
from jaxfl.core.types import PRNGKey, Scalar

# `Exchange.server`
Step = Callable[[PRNGKey, ServerState, Uploads], Outcome]


def take_mean(aggregate: Aggregate = equal_mean, fraction: Scalar | None = None) -> Step:
    """The step of a server whose state is one model, which becomes the mean of those that arrived.

    Args:
      aggregate: the mean, with weights.
      fraction: how far the model moves from what it was to the mean. None: it is the mean.

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
            model = tree.interpolate(state.server, model, fraction)
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
