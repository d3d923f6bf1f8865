"""FedProto: clients exchange the mean features of each class, not models.

each round t, with the features f and the prototypes c_k of the classes:    (Algorithm 1)
  client i:  w_i = local training of F_i + lam |f(x) - c_y|^2 from w_i
             sends its mean features of each class
  server:    c_k = the mean of those of the clients that have class k
client i deploys w_i.
"""

from functools import partial
from typing import Annotated, Literal

import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from jaxfl.algorithms import steps
from jaxfl.core import tree
from jaxfl.core.facts import NOT_NEGATIVE, Paper, method
from jaxfl.core.messages import Down, Exchange, Outcome, ServerState, Turn, Up, Uploads, Wire
from jaxfl.core.over_clients import over_clients
from jaxfl.core.streams import stream
from jaxfl.core.types import Algorithm, Cohort, Dataset, Params, PRNGKey, Scalar, Task
from jaxfl.training import data_loss, training_predictions


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
    predict: Literal["head", "prototypes"] = "head",
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
      InputError: the model does not define its features, or the task has no labels.

    Differs: clients with a class count equally in its prototype, as in the authors' code; the
    paper's equation (6) weighs them by their numbers of examples of the class. Prototypes are those
    of the trained model, which the code takes in the course of training.

    Example:
      >>> state, info = one_round(fedproto(task, predict="prototypes"))
      >>> state.server.values.shape, sorted(info.weights)
      ((2, 8), ['model', 'prototypes'])
    """
    problem = task.problem
    features = steps.features_of(problem)
    training_features = steps.training_features_of(problem)
    loss = data_loss(problem)

    def objective(params: Params, batch: Dataset, server: steps.Prototypes, key: PRNGKey):
        value, aux = loss(params, batch, None, key)
        embeddings = training_features(params, batch.x, batch.mask, key)
        return value + lam * steps.distance_to_prototypes(embeddings, batch, server), aux

    fit = task.trainer(objective)

    own_prototypes = over_clients(partial(steps.client_prototypes, features), "auto")

    def nearest(
        embeddings: Float[Array, "b d"], logits: Float[Array, "b k"], prototypes: steps.Prototypes
    ) -> Float[Array, "b k"]:
        values, known = prototypes
        mask = known > 0
        distances = jnp.sum((embeddings[:, None] - values[None]) ** 2, axis=2)
        by_distance = jnp.where(mask[None], -distances, jnp.finfo(jnp.float32).min / 2)
        return jnp.where(mask.any(), by_distance, logits)

    def apply(params: dict, x: PyTree) -> Float[Array, "b k"]:
        model, prototypes = params["model"], params["prototypes"]
        return nearest(features(model, x), problem.apply(model, x), prototypes)

    def predict_in_training(params: dict, x: PyTree, mask: Array, key: PRNGKey) -> tuple:
        model, prototypes = params["model"], params["prototypes"]
        logits, term = training_predictions(problem)(model, x, mask, key)
        return nearest(training_features(model, x, mask, key), logits, prototypes), term

    def init(key: PRNGKey, train: Dataset) -> tuple[Params, ServerState]:
        steps.require_labels(problem, train, "FedProto")
        memory, _ = steps.init_own(problem)(key, train)
        return memory, ServerState(steps.no_prototypes(problem, features, train))

    def client(key: PRNGKey, memory: Params, down: Down, cohort: Cohort) -> Turn[Params]:
        before = tree.broadcast(down.common, cohort.ids.size)
        fitted = fit(stream(key, "fit"), memory, before, cohort)
        own = own_prototypes(fitted.params, cohort.train, before)
        report = steps.report_of(fitted, trained=deploy(fitted.params, down, cohort))
        return fitted.params, Up(own.values, before.values, plain=own.known), report

    def server(key: PRNGKey, state: ServerState, uploads: Uploads) -> Outcome:
        sent = steps.Prototypes(uploads.received, uploads.plain)
        after, rows = steps.mean_prototypes(sent, uploads.reported, state.server)
        exists = rows.any(axis=1)
        mean = rows.sum(axis=0) / jnp.maximum(exists.sum(), 1)
        identity = jnp.eye(mean.size)
        weights = jnp.where(exists.any(), tree.broadcast(mean, mean.size), identity)
        return Outcome(ServerState(after), weights={"model": identity, "prototypes": weights})

    def deploy(memory: Params, down: Down, cohort: Cohort) -> Params:
        if predict == "head":
            return memory
        # As floats, so that the model has a gradient.
        server = down.common._replace(known=down.common.known.astype(down.common.values.dtype))
        return {"model": memory, "prototypes": tree.broadcast(server, cohort.ids.size)}

    wire = Wire(init, (Exchange(client, server),), deploy, steps.download_server)
    if predict == "head":
        return steps.compose(task, wire)
    return steps.compose(task, wire, apply, predict=predict_in_training)
