"""MOON (Li, He and Song, "Model-Contrastive Federated Learning", CVPR 2021, Algorithm 1)."""

import jax
import jax.numpy as jnp

from jaxfl import tree
from jaxfl.errors import check_positive
from jaxfl.kernels.contrastive import contrast
from jaxfl.kernels.mixing import mix, size_weights
from jaxfl.types import Algorithm, Cohort, Dataset, Info, Params, PRNGKey, Scalar, State, Task


def moon(task: Task, *, mu: Scalar = 1.0, temperature: Scalar = 0.5) -> Algorithm:
    """FedAvg whose clients draw the features of their data to the global model's and away from their last model's.

    Nothing is personal; a client sends its model. Features are what enters the model's head, or
    what the model predicts if it names no head.

    State: clients = each client's last trained model, first the common initial one; server = the
    global model.

    Args:
      task: the model and its training.
      mu: strength of the contrast; section 4.1 finds 5, 1 and 10 best for CIFAR-10, CIFAR-100 and
        Tiny-ImageNet.
      temperature: of the contrast (section 4.1).

    Differs: features come from the model as it is, without the paper's projection head of two
    layers more.
    """
    check_positive(temperature=temperature)
    features = task.apply if task.features is None else task.features

    def objective(params: Params, batch: Dataset, others: tuple, key: PRNGKey):
        loss, aux = task.loss(params, batch, None, key)
        own, shared, last = (features(of, batch.x) for of in (params, *others))
        each = contrast(own, shared, last, temperature)  # [B]
        mean = jnp.sum(jnp.where(batch.mask, each, 0)) / jnp.maximum(
            jnp.count_nonzero(batch.mask), 1
        )
        return loss + mu * mean, aux

    fit = task.trainer(objective)

    def init(key: PRNGKey, train: Dataset) -> State:
        model = task.init(key)
        return State(clients=tree.broadcast(model, train.mask.shape[0]), server=model)

    def round(key: PRNGKey, state: State, cohort: Cohort) -> tuple[State, Info]:
        fit_key, uplink_key = jax.random.split(key)
        start = tree.broadcast(state.server, cohort.ids.size)
        trained, loss = fit(fit_key, start, (start, state.clients), cohort)
        received, heard = task.uplink(uplink_key, start, trained, cohort.ids)
        share = size_weights(cohort.sizes * heard)  # [M], the same for every receiver
        model = mix(share, received)
        floats = jnp.full_like(cohort.ids, tree.size(model))
        weights = tree.broadcast(share, loss.size)
        info = Info(
            loss, weights, up=floats, down=floats, batches=task.batches(cohort), heard=heard
        )
        return State(trained, model), info

    def models(state: State, ids):
        return tree.broadcast(state.server, ids.size)

    return Algorithm(init, round, models, task.apply)
