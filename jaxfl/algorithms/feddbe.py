"""FedDBE: each client keeps what is its own in the mean of the features, apart from the model.

each round t, with the client's memory z_i, and the consensus g:
  client i:  (w_i, z_i) = local training from (w, z_i) of F_i, in which z_i is added to the
             features, plus kappa / 2 times the mean square of (mean features - g); sends w_i
  server:    w = sum_i p_i w_i, where p_i are the clients' shares of the examples
             after the first round g = sum_i p_i (mean features of client i), for good
client i deploys (w, z_i).
"""

from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, PyTree

from jaxfl.algorithms import steps
from jaxfl.core import tree
from jaxfl.core.errors import check
from jaxfl.core.facts import NOT_NEGATIVE, Paper, method
from jaxfl.core.messages import Down, Exchange, Outcome, ServerState, Turn, Up, Uploads, Wire
from jaxfl.core.over_clients import over_clients
from jaxfl.core.streams import stream
from jaxfl.core.types import Algorithm, Cohort, Dataset, Params, PRNGKey, Scalar, Task
from jaxfl.training import loss_of, masked_mean, training_predictions


class Server(NamedTuple):
    """The state of the server."""

    model: Params
    # the mean of the clients' mean features after the first round [d]
    consensus: Float[Array, "d"]
    # whether a first round has made it
    known: Bool[Array, ""]


@method(
    title="FedAvg+DBE",
    paper=Paper(
        authors="Zhang, Jianqing and Hua, Yang and Cao, Jian and Wang, Hao and Song, Tao and "
        "Xue, Zhengui and Ma, Ruhui and Guan, Haibing",
        title="Eliminating Domain Bias for Federated Learning in Representation Space",
        venue="NeurIPS",
        year=2023,
        link="https://arxiv.org/abs/2311.14975",
    ),
    personal="the memory of the representation bias, which is added to the features",
    sends="its model, and its mean features in the first round",
    defaults="the authors' code",
    advice="where it fails, take no momentum, or a tenth of the learning rate: kappa limits "
    "the steps",
)
def feddbe(task: Task, *, kappa: Annotated[Scalar, NOT_NEGATIVE] = 50.0) -> Algorithm:
    """FedAvg, with a memory of each client that is added to the features before the head.

    The memory z, one number for each feature, is trained with the model and stays with the client.
    A regulariser, kappa times the mean of half the squared differences between the mean features of
    the batch and a consensus, keeps the features of all clients around the same mean, so that the
    memory takes what is the client's own. The first round is one of FedAvg, without both. Then
    clients send their mean features, and the consensus is their mean by size; it does not change
    any more.

    State: memory = z [C, d], at first 0; server = `Server`. Weights: "global" and "memory".

    Args:
      task: the model and its training.
      kappa: strength of the regulariser; 50 in the authors' script, for a convolutional network and
        SGD without momentum. It limits the steps: with an MLP on Fashion-MNIST, two labels a
        client, a rate of .01 and a momentum of .9 the features diverge in the second round, after
        which nearly all are 0 for every image (10 to 21 %); without momentum, or at a rate of .001,
        it has 95 to 96 %.

    Raises:
      InputError: the model does not define its features or names no head, or its head is not one
        linear layer.

    Differs: mean features are those of a batch, the moving average with mu = 1 of the authors'
    script; in the first round they are of all examples after training. The authors discard the
    models of a first training that serves only for the consensus.

    Example:
      >>> state, info = one_round(feddbe(task, kappa=1.0))
      >>> state.clients.memory.shape, sorted(info.weights)
      ((4, 8), ['global', 'memory'])
    """
    problem = task.problem
    features = steps.features_of(problem)
    training_features = steps.training_features_of(problem)
    head = steps.head_of(problem, None)

    def kernel(model: Params) -> Float[Array, "d k"]:
        """The weights of the head, which is linear: a change of its input adds z @ kernel."""
        matrices = [x for x in jax.tree.leaves(tree.select(model, head)) if x.ndim == 2]
        check(
            len(matrices) == 1,
            f"FedDBE needs a head of one linear layer, and {head!r} has {len(matrices)} matrices: "
            "choose another model",
        )
        return matrices[0]

    def add_memory(logits: Array, params: dict) -> Array:
        return logits + (params["memory"] @ kernel(params["model"]))[None]

    def apply(params: dict, x: PyTree) -> Array:
        return add_memory(problem.apply(params["model"], x), params)

    def predict(params: dict, x: PyTree, mask: Array, key: PRNGKey):
        logits, term = training_predictions(problem)(params["model"], x, mask, key)
        return add_memory(logits, params), term

    def objective(params: dict, batch: Dataset, anchor: tuple, key: PRNGKey):
        consensus, exists = anchor
        current = params | {"memory": exists * params["memory"]}
        value, aux = loss_of(problem, predict)(current, batch, None, key)
        embeddings = training_features(params["model"], batch.x, batch.mask, key)
        mean = jax.vmap(masked_mean, (1, None))(embeddings, batch.mask)
        return value + exists * kappa * jnp.mean((mean - consensus) ** 2) / 2, aux

    fit = task.trainer(objective, whole_batch=True)

    def mean_features(model: Params, data: Dataset) -> Float[Array, "d"]:
        return steps.class_features(features, model, data, 1)[0][0]

    def init(key: PRNGKey, train: Dataset) -> tuple[Array, ServerState]:
        model = problem.init(key)
        kernel(model)
        shape = jax.eval_shape(features, model, tree.shapes(train.x, 1, axes=2))
        nothing = jnp.zeros(shape.shape[-1], shape.dtype)
        memory = tree.broadcast(nothing, train.mask.shape[0])
        return memory, ServerState(Server(model, nothing, jnp.zeros((), bool)))

    def client(key: PRNGKey, memory: Array, down: Down, cohort: Cohort) -> Turn[Array]:
        start = deploy(memory, down, cohort)
        _, consensus, known = down.common
        clients = cohort.ids.size
        anchor = (tree.broadcast(consensus, clients), jnp.full(clients, known.astype(float)))
        fitted = fit(stream(key, "fit"), start, anchor, cohort)
        trained = fitted.params
        # The mean features of the trained models, in the first round.
        nothing = jnp.zeros_like(memory)
        means = lax.cond(
            known,
            lambda: nothing,
            lambda: over_clients(mean_features, "auto")(trained["model"], cohort.train),
        )
        # The consensus is made once.
        floats = tree.size(trained["model"]) // clients + jnp.where(known, 0, consensus.size)
        up = Up(
            (trained["model"], means),
            (start["model"], nothing),
            floats=jnp.full(clients, floats),
        )
        return trained["memory"], up, steps.report_of(fitted)

    def server(key: PRNGKey, state: ServerState, uploads: Uploads) -> Outcome:
        _, consensus, known = state.server
        (model, means), weights = steps.mean_by_size(uploads)
        first = ~known & uploads.reported.any()
        new = Server(model, jnp.where(first, means, consensus), known | first)
        matrix = tree.broadcast(weights, uploads.ids.size)
        parts = steps.part_weights(matrix, "global", "memory", uploads.received[0])
        return Outcome(ServerState(new), weights=parts)

    def deploy(memory: Array, down: Down, cohort: Cohort) -> Params:
        return {"model": tree.broadcast(down.common.model, cohort.ids.size), "memory": memory}

    wire = Wire(init, (Exchange(client, server),), deploy, steps.download_server)
    return steps.compose(task, wire, apply, predict=predict)
