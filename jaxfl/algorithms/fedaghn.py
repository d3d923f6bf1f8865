"""FedAGHN: attention between the clients' updates, with trained scalars for each layer.

each round t, for each layer, with the last updates u_j:
  server:    r_ij = softmax_j(s_i cos(u_i, u_j)) / (1 + p_i) for j != i, r_ii = p_i / (1 + p_i)
             x_i = sum_j r_ij w_j of the models that it last received, and sends it
  client i:  w_i = local training of F_i from x_i, and sends it
  server:    u_i = w_i - x_i
             (p_i, s_i) = (p_i, s_i) - eta J'(x_i - w_i), J the Jacobian of x_i by (p_i, s_i)
client i deploys w_i.
"""

from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxfl.algorithms import steps
from jaxfl.core import tree
from jaxfl.core.facts import NOT_NEGATIVE, Paper, method
from jaxfl.core.messages import Uploads
from jaxfl.core.types import Algorithm, Params, PRNGKey, Scalar, Task
from jaxfl.kernels import cosine, heuristic


class Scalars(NamedTuple):
    """What the server learns for each client."""

    # [C, L] p, the weight of its own model for each layer; the others have 1 together
    own: Float[Array, "*c l"]
    # [C, L] s, the factor of its cosines for each layer
    sharpness: Float[Array, "*c l"]


@method(
    title="FedAGHN",
    paper=Paper(
        authors="Song, Jiarui and Shen, Yunheng and Hou, Chengbin and Wang, Pengyu and Wang, Jinbao"
        " and Tang, Ke and Lv, Hairong",
        title="FedAGHN: Personalized Federated Learning with Attentive Graph HyperNetworks",
        venue="Knowledge-Based Systems",
        year=2025,
        link="https://arxiv.org/abs/2501.16379",
    ),
    personal="the whole model",
    sends="its model",
    defaults="the authors' code",
    offers_mixture=True,
    takes_top_edges=True,
    mixes_before_training=True,
    starts_from_server=False,
    separating={"own": 1.0, "sharpness": 10.0},
    advice="raise own, the weight of a client's own model, and sharpness: the defaults mix "
    "nearly evenly",
)
def fedaghn(
    task: Task,
    *,
    own: Annotated[Scalar, NOT_NEGATIVE] = 0.03,
    sharpness: Scalar = 0.5,
    eta: Annotated[Scalar, NOT_NEGATIVE] = 0.005,
) -> Algorithm:
    """Each layer of each client is a mixture by attention, whose two scalars the server trains.

    At the start of a round the server sends each client of the cohort a mixture of the models that
    it last received from the cohort. In a layer the others have the weights of a softmax of s_i
    times the cosines of the last updates of this layer, the client itself has the weight p_i, and
    the row is scaled to 1. The client trains from the mixture and deploys what it trained. Local
    training moves it along the negative gradients of its loss, so start - received stands for the
    gradient at the mixture; its products with the models of the mixture are the derivatives of the
    loss by the weights, and the chain rule gives those by s_i and p_i, on which the server takes a
    step of SGD. p_i stays 0 or more.

    State: memory = the model that the client last trained, which it deploys; record =
    `LayerRecord` of `Scalars` and the client's last update: what the server received less the
    mixture from which it trained; server = nothing. Weights: a matrix for each layer. Metrics:
    `own` and `sharpness`, the means of p and s over layers and clients of the round.

    Args:
      task: the model and its training.
      own: p, at first, for all layers and clients.
      sharpness: s, at first.
      eta: learning rate of p and s. 0: they stay as they are.

    Differs: the paper was not at hand, and formulas and defaults are those of its authors' code,
    but for the sign of the step on p and s. The code multiplies the Jacobian by received - start
    and descends, which moves the mixture away from the trained model; here the mixture moves toward
    it, as in pFedHN (https://arxiv.org/abs/2103.04628). There is no momentum of p and s. A client
    from which the server has received nothing is in nobody's mixture, and starts from the initial
    model.

    Example:
      >>> _, info = one_round(fedaghn(task, own=1.0))
      >>> sorted(info.weights), sorted(info.metrics)
      (['Dense_0', 'Dense_1'], ['own', 'sharpness'])
    """

    def start(key: PRNGKey, model: Params, clients: int) -> tuple[Scalars, Params]:
        ones = jnp.ones((clients, len(steps.by_layer(model))))
        nothing = tree.zeros_like(tree.broadcast(model, clients))
        return Scalars(own * ones, sharpness * ones), nothing

    # The weights of each layer, by softmax attention between the last updates.
    def weigh(learned: Scalars, update: Params) -> steps.LayerWeights:
        own, sharpness = learned
        weights = {}
        for place, (name, leaves) in enumerate(steps.by_layer(update).items()):
            share = own[:, place, None] / (1 + own[:, place, None])
            weights[name] = heuristic(cosine(leaves), share, sharpness[:, place, None])
        return weights

    # A step on the scalars.
    def step(
        record: steps.LayerRecord, grads: Scalars, weights: steps.LayerWeights, uploads: Uploads
    ) -> steps.LayerStep:
        own, sharpness = jax.tree.map(lambda x, g: x - eta * g, record.learned, grads)
        own = jnp.maximum(own, 0.0)
        return steps.LayerStep(
            Scalars(own, sharpness),
            jax.tree.map(jnp.subtract, uploads.received, uploads.before),
            {"own": own.mean(), "sharpness": sharpness.mean()},
        )

    return steps.learned_mixtures(task, start=start, weigh=weigh, step=step)
