"""FedRoD (Chen and Chao, "On Bridging Generic and Personalized Federated Learning for Image Classification").

ICLR 2022; the linear personal head of section 4.
"""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from jaxfl import tree
from jaxfl.errors import check
from jaxfl.kernels.mixing import mix, size_weights
from jaxfl.types import Algorithm, Cohort, Dataset, Info, PRNGKey, State, Task


def fedrod(task: Task) -> Algorithm:
    """A global model trained as if all clients had all labels alike, and on its features a linear head of each client.

    The global model is trained by the balanced softmax, whose logits of class c have log n_c added,
    n_c the client's examples of c. The personal head's logits are added to the global model's in a
    plain softmax, of which the head alone learns. Personal is that head; a client sends the global
    model. It deploys both.

    State: clients = each client's head {"kernel" [C, d, classes], "bias" [C, classes]}, first zero;
    server = the global model. The loss of a round is that of the deployed prediction.

    Raises:
      InputError: the model names no head, so there are no features; or the task is no
        classification.

    Differs: the head begins at zero, so that a client begins as the global model predicts.
    """
    check(
        task.features is not None,
        "FedRoD needs a model's features: choose a model that names its head",
    )

    def apply(params: dict, x: Array) -> Float[Array, "b classes"]:
        entered, head = task.features(params["global"], x), params["head"]
        return task.apply(params["global"], x) + entered @ head["kernel"] + head["bias"][None]

    def objective(params: dict, batch: Dataset, prior: Float[Array, "classes"], key: PRNGKey):
        balanced = task.loss_of(lambda model, x: task.apply(model, x) + prior[None])
        loss, _ = balanced(params["global"], batch, None, key)
        personal, aux = task.loss_of(apply)(
            params | {"global": lax.stop_gradient(params["global"])}, batch, None, key
        )
        return loss + personal, aux

    fit = task.trainer(objective)

    def init(key: PRNGKey, train: Dataset) -> State:
        model, example = task.init(key), train.x[0, :1]
        labels = train.y.ndim == 2 and jnp.issubdtype(train.y.dtype, jnp.integer)
        check(
            labels,
            "FedRoD needs labels, a whole number an example: choose another algorithm for this data",
        )
        d, classes = (
            jax.eval_shape(of, model, example).shape[-1] for of in (task.features, task.apply)
        )
        head = {"kernel": jnp.zeros((d, classes)), "bias": jnp.zeros(classes)}
        return State(tree.broadcast(head, train.mask.shape[0]), model)

    def round(key: PRNGKey, state: State, cohort: Cohort) -> tuple[State, Info]:
        fit_key, uplink_key = jax.random.split(key)
        start = tree.broadcast(state.server, cohort.ids.size)
        labels = jax.nn.one_hot(cohort.train.y, state.clients["bias"].shape[-1])
        counts = jnp.sum(labels * cohort.train.mask[..., None], axis=1)  # [M, classes]
        prior = jnp.where(counts > 0, jnp.log(counts), -1e9)
        trained, loss = fit(fit_key, {"global": start, "head": state.clients}, prior, cohort)
        received, heard = task.uplink(uplink_key, start, trained["global"], cohort.ids)
        share = size_weights(cohort.sizes * heard)  # [M], the same for every receiver
        model = mix(share, received)
        floats = jnp.full_like(cohort.ids, tree.size(model))
        weights = tree.broadcast(share, loss.size)
        info = Info(
            loss, weights, up=floats, down=floats, batches=task.batches(cohort), heard=heard
        )
        return State(trained["head"], model), info

    def models(state: State, ids):
        return {
            "global": tree.broadcast(state.server, ids.size),
            "head": tree.take(state.clients, ids),
        }

    return Algorithm(init, round, models, apply)
