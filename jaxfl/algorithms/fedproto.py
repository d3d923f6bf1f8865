"""FedProto: clients exchange the mean features of each class, not models."""

from typing import Annotated, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxfl.algorithms.steps.heads import class_features, features_of
from jaxfl.algorithms.steps.labels import class_count, require_labels
from jaxfl.algorithms.steps.uploads import upload
from jaxfl.core import tree
from jaxfl.core.facts import method
from jaxfl.core.options import NOT_NEGATIVE
from jaxfl.core.over_clients import over_clients
from jaxfl.core.papers import Paper
from jaxfl.core.streams import stream
from jaxfl.core.types import Algorithm, Cohort, Dataset, Info, Params, PRNGKey, Scalar, State, Task
from jaxfl.kernels.mixing import mix
from jaxfl.training.objectives import data_loss, masked_mean


class Prototypes(NamedTuple):
    """The state of the server."""

    # the mean features of each class [K, d]
    values: Float[Array, "k d"]
    # the classes that a client has sent [K]
    known: Bool[Array, "k"]


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
    turn_first="lower lam, the attraction to the prototypes: at 0 it is local training",
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

    State: clients = the client's model; server = `Prototypes`. Weights: "prototypes", with the mean
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
    features = features_of(problem)
    loss = data_loss(problem)

    def objective(params: Params, batch: Dataset, server: Prototypes, key: PRNGKey):
        value, aux = loss(params, batch, None, key)
        # The features of an example and the prototype of its class, if there is one.
        squared = jnp.mean((features(params, batch.x) - server.values[batch.y]) ** 2, axis=1)
        distance = masked_mean(jnp.where(server.known[batch.y], squared, 0.0), batch.mask)
        return value + lam * distance, aux

    fit = task.trainer(objective)

    def client_prototypes(model: Params, data: Dataset, server: Prototypes) -> Prototypes:
        """The client's mean features of each class, or the server's where it has no example."""
        means, counts = class_features(features, model, data, server.known.size)
        has = counts > 0
        return Prototypes(jnp.where(has[:, None], means, server.values), has)

    def nearest(params: dict, x: Array) -> Float[Array, "b k"]:
        embeddings = features(params["model"], x)
        values, mask = params["prototypes"]
        distances = jnp.sum((embeddings[:, None] - values[None]) ** 2, axis=2)
        by_distance = jnp.where(mask[None], -distances, jnp.finfo(jnp.float32).min / 2)
        return jnp.where(mask.any(), by_distance, problem.apply(params["model"], x))

    def deployed(model: Params, server: Prototypes, clients: int) -> Params:
        if predict == "head":
            return model
        return {"model": model, "prototypes": tree.broadcast(server, clients)}

    def init(key: PRNGKey, train: Dataset) -> State:
        require_labels(train, "FedProto")
        model = problem.init(key)
        classes = class_count(problem, train)
        width = jax.eval_shape(features, model, train.x[0, :1]).shape[-1]
        server = Prototypes(jnp.zeros((classes, width)), jnp.zeros(classes, bool))
        return State(tree.broadcast(model, train.mask.shape[0]), server)

    def round(key: PRNGKey, state: State, cohort: Cohort) -> tuple[State, Info]:
        clients = cohort.ids.size
        server = tree.broadcast(state.server, clients)
        fitted = fit(stream(key, "fit"), state.clients, server, cohort)
        prototypes = over_clients(client_prototypes, "auto")(fitted.params, cohort.train, server)
        received, info = upload(task, key, fitted, server.values, prototypes.values, cohort)
        # The weights of the senders of each class [K, M]; rows of classes without a sender are 0.
        senders = (prototypes.known & info.reported[:, None]).T.astype(jnp.float32)
        rows = senders / jnp.maximum(senders.sum(axis=1, keepdims=True), 1)
        exists = senders.any(axis=1)
        means = jax.vmap(mix)(rows, jnp.swapaxes(received, 0, 1))
        after = Prototypes(
            jnp.where(exists[:, None], means, state.server.values), state.server.known | exists
        )
        mean = rows.sum(axis=0) / jnp.maximum(exists.sum(), 1)
        identity = jnp.eye(clients)
        floats = info.up + exists.size
        info = info._replace(
            weights={
                "model": identity,
                "prototypes": jnp.where(exists.any(), tree.broadcast(mean, clients), identity),
            },
            up=floats,
            down=floats,
            trained=deployed(fitted.params, state.server, clients),
        )
        return State(fitted.params, after), info

    def models(state: State, cohort: Cohort) -> Params:
        model = tree.take(state.clients, cohort.ids)
        return deployed(model, state.server, cohort.ids.size)

    return Algorithm(init, round, models, problem.apply if predict == "head" else nearest)
