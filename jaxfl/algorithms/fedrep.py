"""FedRep (Collins et al., "Exploiting Shared Representations for Personalized Federated Learning", ICML 2021)."""

import jax
import jax.numpy as jnp

from jaxfl import tree
from jaxfl.kernels.mixing import mix, size_weights
from jaxfl.types import Algorithm, Cohort, Dataset, Info, Params, PRNGKey, State, Task


def fedrep(
    task: Task,
    *,
    head_epochs: int = 10,
    head_steps: int | None = None,
    head: tree.Layers | None = None,
) -> Algorithm:
    """Each client first fits its own head to the global body, then the body to its head; the server averages bodies.

    Algorithm 1. Personal is the head; a client sends its body. It deploys the mean body under its
    own head. Of a model that is all head nothing is shared. The weights are those of the body.

    State: clients = each client's head; server = the global body.

    Args:
      task: the model and its training, which is that of the body.
      head_epochs: passes over the data to fit the head; the authors' experiments on CIFAR take 10,
        and 1 for the body.
      head_steps: steps in their place; pFedGraph's tables take 80, and 200 for the body.
      head: the personal layers: a regular expression to find in their paths, or a predicate; None:
        the model's head.
    """

    def head_loss(own: Params, batch: Dataset, body: Params, key: PRNGKey):
        return task.loss(tree.join(own, body), batch, None, key)

    def body_loss(body: Params, batch: Dataset, own: Params, key: PRNGKey):
        return task.loss(tree.join(own, body), batch, None, key)

    amount = {"epochs": head_epochs} if head_steps is None else {"steps": head_steps}
    fit_head, fit_body = task.trainer(head_loss, **amount), task.trainer(body_loss)
    head = task.head if head is None else head

    def init(key: PRNGKey, train: Dataset) -> State:
        model = task.init(key)
        tree.select(model, head)  # raises where no layer matches
        own, body = tree.split(model, head)
        return State(tree.broadcast(own, train.mask.shape[0]), body)

    def round(key: PRNGKey, state: State, cohort: Cohort) -> tuple[State, Info]:
        fit_key, uplink_key = jax.random.split(key)
        shared = tree.broadcast(state.server, cohort.ids.size)
        own, _ = fit_head(jax.random.fold_in(fit_key, 1), state.clients, shared, cohort)
        body, loss = fit_body(fit_key, shared, own, cohort)
        received, heard = task.uplink(uplink_key, shared, body, cohort.ids)
        share = size_weights(heard)  # [M], the same for every receiver
        mean = mix(share, received)
        sends = tree.size(mean)
        weights = tree.broadcast(share, loss.size) if sends else jnp.eye(loss.size)
        floats = jnp.full_like(cohort.ids, sends)
        batches = task.batches(cohort, **amount) + task.batches(cohort)
        return State(own, mean), Info(
            loss, weights, up=floats, down=floats, batches=batches, heard=heard
        )

    def models(state: State, ids):
        return tree.join(tree.take(state.clients, ids), tree.broadcast(state.server, ids.size))

    return Algorithm(init, round, models, task.apply)
