"""FedFomo: clients weigh the other clients' models by their loss on validation data.

each round t, with the validation loss V_i:
  client i:  w_i = local training of F_i from x_i; sends it, and gets all w_j
             r_ij = max(V_i(x_i) - V_i(w_j), 0) / |w_j - x_i|, scaled to sum to 1
             x_i = sum_j r_ij w_j
client i deploys x_i.
"""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from jaxfl.algorithms import steps
from jaxfl.core import tree
from jaxfl.core.facts import Paper, method
from jaxfl.core.messages import Report
from jaxfl.core.trainable import trainable
from jaxfl.core.types import Algorithm, Cohort, Params, PRNGKey, Task
from jaxfl.kernels import fomo_weights, mix
from jaxfl.kernels.similarity import root
from jaxfl.training import deployed_losses


@method(
    title="FedFomo",
    paper=Paper(
        authors="Zhang, Michael and Sapra, Karan and Fidler, Sanja and Yeung, Serena and "
        "Alvarez, Jose M.",
        title="Personalized Federated Learning with First Order Model Optimization",
        venue="ICLR",
        year=2021,
        link="https://arxiv.org/abs/2012.08565",
    ),
    personal="the mixture of models",
    sends="its model",
    takes_top_edges=True,
    starts_from_server=False,
    advice="raise --val: a client chooses whom to learn from on its validation examples",
)
def fedfomo(task: Task) -> Algorithm:
    """Each client mixes all models itself, with weights by their loss on its validation data.

    A client trains from its own model, and the server sends it the trained models of all other
    clients of the cohort. Compared with the client's model before the round, each trained model
    (the client's own included) lowers the client's validation loss by some amount. The weight of
    the model is that amount divided by the distance of the two models, or 0 if the loss is not
    lower. A client for which no model has a positive weight keeps its model from before the round,
    or its trained model if it has no validation data; its row of weights is that of the identity.

    State: memory = each client's model; server = nothing.

    Args:
      task: the model and its training.

    Differs: the server sends all models to all clients. In the paper it sends each client only some
    models: those with the largest weights so far, and a few at random.

    Example:
      >>> state = initial_state(fedfomo(task))
      >>> state.server
      ()
    """
    losses_of = deployed_losses(task)

    def choose(key: PRNGKey, offer: steps.Offer, cohort: Cohort) -> tuple[Params, Report]:
        def losses(models: Params) -> Array:
            """The validation loss of each client [M] at its model of the stack [M, ...]."""
            return losses_of(models, cohort.val, cohort)

        def compare(model: Params) -> tuple[Array, Array]:
            """Its loss for each client, and its squared distance from each client's model [M]."""
            stacked = tree.broadcast(model, cohort.ids.size)
            parts = trainable((stacked, offer.start))
            return losses(stacked), jax.vmap(tree.squared_distance)(*parts)

        # How much each model lowers the loss, divided by its distance.
        before = losses(offer.start)
        values, squared = lax.map(compare, offer.models)  # [N, M] each (model, client)
        values = jnp.where(offer.reported[:, None], values, jnp.inf)
        weights = fomo_weights(before, values.T, root(squared.T))
        has_weight = weights.sum(axis=1) > 0
        edges = steps.keep_rows(task, weights, offer)

        # A client for which no model has a weight keeps a model of its own.
        validates = cohort.val.weights.any(axis=1)
        fallback = tree.choose(validates, offer.start, offer.trained)
        model = tree.choose(has_weight, mix(edges, offer.models), fallback)
        weights = jnp.where(has_weight[:, None], edges.weights, offer.own.astype(weights.dtype))
        return model, Report(weights=weights)

    return steps.choose_from_all(task, choose)
