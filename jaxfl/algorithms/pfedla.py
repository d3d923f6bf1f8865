"""pFedLA: a hypernetwork for each client makes the weights with which its layers are mixed.

each round t, with the embedding v_i of client i and a network h_i for it on the server:
  server:    r_ij = h_ij(v_i) / sum_k h_ik(v_i), for each layer
             x_i = sum_j r_ij w_j of the models that it last received, and sends it
  client i:  w_i = local training of F_i from x_i, and sends it
  server:    v_i and h_i take a step of SGD along J'(x_i - w_i), with J the Jacobian of x_i
client i deploys w_i.
"""

from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxfl.algorithms import steps
from jaxfl.core.facts import COUNT, COUNT_OR_ZERO, NOT_NEGATIVE, Paper, method
from jaxfl.core.messages import Uploads
from jaxfl.core.streams import stream
from jaxfl.core.types import Algorithm, Params, PRNGKey, Scalar, Task
from jaxfl.kernels import positive_rows
from jaxfl.kernels.hypernet import Hypernet, contributions, init_weight_net


class Network(NamedTuple):
    """What the server learns for each client."""

    # [C, embedding] v_i
    embedding: Float[Array, "*c e"]
    # [C, ...] psi_i; for each layer a kernel [C, width, C] and a bias [C, C], by client id
    net: Hypernet


@method(
    title="pFedLA",
    paper=Paper(
        authors="Ma, Xiaosong and Zhang, Jie and Guo, Song and Xu, Wenchao",
        title="Layer-wised Model Aggregation for Personalized Federated Learning",
        venue="CVPR",
        year=2022,
        link="https://arxiv.org/abs/2205.03993",
    ),
    personal="the whole model",
    sends="its model",
    defaults="another implementation (FL-bench), but for the rate, which is ours",
    offers_mixture=True,
    takes_top_edges=True,
    mixes_before_training=True,
    starts_from_server=False,
    separating={"rate": 1000.0},
    advice="raise rate tenfold: the weights move slowly from equal ones",
)
def pfedla(
    task: Task,
    *,
    keep: Annotated[int, COUNT_OR_ZERO] = 0,
    embedding: Annotated[int, COUNT] = 100,
    width: Annotated[int, COUNT] = 100,
    hidden: Annotated[int, COUNT] = 3,
    rate: Annotated[Scalar, NOT_NEGATIVE] = 100.0,
) -> Algorithm:
    """Each layer of each client is a mixture, with weights from a hypernetwork of the client.

    At the start of a round the server sends each client i of the cohort a mixture of the models
    that it last received from the cohort. The hypernetwork of the client, with parameters psi_i,
    makes a number of 0 or more for each layer and each client from the embedding v_i; the weights
    of a layer are these numbers, scaled to sum to 1. The client trains from the mixture and deploys
    what it trained. Local training moves it along the negative gradients of its loss, so
    start - received stands for the gradient at the mixture. The chain rule gives the derivatives by
    v_i and psi_i, on which the server takes a step of SGD (`layerwise.learned_mixtures`).

    A layer is a module of the model, such as a convolution with its bias. The hypernetwork is an
    MLP with a ReLU after each layer, and a last layer for each layer of the model; the kernels of
    the last layers are uniform in [0, 1] at first, so that all weights are nearly equal.

    State: memory = the model that the client last trained, which it deploys; record =
    `LayerRecord` of `Network` and the client's id; server = nothing. A hypernetwork has about
    L width C numbers for a model of L layers, and the state has C of them. Weights: a matrix for
    each layer. Metrics: `own`, the mean weight that clients have in their own mixtures.

    Args:
      task: the model and its training.
      keep: number of layers, those of the largest own weights, that a client keeps of its own
        model; above 0 the method is HeurpFedLA. `down` counts these layers too.
      embedding: length of v.
      width: of the layers of the hypernetwork.
      hidden: number of these layers.
      rate: learning rate of v and psi. The derivative by psi is small, since it is divided by the
        sum of the hypernetwork's outputs for a layer: FL-bench's .005 left the weights nearly equal
        for 20 rounds on digits. 0: they stay as they are.

    Differs: the paper was not at hand. Formulas and defaults are those of another implementation
    (FL-bench), but for these: hypernetworks of all clients start apart, their layers as normal
    numbers of variance 1 / (number of inputs); clients of a round train side by side, where the
    code mixes in what the clients before have just trained; the server keeps what a client has
    trained, not its former model plus the update; a layer is a module, in the code a single array;
    the step on v and psi descends the loss, where the code multiplies the Jacobian by
    trained - start and descends, which moves the mixture away from the trained model. A client from
    which the server has received nothing is in nobody's mixture, and starts from the initial model.

    Example:
      >>> _, info = one_round(pfedla(task, keep=1))
      >>> sorted(info.weights), list(info.metrics)
      (['Dense_0', 'Dense_1'], ['own'])
    """

    def start(key: PRNGKey, model: Params, clients: int) -> tuple[Network, Array]:
        v_key, net_key = jax.random.split(stream(key, "server"))
        v = jax.random.normal(v_key, (clients, embedding))
        names = list(steps.by_layer(model))
        net = jax.vmap(lambda k: init_weight_net(k, names, clients, embedding, width, hidden))(
            jax.random.split(net_key, clients)
        )
        return Network(v, net), jnp.arange(clients)

    def keep_layers(rows: steps.LayerWeights) -> steps.LayerWeights:
        """The `keep` layers in which a client has its largest weights are its own alone."""
        diagonals = jnp.stack([jnp.diagonal(matrix) for matrix in rows.values()])  # [L, M]
        rank = jnp.argsort(jnp.argsort(-diagonals, axis=0, stable=True), axis=0, stable=True)
        return {
            name: jnp.where(mask[:, None], jnp.eye(diagonals.shape[1]), matrix)
            for mask, (name, matrix) in zip(rank < keep, rows.items(), strict=True)
        }

    # The weights of each layer, by the clients' hypernetworks.
    def weigh(learned: Network, ids: Int[Array, "m"]) -> steps.LayerWeights:
        values = jax.vmap(contributions)(learned.net, learned.embedding)
        rows = {name: positive_rows(of[:, ids]) for name, of in values.items()}
        return keep_layers(rows) if keep else rows

    # A step of SGD on v and psi.
    def step(
        record: steps.LayerRecord, grads: Network, weights: steps.LayerWeights, uploads: Uploads
    ) -> steps.LayerStep:
        learned = jax.tree.map(lambda x, gradient: x - rate * gradient, record.learned, grads)
        diagonals = jnp.stack([jnp.diagonal(matrix) for matrix in weights.values()])
        return steps.LayerStep(learned, record.known, {"own": diagonals.mean()})

    return steps.learned_mixtures(task, start=start, weigh=weigh, step=step)
