"""FedBN (Li et al., "FedBN: Federated Learning on Non-IID Features via Local Batch Normalization", ICLR 2021)."""

import jax
import jax.numpy as jnp

from jaxfl import tree
from jaxfl.kernels.mixing import mix, size_weights
from jaxfl.types import Algorithm, Cohort, Dataset, Info, PRNGKey, State, Task


def fedbn(task: Task, *, norms: tree.Layers = "[Nn]orm") -> Algorithm:
    """FedAvg, but each client keeps the parameters and statistics of its normalisation layers to itself.

    Algorithm 1. Personal are the normalisation layers; a client sends all others. A model without
    such layers is FedAvg's. The weights are those of the shared layers.

    State: clients = each client's normalisation layers; server = the other layers of the global
    model.

    Args:
      task: the model and its training.
      norms: the personal layers: a regular expression to find in their paths, or a predicate; those
        that flax names BatchNorm, GroupNorm, LayerNorm, ... unless given.
    """
    fit = task.trainer(task.loss)

    def init(key: PRNGKey, train: Dataset) -> State:
        own, shared = tree.split(task.init(key), norms)
        return State(tree.broadcast(own, train.mask.shape[0]), shared)

    def round(key: PRNGKey, state: State, cohort: Cohort) -> tuple[State, Info]:
        fit_key, uplink_key = jax.random.split(key)
        start = tree.broadcast(state.server, cohort.ids.size)
        trained, loss = fit(fit_key, tree.join(state.clients, start), None, cohort)
        own, sent = tree.split(trained, norms)
        received, heard = task.uplink(uplink_key, start, sent, cohort.ids)
        share = size_weights(cohort.sizes * heard)  # [M], the same for every receiver
        mean = mix(share, received)
        floats = jnp.full_like(cohort.ids, tree.size(mean))
        weights = tree.broadcast(share, loss.size)
        return State(own, mean), Info(
            loss, weights, up=floats, down=floats, batches=task.batches(cohort), heard=heard
        )

    def models(state: State, ids):
        return tree.join(tree.take(state.clients, ids), tree.broadcast(state.server, ids.size))

    return Algorithm(init, round, models, task.apply)
