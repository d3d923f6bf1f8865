"""MeritFed: weights found by mirror descent on the validation loss of the mixture.

each round t, with the validation loss V_i:
  client i:  w_i = local training of F_i from x_i; sends it, and gets all w_j
             r_ij = 1 / M; as often as `steps`: x_i = sum_j r_ij w_j,
             r_ij = r_ij exp(-rate <w_j, grad V_i(x_i)>), scaled to sum to 1
             x_i = sum_j r_ij w_j
client i deploys x_i.
"""

from typing import Annotated

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from jaxfl.algorithms.steps import Offer, choose_from_all, isolate_rows, keep_rows
from jaxfl.core import tree
from jaxfl.core.facts import COUNT, POSITIVE, Paper, method
from jaxfl.core.messages import Report
from jaxfl.core.streams import stream
from jaxfl.core.types import Algorithm, Cohort, Params, PRNGKey, Scalar, Task
from jaxfl.kernels import mix, size_weights
from jaxfl.kernels.merit import exponentiated
from jaxfl.training import data_loss, trainable


@method(
    title="MeritFed",
    paper=Paper(
        authors="Tupitsa, Nazarii and Horváth, Samuel and Takáč, Martin and Gorbunov, Eduard",
        title="Federated Learning Can Find Friends That Are Advantageous",
        venue="",
        year=2024,
        link="https://arxiv.org/abs/2402.05050",
    ),
    personal="the mixture of models",
    sends="its model",
    takes_top_edges=True,
    starts_from_server=False,
    defaults="ours",
    advice="raise steps or rate, so that the weights go further from equal ones; then --val",
)
def meritfed(
    task: Task,
    *,
    rate: Annotated[Scalar, POSITIVE] = 1.0,
    steps: Annotated[int, COUNT] = 10,
) -> Algorithm:
    """Each client lowers its validation loss by the weights of the models that it mixes.

    A client trains from its own model. The row w_i of its weights starts at 1 / M and takes steps
    of mirror descent on the simplex: w_ij is multiplied by exp(-rate <y_j, grad F_i(x)>), and the
    row is scaled to 1. Here x is the mixture sum_j w_ij y_j of the trained models, and F_i the loss
    on the client's validation examples. The client receives the last mixture. A client without
    validation data keeps the model that it trained.

    State: memory = each client's model; server = nothing.

    Args:
      task: the model and its training.
      rate: of the steps on the weights.
      steps: the number of these steps in a round; each is a gradient on all validation examples.

    Differs: the paper has one client with a goal of its own: all clients compute stochastic
    gradients at its model, which moves along their mixture. Here every client has this goal; since
    each would have to train from the models of all others, the clients' models take the place of
    steps from a common one. The weights start anew in each round, and the gradient of the loss is
    that of all validation examples, where the authors' code takes a batch.

    Example:
      >>> _, info = one_round(meritfed(task, steps=2))
      >>> info.weights.shape
      (4, 4)
    """
    loss = data_loss(task.problem)
    gradient = task.gradient(loss)

    def choose(key: PRNGKey, offer: Offer, cohort: Cohort) -> tuple[Params, Report]:
        clients, senders = cohort.ids.size, offer.reported.size
        evaluate_key = stream(key, "evaluate")

        def inner(grads: Params) -> Float[Array, "m n"]:
            """<y_j, grad of client i> [M, N]."""
            products = jax.tree.map(
                lambda g, y: jnp.matmul(
                    g.reshape(clients, -1), y.reshape(senders, -1).T, precision="highest"
                ),
                trainable(grads),
                trainable(offer.models),
            )
            return sum(jax.tree.leaves(products), jnp.zeros((clients, senders)))

        def step(carry: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], None]:
            weights, batches = carry
            answer = gradient(evaluate_key, mix(weights, offer.models), cohort.val, cohort.ids)
            by_weights = inner(answer.grads)
            mask = jnp.isfinite(by_weights).all(axis=1, keepdims=True)
            after = exponentiated(weights, jnp.where(mask, by_weights, 0.0), rate)
            return (after, batches + answer.batches), None

        equal = tree.broadcast(size_weights(offer.reported), clients)
        begin = (equal, jnp.zeros_like(cohort.ids))
        (weights, batches), _ = lax.scan(step, begin, None, length=steps)
        # A client without validation data keeps its own model.
        validates = cohort.val.weights.any(axis=1)[:, None]
        own = offer.own.astype(weights.dtype)
        edges = keep_rows(task, jnp.where(validates, isolate_rows(weights, offer), own), offer)
        return mix(edges, offer.models), Report(batches=batches, weights=edges.weights)

    return choose_from_all(task, choose)
