"""HeurFedAMP (Huang et al., "Personalized Cross-Silo Federated Learning on Non-IID Data", AAAI 2021)."""

from typing import Literal

import jax
import jax.numpy as jnp

from jaxfl import tree
from jaxfl.errors import check, check_not_negative
from jaxfl.kernels.alignment import misalignment
from jaxfl.kernels.amp import heuristic
from jaxfl.kernels.mixing import isolate, mix
from jaxfl.kernels.similarity import cosine
from jaxfl.types import Algorithm, Cohort, Dataset, Info, Params, PRNGKey, Scalar, State, Task


def heurfedamp(
    task: Task,
    *,
    own: Scalar = 0.3,
    sigma: Scalar = 10.0,
    lam: Scalar = 1.0,
    similarity: Literal["delta", "raw"] = "delta",
) -> Algorithm:
    """FedAMP for deep networks: a softmax of cosines in the place of distances.

    Personal is the model. A client sends it and is sent its mixture u; it minimises its loss plus
    lam / 2 |w - u|^2 from its own model. The defaults are those of pFedGraph's tables (FedAMP
    there, 2023).

    State: clients = (model, u, 1 once there is a u [C]); server = the initial model if differences
    to it are compared.

    Args:
      task: the model and its training.
      own: xi_ii, weight of a client's own model; from 0 to 1.
      sigma: sharpness of the softmax over the others' cosines.
      lam: strength of the attraction, lam / alpha_k in the paper.
      similarity: of the differences to the initial model, or of the models, as in the paper
        ("raw").

    Differs: there is no attraction before a client's first u.
    """
    check_not_negative(own=own, lam=lam)
    check(
        not isinstance(own, float | int) or own <= 1, f"own is {own}: expected a weight from 0 to 1"
    )

    def objective(params: Params, batch: Dataset, anchor, key: PRNGKey):
        loss, aux = task.loss(params, batch, None, key)
        return loss + misalignment(params, *anchor, "l2"), aux

    fit = task.trainer(objective)

    def init(key: PRNGKey, train: Dataset) -> State:
        initial, clients = task.init(key), train.mask.shape[0]
        model = tree.broadcast(initial, clients)
        return State((model, model, jnp.zeros(clients)), initial if similarity == "delta" else ())

    def round(key: PRNGKey, state: State, cohort: Cohort) -> tuple[State, Info]:
        fit_key, uplink_key = jax.random.split(key)
        start, mixture, begun = state.clients
        trained, loss = fit(fit_key, start, (mixture, lam / 2 * begun), cohort)
        received, heard = task.uplink(uplink_key, start, trained, cohort.ids)
        compared = tree.subtract(received, state.server) if similarity == "delta" else received
        weights = isolate(heuristic(cosine(compared), own, sigma), heard)
        floats = jnp.full_like(cohort.ids, tree.size(trained) // cohort.ids.size)
        info = Info(loss, weights, floats, floats, batches=task.batches(cohort), heard=heard)
        return State((trained, mix(weights, received), jnp.ones_like(begun)), state.server), info

    def models(state: State, ids):
        return tree.take(state.clients[0], ids)

    return Algorithm(init, round, models, task.apply)
