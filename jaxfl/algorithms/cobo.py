"""CoBo: two clients collaborate if their gradients at the midpoint of their models agree."""

from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from jaxfl.algorithms.steps.uploads import train_and_upload
from jaxfl.core import tree
from jaxfl.core.facts import method
from jaxfl.core.options import FRACTION, NOT_NEGATIVE
from jaxfl.core.papers import Paper
from jaxfl.core.streams import stream
from jaxfl.core.types import (
    Algorithm,
    Cohort,
    Dataset,
    Gradients,
    Info,
    Params,
    PRNGKey,
    Scalar,
    State,
    Task,
)
from jaxfl.kernels.merit import pull_rows
from jaxfl.kernels.mixing import keep_own, mix
from jaxfl.training.batch_statistics import trainable
from jaxfl.training.objectives import data_loss


class Clients(NamedTuple):
    """The state of each client."""

    # [C, ...] its model
    model: Params
    # [C, C] w, by client id
    collaboration: Float[Array, "*c c"]


@method(
    title="CoBo",
    paper=Paper(
        authors="Hashemi, Diba and He, Lie and Jaggi, Martin",
        title="CoBo: Collaborative Learning via Bilevel Optimization",
        venue="NeurIPS",
        year=2024,
        link="https://arxiv.org/abs/2409.05539",
    ),
    personal="the whole model",
    sends="its model, and its gradient at the midpoint with each other client",
    defaults="ours",
    offers_mixture=True,
    starts_from_server=False,
    turn_first="lower pull, the attraction to the clients that agree: at 0 it is local training",
)
def cobo(
    task: Task,
    *,
    pull: Annotated[Scalar, FRACTION] = 0.1,
    gamma: Annotated[Scalar | None, NOT_NEGATIVE] = None,
) -> Algorithm:
    """Each client trains its own model and moves toward those whose gradients agree with its own.

    For each pair, both clients compute the gradient of their loss at z = (x_i + x_j) / 2. The
    inner problem, the largest w <grad f_i(z), grad f_j(z)> with w in [0, 1], has the solution
    w_ij = 1 if the inner product is positive, otherwise 0. With `gamma` w goes there in steps. Then
    x_i moves by -pull sum_j w_ij (x_i - x_j).

    A round is not written as messages: the server would hold the gradients of all pairs at once,
    where here it compares M pairs at a time.

    State: clients = `Clients`; server = nothing. Metrics: `edges`, the mean over the clients of the
    sum of w.

    Args:
      task: the model and its training.
      pull: eta rho summed over the steps of a round: the weight of each client that agrees. With
        w that sum to more than 1 / pull a client takes the mean of the others.
      gamma: step size of w, as in the paper: w_ij, at first 1, moves in each round by gamma times
        the inner product and is cut to [0, 1] (.01 in the authors' code, in each of thousands of
        local steps). None: the solution of the inner problem takes its place.

    Differs: by default the inner problem is solved in each round, and w has no memory. All pairs
    are compared in each round, on all training examples, after local training; the authors draw
    some pairs and batches in each step. A client moves toward the others once in a round, not in
    each step. After many local steps the gradients of similar clients oppose each other at their
    midpoint, and w finds no groups, by either rule: see docs/algorithms.md.

    Example:
      >>> _, info = one_round(cobo(task, pull=0.2))
      >>> info.weights.shape, list(info.metrics)
      ((4, 4), ['edges'])
    """
    loss = data_loss(task.problem)
    fit = task.trainer(loss)
    gradient = task.gradient(loss)

    def init(key: PRNGKey, train: Dataset) -> State:
        clients = train.mask.shape[0]
        models = tree.broadcast(task.problem.init(key), clients)
        return State(Clients(models, jnp.ones((clients, clients))), ())

    def round(key: PRNGKey, state: State, cohort: Cohort) -> tuple[State, Info]:
        clients = cohort.ids.size
        start, collaboration = state.clients
        trained, received, info = train_and_upload(task, fit, key, start, None, cohort)
        evaluate_key = stream(key, "evaluate")
        places = jnp.arange(clients)

        def grads_at(models: Params) -> Gradients:
            return gradient(evaluate_key, models, cohort.train, cohort.ids)

        def agreement(hop: Array) -> tuple[Float[Array, "m"], Int[Array, "m"]]:
            """The inner product for each client and the one `hop` places after it; the batches."""
            after = (places + hop) % clients
            midpoints = jax.tree.map(lambda x: (x + x[after]) / 2, received)
            gradients = grads_at(midpoints)
            others = grads_at(tree.take(midpoints, (places - hop) % clients))
            of_after = tree.take(trainable(others.grads), after)
            products = jax.vmap(tree.dot)(trainable(gradients.grads), of_after)
            return products, gradients.batches + others.batches

        hops = jnp.arange(1, clients // 2 + 1)
        products, batches = lax.map(agreement, hops)  # [hops, M]
        pairs = (places[None] + hops[:, None]) % clients
        firsts = jnp.broadcast_to(places, pairs.shape)
        agreements = jnp.zeros((clients, clients)).at[firsts, pairs].set(products)
        agreements = agreements.at[pairs, firsts].set(products)
        # The step of w, for those whose models arrived.
        both = info.reported[:, None] & info.reported[None] & ~jnp.eye(clients, dtype=bool)
        before = collaboration[:, cohort.ids]
        if gamma is None:
            moved = jnp.where(agreements > 0, 1.0, 0.0)
        else:
            moved = jnp.clip(before + gamma * agreements, 0.0, 1.0)
        after = jnp.where(both & ~jnp.isnan(moved), moved, before)
        weights = pull_rows(jnp.where(both, after, 0.0), pull)
        model, accepted = task.accept(trained, mix(weights, received), cohort)
        info = info._replace(
            weights=keep_own(weights, accepted),
            up=clients * info.up,
            down=(clients - 1) * info.down,
            batches=info.batches + batches.sum(axis=0),
            metrics={"edges": jnp.where(both, after, 0.0).sum() / clients},
        )
        collaboration = collaboration.at[:, cohort.ids].set(after)
        return State(Clients(model, collaboration), ()), info

    def models(state: State, cohort: Cohort) -> Params:
        return tree.take(state.clients.model, cohort.ids)

    return Algorithm(init, round, models, task.problem.apply)
