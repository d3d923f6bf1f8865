"""FedDistill: clients learn from the mean logits that the others have for each class.

each round t, with the mean logits l_jk of client j's examples of class k:
  client i:  w_i = local training of F_i + lam * cross-entropy of the predictions for class k
             with softmax(g_ik), from w_i; sends its l_ik                   (Algorithm 1)
  server:    g_ik = the mean of l_jk over the other clients j that have class k
client i deploys w_i.
"""

from functools import partial
from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxfl.algorithms import steps
from jaxfl.core import tree
from jaxfl.core.facts import NOT_NEGATIVE, Paper, method
from jaxfl.core.messages import Down, Exchange, Outcome, ServerState, Turn, Up, Uploads, Wire
from jaxfl.core.over_clients import over_clients
from jaxfl.core.streams import stream
from jaxfl.core.types import Algorithm, Cohort, Dataset, Params, PRNGKey, Scalar, Task
from jaxfl.training import completion, data_loss, masked_mean, training_predictions


class Logits(NamedTuple):
    """The mean logits of the examples of each class, of each client [M]."""

    values: Float[Array, "*m k k"]
    # the classes of which there are some
    known: Bool[Array, "*m k"]


@method(
    title="FedDistill",
    paper=Paper(
        authors="Jeong, Eunjeong and Oh, Seungeun and Kim, Hyesung and Park, Jihong and Bennis, "
        "Mehdi and Kim, Seong-Lyun",
        title="Communication-Efficient On-Device Machine Learning: Federated Distillation and "
        "Augmentation under Non-IID Private Data",
        venue="",
        year=2018,
        link="https://arxiv.org/abs/1811.11479",
    ),
    place="Algorithm 1",
    personal="the whole model",
    sends="the mean logits of each class that it has",
    defaults="ours",
    starts_from_server=False,
    mixes_before_training=True,
    advice="lower lam, the distillation: at 0 it is local training",
)
def feddistill(task: Task, *, lam: Annotated[Scalar, NOT_NEGATIVE] = 0.5) -> Algorithm:
    """Each client trains a model of its own, which comes near to the others' logits by class.

    Models are never sent, and may differ in architecture (`jaxfl.heterogeneous`).

    State: memory = the client's model; record = its last `Logits`. Weights: "logits", the mean over
    classes of the weights of the senders, and "model".

    Args:
      task: the model and its training.
      lam: strength of the distillation.

    Raises:
      InputError: the task has no labels.

    Differs: the logits are those of the trained model; the paper's are means in the course of
    training.

    Example:
      >>> state, info = one_round(feddistill(task))
      >>> state.clients.record.values.shape
      (4, 2, 2)
    """
    problem = task.problem
    loss, predict, complete = data_loss(problem), training_predictions(problem), completion(problem)

    def objective(params: Params, batch: Dataset, others: Logits, key: PRNGKey):
        value, aux = loss(params, batch, None, key)
        logits, _ = predict(params, batch.x, batch.mask, key)
        target = jax.nn.softmax(others.values[batch.y])
        entropy = -jnp.sum(target * jax.nn.log_softmax(logits), axis=-1)
        entropy = jnp.where(others.known[batch.y], entropy, 0.0)
        return value + lam * masked_mean(entropy, batch.weights), aux

    fit = task.trainer(objective)

    def rows_of(known: Bool[Array, "m k"]) -> Float[Array, "k m m"]:
        """The weights of the others that have a class, for each class; 0 where nobody has it."""
        has = known.T[:, None] & ~jnp.eye(len(known), dtype=bool)[None]
        return has / jnp.maximum(has.sum(axis=-1, keepdims=True), 1)

    def init(key: PRNGKey, data: Dataset) -> tuple[Params, ServerState]:
        steps.require_labels(problem, data, "FedDistill")
        memory, _ = steps.init_own(problem)(key, data)
        clients, classes = len(data.mask), steps.class_count(problem, data)
        nothing = jnp.zeros((clients, classes), bool)
        return memory, ServerState((), Logits(jnp.zeros((clients, classes, classes)), nothing))

    def download(state: ServerState) -> Down:
        rows, sent = rows_of(state.record.known), state.record.values
        values = jnp.einsum("kij,jkl->ikl", rows, sent, precision="highest")
        return Down(each=Logits(values, rows.any(axis=-1).T))

    def client(key: PRNGKey, memory: Params, down: Down, cohort: Cohort) -> Turn[Params]:
        fitted = fit(stream(key, "fit"), memory, down.each, cohort)
        measure = partial(steps.class_features, problem.apply, classes=down.each.known.shape[-1])
        models = complete(fitted.params, cohort)
        means, counts = over_clients(measure, "auto")(models, cohort.train)
        return (
            fitted.params,
            Up(means, tree.zeros_like(means), plain=counts > 0),
            steps.report_of(fitted),
        )

    def server(key: PRNGKey, state: ServerState, uploads: Uploads) -> Outcome:
        arrived = Logits(uploads.received, uploads.plain)
        sent = tree.choose(uploads.reported, arrived, state.record)
        rows = rows_of(sent.known)
        exists = rows.any(axis=-1)
        mean = rows.sum(axis=0) / jnp.maximum(exists.sum(axis=0), 1)[:, None]
        identity = jnp.eye(mean.shape[0])
        weights = jnp.where(exists.any(axis=0)[:, None], mean, identity)
        return Outcome(ServerState((), sent), weights={"model": identity, "logits": weights})

    wire = Wire(init, (Exchange(client, server),), steps.deploy_memory, download)
    return steps.compose(task, wire)
