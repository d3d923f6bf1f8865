"""DPFL: each client chooses few collaborators, one after the other, by its validation loss."""

from typing import Annotated

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from jaxfl.algorithms.steps.personal import own_models
from jaxfl.algorithms.steps.uploads import train_and_upload
from jaxfl.core import tree
from jaxfl.core.facts import method
from jaxfl.core.options import COUNT_OR_ZERO
from jaxfl.core.papers import Paper
from jaxfl.core.streams import stream
from jaxfl.core.types import Algorithm, Cohort, Dataset, Info, PRNGKey, State, Task
from jaxfl.kernels.mixing import isolate, mix
from jaxfl.training.objectives import data_loss


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
    turn_first="budget, the number of collaborators; then raise --val, by which they are chosen",
)
def dpfl(task: Task, *, budget: Annotated[int, COUNT_OR_ZERO] = 3) -> Algorithm:
    """Each client takes the mean with at most `budget` others, which it chooses greedily.

    A client trains from its own model. The set of its collaborators starts with the client alone.
    Then it adds the client whose model, in the mean of the models of the set weighted by size,
    gives the lowest loss on its own validation examples, as long as the loss does not rise and the
    budget is not spent. The graph is directed and sparse: a row has at most 1 + budget weights.
    A client without validation data keeps its model.

    State: clients = the model of each client; server = nothing. Metrics: `edges`, the mean number
    of collaborators.

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
    loss = data_loss(task.problem)
    fit = task.trainer(loss)
    evaluate = task.evaluate(loss)

    def init(key: PRNGKey, train: Dataset) -> State:
        return State(tree.broadcast(task.problem.init(key), train.mask.shape[0]), ())

    def round(key: PRNGKey, state: State, cohort: Cohort) -> tuple[State, Info]:
        clients = cohort.ids.size
        _, received, info = train_and_upload(task, fit, key, state.clients, None, cohort)
        evaluate_key = stream(key, "evaluate")
        sizes = jnp.maximum(cohort.sizes, 1).astype(jnp.float32)
        places = jnp.arange(clients)

        def losses(neighbours: Bool[Array, "m m"]) -> Float[Array, "m"]:
            """The validation loss of each client at the mean of its set; NaN counts as large."""
            values = evaluate(
                evaluate_key, mix(rows_of(neighbours), received), cohort.val, cohort.ids
            )
            return jnp.where(jnp.isnan(values), jnp.finfo(values.dtype).max, values)

        def rows_of(neighbours: Bool[Array, "m m"]) -> Float[Array, "m m"]:
            weights = jnp.where(neighbours, sizes[None], 0.0)
            return weights / weights.sum(axis=1, keepdims=True)

        def add(carry: tuple[Array, Array, Array], _: None) -> tuple[tuple, None]:
            neighbours, best, active = carry

            def offer(sender: Array) -> Float[Array, "m"]:
                return losses(neighbours | (places == sender)[None])

            offers = lax.map(offer, places).T  # [M, M] (receiver, sender)
            free = ~neighbours & info.reported[None]
            offers = jnp.where(free, offers, jnp.inf)
            sender = offers.argmin(axis=1)
            value = offers.min(axis=1)
            active = active & (value <= best) & free.any(axis=1)
            neighbours = neighbours | (active[:, None] & (places[None] == sender[:, None]))
            return (neighbours, jnp.where(active, value, best), active), None

        alone = jnp.eye(clients, dtype=bool)
        begin = (alone, losses(alone), cohort.val.mask.any(axis=1))
        (neighbours, _, _), _ = lax.scan(add, begin, None, length=min(budget, clients - 1))
        weights = isolate(rows_of(neighbours), info.reported)
        edges = (weights > 0).sum() / clients - 1
        info = info._replace(
            weights=weights, down=(clients - 1) * info.down, metrics={"edges": edges}
        )
        return State(mix(weights, received), ()), info

    return Algorithm(init, round, own_models, task.problem.apply, validates=True)
