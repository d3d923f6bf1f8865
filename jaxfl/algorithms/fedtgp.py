"""FedTGP: FedProto with prototypes that the server trains to be far apart.

each round t, with the features f and the prototypes c_k = G(k) of a network G at the server:
  client i:  w_i = local training of F_i + lam |f(x) - c_y|^2 from w_i
             sends p_ik, its mean features of each class k
  server:    with the mean q_k of the p_ik, and l for any class other than k,
             margin = min(tau, max_k min_l |q_k - q_l|)
             G = steps of gradient descent on the mean of
                 -log(e^(-|p_ik - c_k| - margin) / (e^(-|p_ik - c_k| - margin)
                                                    + sum_l e^(-|p_ik - c_l|)))
client i deploys w_i.
"""

from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
from jax.nn.initializers import lecun_normal
from jaxtyping import Array, Bool, Float

from jaxfl.algorithms import steps
from jaxfl.core.facts import COUNT, NOT_NEGATIVE, POSITIVE, Paper, method
from jaxfl.core.messages import Outcome, ServerState, Uploads
from jaxfl.core.types import Algorithm, PRNGKey, Scalar, Task
from jaxfl.training.objectives import cross_entropy, masked_mean


class Network(NamedTuple):
    """G: an embedding for each class, a hidden layer with ReLU, and a linear layer."""

    embedding: Float[Array, "k d"]
    hidden: Float[Array, "d d"]
    hidden_bias: Float[Array, "d"]
    out: Float[Array, "d d"]
    out_bias: Float[Array, "d"]


class Server(NamedTuple):
    """The state of the server."""

    network: Network
    # the classes of which a client has sent features
    known: Bool[Array, "k"]


@method(
    title="FedTGP",
    paper=Paper(
        authors="Zhang, Jianqing and Liu, Yang and Hua, Yang and Cao, Jian",
        title="FedTGP: Trainable Global Prototypes with Adaptive-Margin-Enhanced Contrastive "
        "Learning for Data and Model Heterogeneity in Federated Learning",
        venue="AAAI",
        year=2024,
        link="https://arxiv.org/abs/2401.03230",
    ),
    personal="the whole model",
    sends="the mean features of each class that it has",
    defaults="the authors' code; rate and predict are ours",
    advice="lower lam, the attraction to the prototypes: at 0 it is local training",
)
def fedtgp(
    task: Task,
    *,
    lam: Annotated[Scalar, NOT_NEGATIVE] = 1.0,
    predict: steps.Predict = "head",
    tau: Annotated[Scalar, NOT_NEGATIVE] = 100.0,
    rate: Annotated[Scalar, POSITIVE] = 0.1,
    server_steps: Annotated[int, COUNT] = 100,
) -> Algorithm:
    """FedProto, where a network at the server makes the prototypes and learns to keep them apart.

    The mean of what clients send brings classes near to each other where clients' features differ.
    Here the prototype of a class has to be nearer than any other, by a margin, to what clients send
    of the class.

    State: memory = the client's model; server = `Server`.

    Args:
      task: the model and its training.
      lam: strength of the attraction.
      predict: by the client's own "head", or the class of the nearest of the server's "prototypes",
        as in the authors' code.
      tau: the largest margin.
      rate: learning rate of the server.
      server_steps: of gradient descent in a round.

    Raises:
      InputError: the model does not define its features, its head is not one dense layer and
        clients predict by prototypes, or the task has no labels.

    Differs: a step of the server is on all that clients have sent, in the code on ten of them in
    turn. Prototypes of classes of which nobody has sent features are not used.

    Example:
      >>> state, info = one_round(fedtgp(task))
      >>> state.server.network.embedding.shape, state.server.known.shape
      ((2, 8), (2,))
    """

    def start(key: PRNGKey, nothing: steps.Prototypes) -> Server:
        classes, size = nothing.values.shape
        keys = jax.random.split(key, 3)
        layer, zero = lecun_normal(), jnp.zeros(size)
        embedding = jax.random.normal(keys[0], (classes, size))
        hidden, out = layer(keys[1], (size, size)), layer(keys[2], (size, size))
        return Server(Network(embedding, hidden, zero, out, zero), nothing.known)

    def generate(network: Network) -> Float[Array, "k d"]:
        hidden = jax.nn.relu(network.embedding @ network.hidden + network.hidden_bias[None])
        return hidden @ network.out + network.out_bias[None]

    def prototypes(server: Server) -> steps.Prototypes:
        return steps.Prototypes(generate(server.network), server.known)

    def margin(sent: steps.Prototypes, reported: Bool[Array, "m"]) -> Scalar:
        nothing = jax.tree.map(lambda x: jnp.zeros_like(x[0]), sent)
        means, rows = steps.mean_prototypes(sent, reported, nothing)
        exists = rows.any(axis=1)
        others = exists[:, None] & exists[None] & ~jnp.eye(len(exists), dtype=bool)
        nearest = jnp.where(others, distances(means.values, means.values), jnp.inf).min(axis=1)
        return jnp.minimum(tau, jnp.where(jnp.isfinite(nearest), nearest, 0.0).max())

    def server(state: ServerState, sent: steps.Prototypes, uploads: Uploads) -> Outcome:
        data = steps.examples_of(sent, uploads.reported)
        further = margin(sent, uploads.reported) * jax.nn.one_hot(data.y, sent.known.shape[1])

        def loss(network: Network) -> Scalar:
            gaps = distances(data.x, generate(network)) + further
            return masked_mean(cross_entropy(-gaps, data.y), data.mask)

        network = steps.descend(loss, state.server.network, rate, server_steps)
        arrived = (sent.known & uploads.reported[:, None]).any(axis=0)
        return Outcome(ServerState(Server(network, state.server.known | arrived)))

    return steps.shared_prototypes(
        task, "FedTGP", lam, predict, server=server, start=start, prototypes=prototypes
    )


def distances(a: Float[Array, "n d"], b: Float[Array, "k d"]) -> Float[Array, "n k"]:
    """The Euclidean distances of rows.

    Example:
      >>> distances(jnp.zeros((1, 2)), jnp.array([[3.0, 4.0]])).tolist()
      [[5.0]]
    """
    products = jnp.matmul(a, b.T, precision="highest")
    squares = jnp.sum(a**2, axis=1)[:, None] - 2 * products + jnp.sum(b**2, axis=1)[None]
    # At 0 the root has no derivative.
    return jnp.sqrt(jnp.maximum(squares, 1e-12))
