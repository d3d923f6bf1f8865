"""FedProto: clients exchange the mean features of each class, not models.

each round t, with the features f and the prototypes c_k of the classes:    (Algorithm 1)
  client i:  w_i = local training of F_i + lam |f(x) - c_y|^2 from w_i
             sends its mean features of each class
  server:    c_k = the mean of those of the clients that have class k
client i deploys w_i.
"""

from typing import Annotated

import jax.numpy as jnp

from jaxfl.algorithms import steps
from jaxfl.core import tree
from jaxfl.core.facts import NOT_NEGATIVE, Paper, method
from jaxfl.core.messages import Outcome, ServerState, Uploads
from jaxfl.core.types import Algorithm, Scalar, Task


@method(
    title="FedProto",
    paper=Paper(
        authors="Tan, Yue and Long, Guodong and Liu, Lu and Zhou, Tianyi and Lu, Qinghua and "
        "Jiang, Jing and Zhang, Chengqi",
        title="FedProto: Federated Prototype Learning across Heterogeneous Clients",
        venue="AAAI",
        year=2022,
        link="https://arxiv.org/abs/2105.00243",
    ),
    place="Algorithm 1",
    personal="the whole model",
    sends="the mean features of each class that it has",
    defaults="the authors' code",
    advice="lower lam, the attraction to the prototypes: at 0 it is local training",
)
def fedproto(
    task: Task,
    *,
    lam: Annotated[Scalar, NOT_NEGATIVE] = 1.0,
    predict: steps.Predict = "head",
) -> Algorithm:
    """Each client trains a model of its own, whose features are drawn to the prototypes of classes.

    A prototype is the mean of the features of a class. A client minimises its loss plus lam times
    the mean squared difference of the features of an example from the prototype of its class. Then
    it sends its own prototypes. The server's prototype of a class is the mean of those that clients
    have sent; one that nobody has sent in a round stays. Models are never sent, and they may differ
    in the authors' setting.

    State: memory = the client's model; server = `Prototypes`. Weights: "prototypes", with the mean
    over classes of the weights of the senders, and "model".

    Args:
      task: the model and its training.
      lam: strength of the attraction.
      predict: by the client's own "head", or the class of the nearest of the server's "prototypes",
        as in the paper; the authors' code reports both.

    Raises:
      InputError: the model does not define its features, its head is not one dense layer and
        clients predict by prototypes, or the task has no labels.

    Differs: clients with a class count equally in its prototype, as in the authors' code; the
    paper's equation (6) weighs them by their numbers of examples of the class. Prototypes are those
    of the trained model, which the code takes in the course of training.

    Example:
      >>> state, info = one_round(fedproto(task, predict="prototypes"))
      >>> state.server.values.shape, sorted(info.weights)
      ((2, 8), ['model', 'prototypes'])
    """

    def server(state: ServerState, sent: steps.Prototypes, uploads: Uploads) -> Outcome:
        after, rows = steps.mean_prototypes(sent, uploads.reported, state.server)
        exists = rows.any(axis=1)
        mean = rows.sum(axis=0) / jnp.maximum(exists.sum(), 1)
        identity = jnp.eye(mean.size)
        weights = jnp.where(exists.any(), tree.broadcast(mean, mean.size), identity)
        return Outcome(ServerState(after), weights={"model": identity, "prototypes": weights})

    return steps.shared_prototypes(task, "FedProto", lam, predict, server=server)
