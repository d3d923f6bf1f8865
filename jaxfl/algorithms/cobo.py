"""CoBo: two clients collaborate if their gradients at the midpoint of their models agree.

each round t:
  client i:  x_i = local training of F_i from x_i; sends it, and gets all x_j
             sends the gradient of F_i at z_ij = (x_i + x_j) / 2 for each j
  server:    w_ij = 1 if <grad F_i(z_ij), grad F_j(z_ij)> is positive, otherwise 0
             x_i = x_i - pull sum_j w_ij (x_i - x_j)
client i deploys x_i.
"""

from typing import Annotated

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from jaxfl.algorithms import steps
from jaxfl.core import tree
from jaxfl.core.facts import FRACTION, NOT_NEGATIVE, Paper, method
from jaxfl.core.messages import (
    Down,
    Exchange,
    Outcome,
    Report,
    ServerState,
    Turn,
    Up,
    Uploads,
    Wire,
)
from jaxfl.core.streams import stream
from jaxfl.core.types import Algorithm, Cohort, Dataset, Params, PRNGKey, Scalar, Task
from jaxfl.kernels import mix, pull_rows
from jaxfl.training import data_loss, trainable


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
    advice="lower pull, the attraction to the clients that agree: at 0 it is local training",
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

    The server holds the gradients of all pairs at once, M (M - 1) models. A client sends its model
    and M - 1 gradients, and gets M - 1 models, which it mixes.

    State: memory = the client's model; record = its row of w, by client id; server = nothing.
    Metrics: `edges`, the mean over the clients of the sum of w.

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
    start = steps.init_own(task.problem)

    def init(key: PRNGKey, train: Dataset) -> tuple[Params, ServerState]:
        memory, _ = start(key, train)
        clients = len(train.mask)
        return memory, ServerState(record=jnp.ones((clients, clients)))

    def client(key: PRNGKey, memory: Params, down: Down, cohort: Cohort) -> Turn[Params]:
        return steps.train_and_send(fit, key, memory, None, cohort)

    def server(key: PRNGKey, state: ServerState, uploads: Uploads) -> Outcome:
        clients = uploads.ids.size
        floats = jnp.full(clients, (clients - 1) * (tree.size(uploads.received) // clients))
        reply = Down(uploads.received, each=jnp.arange(clients), floats=floats)
        return Outcome(state._replace(memo=uploads), reply)

    def compare(key: PRNGKey, memory: Params, down: Down, cohort: Cohort) -> Turn[Params]:
        """The gradients of each client at its midpoints with those that are 1, 2, ... behind it."""
        models, places = down.common, down.each
        clients = len(jax.tree.leaves(models)[0])
        own = tree.take(models, places)

        def at_midpoint(hop: Array) -> tuple[Params, Int[Array, "m"]]:
            other = tree.take(models, (places + hop) % clients)
            midpoints = jax.tree.map(lambda x, y: (x + y) / 2, own, other)
            _, grads, batches = gradient(
                stream(key, "evaluate"), midpoints, cohort.train, cohort.ids
            )
            return trainable(grads), batches

        grads, batches = lax.map(at_midpoint, jnp.arange(1, clients))  # [M - 1, M, ...]
        by_client = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), grads)
        size = (clients - 1) * (tree.size(models) // clients)
        up = Up((), (), by_client, jnp.full(cohort.ids.size, size))
        return memory, up, Report(batches=batches.sum(axis=0))

    def agree(key: PRNGKey, state: ServerState, uploads: Uploads) -> Outcome:
        (ids, _, arrived, received, *_), collaboration = state.memo, state.record
        clients = ids.size
        places = jnp.arange(clients)
        reported = arrived & uploads.reported

        def agreement(hop: Array) -> Float[Array, "m"]:
            """The inner product for each client and the one `hop` places after it."""
            own = jax.tree.map(lambda x: x[:, hop - 1], uploads.plain)
            back = jax.tree.map(lambda x: x[:, clients - hop - 1], uploads.plain)
            return jax.vmap(tree.dot)(own, tree.take(back, (places + hop) % clients))

        hops = jnp.arange(1, clients // 2 + 1)
        products = lax.map(agreement, hops)  # [hops, M]
        pairs = (places[None] + hops[:, None]) % clients
        firsts = jnp.broadcast_to(places, pairs.shape)
        agreements = jnp.zeros((clients, clients)).at[firsts, pairs].set(products)
        agreements = agreements.at[pairs, firsts].set(products)
        # The step of w, for those whose models arrived.
        both = reported[:, None] & reported[None] & ~jnp.eye(clients, dtype=bool)
        before = collaboration[:, ids]
        if gamma is None:
            moved = jnp.where(agreements > 0, 1.0, 0.0)
        else:
            moved = jnp.clip(before + gamma * agreements, 0.0, 1.0)
        after = jnp.where(both & ~jnp.isnan(moved), moved, before)
        weights = pull_rows(jnp.where(both, after, 0.0), pull)
        return Outcome(
            ServerState(record=collaboration.at[:, ids].set(after)),
            # The client has the models of its mixture already.
            Down(each=mix(weights, received), floats=jnp.zeros(clients, int)),
            weights,
            {"edges": jnp.where(both, after, 0.0).sum() / clients},
        )

    exchanges = (
        Exchange(client, server),
        Exchange(compare, agree),
        Exchange(steps.take_offered(task)),
    )
    return steps.compose(task, Wire(init, exchanges, steps.deploy_memory))
