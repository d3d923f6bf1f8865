"""LG-FedAvg (Liang et al., "Think Locally, Act Globally: Federated Learning with Local and Global Representations").

NeurIPS 2019 Workshop on Federated Learning, 2020 as arXiv:2001.01523; Algorithm 1.
"""

import jax
import jax.numpy as jnp

from jaxfl import tree
from jaxfl.kernels.mixing import mix, size_weights
from jaxfl.types import Algorithm, Cohort, Dataset, Info, PRNGKey, State, Task


def lg_fedavg(task: Task, *, head: tree.Layers | None = None) -> Algorithm:
    """The head is FedAvg's; each client keeps a body of its own. Both are trained together: FedPer the other way round.

    Personal is the body; a client sends its head. It deploys the mean head on its own body. A model
    that is all head is FedAvg's. The weights are those of the head.

    State: clients = each client's body; server = the global head.

    Args:
      task: the model and its training.
      head: the shared layers: a regular expression to find in their paths, or a predicate; None:
        the model's head.

    Differs: from the common initial model; the paper's experiments start from one that FedAvg has
    trained. A client deploys its own model; the paper's ensemble for clients never seen is not
    here.
    """
    fit = task.trainer(task.loss)
    head = task.head if head is None else head

    def init(key: PRNGKey, train: Dataset) -> State:
        model = task.init(key)
        tree.select(model, head)  # raises where no layer matches
        shared, own = tree.split(model, head)
        return State(tree.broadcast(own, train.mask.shape[0]), shared)

    def round(key: PRNGKey, state: State, cohort: Cohort) -> tuple[State, Info]:
        fit_key, uplink_key = jax.random.split(key)
        start = tree.broadcast(state.server, cohort.ids.size)
        trained, loss = fit(fit_key, tree.join(start, state.clients), None, cohort)
        sent, own = tree.split(trained, head)
        received, heard = task.uplink(uplink_key, start, sent, cohort.ids)
        share = size_weights(cohort.sizes * heard)  # [M], the same for every receiver
        mean = mix(share, received)
        floats = jnp.full_like(cohort.ids, tree.size(mean))
        weights = tree.broadcast(share, loss.size)
        return State(own, mean), Info(
            loss, weights, up=floats, down=floats, batches=task.batches(cohort), heard=heard
        )

    def models(state: State, ids):
        return tree.join(tree.broadcast(state.server, ids.size), tree.take(state.clients, ids))

    return Algorithm(init, round, models, task.apply)
