"""FedAPA: the server moves each client's weights as its training moves it.

each round t, with the bodies b_j that the server last received; A_i = 0 at first:
  server:    A_ii = 1, and A_i is scaled to sum to 1
             x_i = sum_j A_ij b_j, and sends it
  client i:  (b_i, h_i) = local training of F_i from (x_i, h_i), and sends b_i
  server:    v_ij = momentum v_ij + <b_j, x_i - b_i>, with the b_j of the mixture
             A_ij = A_ij - rate v_ij, cut to [0, 1]
client i deploys (b_i, h_i).
"""

from typing import Annotated, NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from jaxfl.algorithms import steps
from jaxfl.core import tree
from jaxfl.core.errors import check
from jaxfl.core.facts import FRACTION, NOT_NEGATIVE, Paper, method
from jaxfl.core.messages import Uploads
from jaxfl.core.types import Algorithm, Params, PRNGKey, Scalar, Task


class Weights(NamedTuple):
    """What the server learns for each client, by client id."""

    # [C, C] A
    weights: Float[Array, "*c c"]
    # [C, C] v
    velocity: Float[Array, "*c c"]


@method(
    title="FedAPA",
    paper=Paper(
        authors="Sun, Yuxia and Sun, Aoxiang and Pan, Siyi and Fu, Zhixiao and Guo, Jingcai",
        title="FedAPA: Server-side Gradient-Based Adaptive Personalized Aggregation for Federated "
        "Learning on Heterogeneous Data",
        venue="IJCAI",
        year=2025,
        link="https://arxiv.org/abs/2502.07456",
    ),
    personal="the body's mixture and the head",
    sends="its body",
    defaults="the authors' code",
    offers_mixture=True,
    takes_top_edges=True,
    mixes_before_training=True,
    starts_from_server=False,
    separating={"rate": 0.1},
    advice="raise rate where the weights of others stay near 0",
)
def fedapa(
    task: Task,
    *,
    rate: Annotated[Scalar, NOT_NEGATIVE] = 0.01,
    momentum: Annotated[Scalar, FRACTION] = 0.9,
    head: tree.Layers | None = None,
) -> Algorithm:
    """Each client trains from a mixture of bodies whose weights follow what training changes.

    The update of client i stands for minus the gradient of its loss at its mixture, so
    <b_j, x_i - b_i> is the derivative by A_ij, along which the server takes a step of SGD with
    momentum. A client's own weight is 1 before the row is scaled, so all begin with local training,
    and a client whose update points along another one's body gives it weight.

    State: memory = the model that the client last trained, which it deploys; record =
    `LayerRecord` of `Weights` and the client's id; server = nothing. Weights: a matrix for each
    layer, the same for all layers of the body; that of the head is the identity. Metrics: `own`,
    the mean weight that clients have in their own mixtures.

    Args:
      task: the model and its training.
      rate: learning rate of A. Derivatives are products of whole bodies, so it depends on the
        model's size.
      momentum: of A's steps.
      head: the personal layers: a regular expression to find in their paths, or a predicate. None:
        the model's head.

    Raises:
      InputError: the model names no head and none is given, no layer matches, or all do.

    Differs: clients of a round train side by side, where the code mixes in what the clients before
    have just trained; v_i moves once in a round in which the client takes part, in the code at each
    client's step; models of clients outside the cohort have no part in its mixtures, in the code
    they have.

    Example:
      >>> _, info = one_round(fedapa(task))
      >>> sorted(info.weights), list(info.metrics)
      (['Dense_0', 'Dense_1'], ['own'])
    """
    head = steps.head_of(task.problem, head)
    layers = tuple(steps.by_layer(tree.split(steps.model_shapes(task.problem), head)[1]))
    check(
        bool(layers),
        "fedapa mixes the layers below the head, and the model has none: choose another model",
    )

    def start(key: PRNGKey, model: Params, clients: int) -> tuple[Weights, Array]:
        zero = jnp.zeros((clients, clients))
        return Weights(zero, zero), jnp.arange(clients)

    def with_own(rows: Float[Array, "m c"], own: Array) -> Float[Array, "m c"]:
        """A_ii = 1, and rows that sum to 1."""
        raised = jnp.where(own, 1.0, rows)
        return raised / raised.sum(axis=1, keepdims=True)

    def weigh(learned: Weights, ids: Int[Array, "m"]) -> steps.LayerWeights:
        rows = learned.weights[:, ids]
        scaled = with_own(rows, jnp.eye(ids.size, dtype=bool))
        # The step is that of the scaled row: scaling has no derivative.
        rows = rows + lax.stop_gradient(scaled - rows)
        return dict.fromkeys(layers, rows)

    def step(
        record: steps.LayerRecord, grads: Weights, weights: steps.LayerWeights, uploads: Uploads
    ) -> steps.LayerStep:
        ids = uploads.ids
        own = ids[:, None] == jnp.arange(record.learned.weights.shape[1])[None]
        velocity = momentum * record.learned.velocity + grads.weights
        moved = with_own(record.learned.weights, own) - rate * velocity
        learned = Weights(jnp.clip(moved, 0.0, 1.0), velocity)
        matrix = next(iter(weights.values()))
        return steps.LayerStep(learned, record.known, {"own": jnp.diagonal(matrix).mean()})

    return steps.learned_mixtures(
        task, start=start, weigh=weigh, step=step, personal=head, every_edge=True
    )
