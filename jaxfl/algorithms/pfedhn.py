"""pFedHN (Shamsian et al., "Personalized Federated Learning using Hypernetworks", ICML 2021, Algorithm 1)."""

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Int

from jaxfl import tree
from jaxfl.errors import check_not_negative, check_positive
from jaxfl.kernels.hypernet import generate, init_hypernet
from jaxfl.types import Algorithm, Cohort, Dataset, Info, Params, PRNGKey, Scalar, State, Task


def pfedhn(
    task: Task,
    *,
    embedding: int = 20,
    width: int = 100,
    hidden: int = 3,
    rate: Scalar = 0.01,
    momentum: Scalar = 0.9,
    decay: Scalar = 1e-3,
    clip: Scalar = 50.0,
) -> Algorithm:
    """A network of the server makes each client's model of a learned description of that client.

    Personal is the embedding v_i, which the server keeps: theta_i = h(v_i; phi). A client is sent
    theta_i and sends what it trained from there, theta~_i; phi and v_i descend along J'(theta_i -
    theta~_i), J the Jacobian of h.

    State: clients = (v [C, embedding], its momentum); server = (phi, its momentum).

    Args:
      task: the model and its training.
      embedding: length of v; 20 as in pFedGraph's tables (2023), in the paper 1 + C / 4.
      width: of the network's layers.
      hidden: its ReLU layers.
      rate: learning rate of phi and v, SGD; this and what follows as in the authors' code.
      momentum: of it.
      decay: of their weights.
      clip: the longest gradient.

    Differs: all clients of the cohort take part in a step of phi, along the sum of their gradients,
    where the paper takes one client a step. phi first makes the task's own initial model of every
    v.
    """
    check_positive(embedding=embedding, width=width, hidden=hidden, rate=rate, clip=clip)
    check_not_negative(momentum=momentum, decay=decay)
    fit, bound = task.trainer(task.loss), optax.clip_by_global_norm(clip)
    optimizer = optax.chain(optax.add_decayed_weights(decay), optax.sgd(rate, momentum))

    def init(key: PRNGKey, train: Dataset) -> State:
        phi = init_hypernet(jax.random.fold_in(key, 1), task.init(key), embedding, width, hidden)
        v = jax.random.normal(jax.random.fold_in(key, 2), (train.mask.shape[0], embedding))
        return State((v, optimizer.init(v)), (phi, optimizer.init(phi)))

    def make(phi, v: Array) -> Params:
        return jax.vmap(generate, (None, 0))(phi, v)

    def round(key: PRNGKey, state: State, cohort: Cohort) -> tuple[State, Info]:
        fit_key, uplink_key = jax.random.split(key)
        (v, v_memory), (phi, memory) = state
        start, pull = jax.vjp(make, phi, v)
        trained, loss = fit(fit_key, start, None, cohort)
        received, heard = task.uplink(uplink_key, start, trained, cohort.ids)
        gradients, _ = bound.update(
            pull(jax.tree.map(jnp.subtract, start, received)), bound.init(())
        )
        steps, memory = optimizer.update(gradients[0], memory, phi)
        v_steps, v_memory = optimizer.update(gradients[1], v_memory, v)
        floats = jnp.full_like(cohort.ids, tree.size(trained) // cohort.ids.size)
        clients, server = (
            (optax.apply_updates(v, v_steps), v_memory),
            (optax.apply_updates(phi, steps), memory),
        )
        return State(clients, server), Info(
            loss, None, floats, floats, batches=task.batches(cohort), heard=heard
        )

    def models(state: State, ids: Int[Array, "m"]) -> Params:
        return make(state.server[0], state.clients[0][ids])

    return Algorithm(init, round, models, task.apply)
