"""FedPer (Arivazhagan et al., "Federated Learning with Personalization Layers", 2019, Algorithms 1 and 2)."""

import jax
import jax.numpy as jnp

from jaxfl import tree
from jaxfl.kernels.mixing import mix, size_weights
from jaxfl.types import Algorithm, Cohort, Dataset, Info, PRNGKey, State, Task


def fedper(task: Task, *, head: tree.Layers | None = None) -> Algorithm:
    """The body is FedAvg's; each client keeps a head of its own. Both are trained together.

    Personal is the head; a client sends its body. It deploys the mean body under its own head. Of a
    model that is all head nothing is shared. The weights are those of the body.

    State: clients = each client's head; server = the global body.

    Args:
      task: the model and its training.
      head: the personal layers: a regular expression to find in their paths, or a predicate; None:
        the model's head.
    """
    fit = task.trainer(task.loss)
    head = task.head if head is None else head

    def init(key: PRNGKey, train: Dataset) -> State:
        model = task.init(key)
        tree.select(model, head)  # raises where no layer matches
        own, body = tree.split(model, head)
        return State(tree.broadcast(own, train.mask.shape[0]), body)

    def round(key: PRNGKey, state: State, cohort: Cohort) -> tuple[State, Info]:
        fit_key, uplink_key = jax.random.split(key)
        shared = tree.broadcast(state.server, cohort.ids.size)
        trained, loss = fit(fit_key, tree.join(state.clients, shared), None, cohort)
        own, body = tree.split(trained, head)
        received, heard = task.uplink(uplink_key, shared, body, cohort.ids)
        share = size_weights(cohort.sizes * heard)  # [M], the same for every receiver
        mean = mix(share, received)
        sends = tree.size(mean)
        weights = tree.broadcast(share, loss.size) if sends else jnp.eye(loss.size)
        floats = jnp.full_like(cohort.ids, sends)
        return State(own, mean), Info(
            loss, weights, up=floats, down=floats, batches=task.batches(cohort), heard=heard
        )

    def models(state: State, ids):
        return tree.join(tree.take(state.clients, ids), tree.broadcast(state.server, ids.size))

    return Algorithm(init, round, models, task.apply)
