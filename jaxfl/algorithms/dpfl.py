"""DPFL: each client chooses few collaborators, one after the other, by its validation loss.

each round t:
  client i:  w_i = local training of F_i from x_i; sends it, and gets all w_j
             S = {i}; as often as `budget`: add the j with which the mean of S (by size) has the
             lowest validation loss, as long as that does not rise
             x_i = the mean of the w_j of S
client i deploys x_i.
"""

from typing import Annotated

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from jaxfl.algorithms import steps
from jaxfl.core.facts import COUNT_OR_ZERO, Paper, method
from jaxfl.core.messages import Report
from jaxfl.core.types import Algorithm, Cohort, Params, PRNGKey, Task
from jaxfl.kernels import mix
from jaxfl.training import deployed_losses


@method(
    title="DPFL",
    paper=Paper(
        authors="Kharrat, Salma and Canini, Marco and Horváth, Samuel",
        title="DPFL: Decentralized Personalized Federated Learning",
        venue="AISTATS",
        year=2025,
        link="https://arxiv.org/abs/2406.06520",
    ),
    personal="the mixture of models",
    sends="its model",
    defaults="ours",
    starts_from_server=False,
    advice="budget, the number of collaborators; then raise --val, by which they are chosen",
)
def dpfl(task: Task, *, budget: Annotated[int, COUNT_OR_ZERO] = 3) -> Algorithm:
    """Each client takes the mean with at most `budget` others, which it chooses greedily.

    A client trains from its own model. The set of its collaborators starts with the client alone.
    Then it adds the client whose model, in the mean of the models of the set weighted by size,
    gives the lowest loss on its own validation examples, as long as the loss does not rise and the
    budget is not spent. The graph is directed and sparse: a row has at most 1 + budget weights.
    A client without validation data keeps its model.

    The server also sends the sizes of all clients, which are the weights of a mean.

    State: memory = each client's model; server = nothing. Metrics: `edges`, the mean number of
    collaborators.

    Args:
      task: the model and its training.
      budget: B, the largest number of collaborators. Each costs the losses of all models for all
        clients, M^2 passes over validation data.

    Differs: a client chooses among all clients of the cohort in each round, and all models are sent
    to it for that; the paper first finds a set of candidates, before the first round, among which
    the later rounds choose. A client that is not better than no client ends the choice, as in the
    authors' code; the paper has a variant at random.

    Example:
      >>> _, info = one_round(dpfl(task, budget=2))
      >>> info.weights.shape, list(info.metrics)
      ((4, 4), ['edges'])
    """
    losses_of = deployed_losses(task)

    def choose(key: PRNGKey, offer: steps.Offer, cohort: Cohort) -> tuple[Params, Report]:
        sizes = jnp.maximum(offer.sizes, 1).astype(float)
        senders = jnp.arange(sizes.size)

        def losses(neighbours: Bool[Array, "m n"]) -> Float[Array, "m"]:
            """The validation loss of each client at the mean of its set; NaN counts as large."""
            values = losses_of(mix(rows_of(neighbours), offer.models), cohort.val, cohort)
            return jnp.where(jnp.isnan(values), jnp.finfo(values.dtype).max, values)

        def rows_of(neighbours: Bool[Array, "m n"]) -> Float[Array, "m n"]:
            weights = jnp.where(neighbours, sizes[None], 0.0)
            return weights / weights.sum(axis=1, keepdims=True)

        def add(carry: tuple[Array, Array, Array], _: None) -> tuple[tuple, None]:
            neighbours, best, active = carry

            def join(sender: Array) -> Float[Array, "m"]:
                return losses(neighbours | (senders == sender)[None])

            values = lax.map(join, senders).T  # [M, N] (receiver, sender)
            free = ~neighbours & offer.reported[None]
            values = jnp.where(free, values, jnp.inf)
            sender = values.argmin(axis=1)
            value = values.min(axis=1)
            active = active & (value <= best) & free.any(axis=1)
            neighbours = neighbours | (active[:, None] & (senders[None] == sender[:, None]))
            return (neighbours, jnp.where(active, value, best), active), None

        begin = (offer.own, losses(offer.own), cohort.val.weights.any(axis=1))
        (neighbours, _, _), _ = lax.scan(add, begin, None, length=min(budget, senders.size - 1))
        weights = steps.isolate_rows(rows_of(neighbours), offer)
        edges = (weights > 0).sum() / cohort.ids.size - 1
        return mix(weights, offer.models), Report(weights=weights, metrics={"edges": edges})

    return steps.choose_from_all(task, choose, sizes=True)
