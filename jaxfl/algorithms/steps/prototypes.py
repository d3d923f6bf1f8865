"""Prototypes, the mean features of each class: FedProto, FedTGP, FedGH and FedPAC."""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Shaped

from jaxfl.algorithms.steps.client_steps import init_own
from jaxfl.algorithms.steps.composition import compose
from jaxfl.algorithms.steps.heads import (
    class_features,
    features_of,
    linear_head_of,
    training_features_of,
)
from jaxfl.algorithms.steps.labels import class_count, require_labels
from jaxfl.core import tree
from jaxfl.core.messages import (
    Down,
    Exchange,
    Outcome,
    ServerState,
    Turn,
    Up,
    Uploads,
    Wire,
    download_server,
    report_of,
)
from jaxfl.core.options import checked
from jaxfl.core.over_clients import over_clients
from jaxfl.core.streams import stream
from jaxfl.core.types import Algorithm, Cohort, Dataset, Params, PRNGKey, Problem, Scalar, Task
from jaxfl.kernels.mixing import mix
from jaxfl.training.objectives import data_loss, masked_mean

Features = Callable[[Params, Array], Array]
# By the client's own head, or the class of the nearest of the server's prototypes.
Predict = Literal["head", "prototypes"]


class Prototypes(NamedTuple):
    """Of the server, or of each client."""

    # the mean features of each class [K, d]
    values: Float[Array, "*m k d"]
    # the classes that have them [K]
    known: Shaped[Array, "*m k"]


def no_prototypes(problem: Problem, features: Features, train: Dataset) -> Prototypes:
    """The prototypes of the server before a client has sent any.

    Example:
      >>> no_prototypes(task.problem, task.problem.features, cohort.train).values.shape
      (2, 8)
    """
    classes = class_count(problem, train)
    model = jax.eval_shape(problem.init, jax.random.key(0))
    shape = jax.eval_shape(features, model, tree.shapes(train.x, 1, axes=2))
    values = jnp.zeros((classes, shape.shape[-1]), shape.dtype)
    return Prototypes(values, jnp.zeros(classes, bool))


def distance_to_prototypes(
    embeddings: Float[Array, "b d"], batch: Dataset, prototypes: Prototypes
) -> Scalar:
    """The mean squared difference of features from the prototypes of their classes, if known.

    Example:
      >>> prototypes = Prototypes(jnp.array([[1.0], [9.0]]), jnp.array([True, False]))
      >>> batch = Dataset((), jnp.array([0, 1]), jnp.ones(2, bool))
      >>> distance_to_prototypes(jnp.array([[3.0], [3.0]]), batch, prototypes).item()
      2.0
    """
    squared = jnp.mean((embeddings - prototypes.values[batch.y]) ** 2, axis=1)
    return masked_mean(jnp.where(prototypes.known[batch.y], squared, 0.0), batch.weights)


def client_prototypes(
    features: Features, model: Params, data: Dataset, server: Prototypes
) -> Prototypes:
    """The client's mean features of each class, and the server's where it has no example.

    Example:
      >>> data = Dataset(jnp.array([[1.0], [3.0]]), jnp.array([1, 1]), jnp.ones(2, bool))
      >>> server = Prototypes(jnp.array([[7.0], [7.0]]), jnp.zeros(2, bool))
      >>> own = client_prototypes(lambda model, x: model * x, 10.0, data, server)
      >>> own.values.tolist(), own.known.tolist()
      ([[7.0], [20.0]], [False, True])
    """
    means, counts = class_features(features, model, data, server.known.size)
    has = counts > 0
    return Prototypes(jnp.where(has[:, None], means, server.values), has)


def mean_prototypes(
    sent: Prototypes, reported: Bool[Array, "m"], server: Prototypes
) -> tuple[Prototypes, Float[Array, "k m"]]:
    """The means over the clients that have a class, which count equally; the server's if none has.

    Args:
      sent: of each client [M].
      reported: whose have arrived [M].
      server: those of the last round.

    Returns:
      The prototypes, and the weights of the senders [K, M], 0 for a class without one.

    Example:
      >>> values = jnp.array([[[1.0], [0.0]], [[3.0], [0.0]]])
      >>> sent = Prototypes(values, jnp.array([[True, False], [True, False]]))
      >>> server = Prototypes(jnp.full((2, 1), 7.0), jnp.zeros(2, bool))
      >>> mean, rows = mean_prototypes(sent, jnp.ones(2, bool), server)
      >>> mean.values.tolist(), rows.tolist()
      ([[2.0], [7.0]], [[0.5, 0.5], [0.0, 0.0]])
    """
    senders = (sent.known & reported[:, None]).T.astype(float)
    rows = senders / jnp.maximum(senders.sum(axis=1, keepdims=True), 1)
    exists = senders.any(axis=1)
    means = jax.vmap(mix)(rows, jnp.swapaxes(sent.values, 0, 1))
    values = jnp.where(exists[:, None], means, server.values)
    return Prototypes(values, server.known | exists), rows


def examples_of(sent: Prototypes, reported: Bool[Array, "m"]) -> Dataset:
    """What clients have sent as examples [M K, d] with the labels of their classes.

    Args:
      sent: of each client [M].
      reported: whose have arrived [M].

    Example:
      >>> sent = Prototypes(jnp.zeros((2, 3, 8)), jnp.ones((2, 3), bool))
      >>> data = examples_of(sent, jnp.array([True, False]))
      >>> data.x.shape, data.y.tolist(), data.mask.sum().item()
      ((6, 8), [0, 1, 2, 0, 1, 2], 3)
    """
    clients, classes = sent.known.shape
    has = sent.known & reported[:, None]
    values = sent.values.reshape(clients * classes, -1)
    return Dataset(values, jnp.tile(jnp.arange(classes), clients), has.ravel())


def nearest_head(problem: Problem, models: Params, server: Prototypes) -> Params:
    """The models with heads that predict the class of the nearest prototype.

    The logits of such a head are 2 f . c_k - |c_k|^2 for features f. For each example these differ
    from -|f - c_k|^2 by one number, so the predictions are the same, as probabilities too. Of a
    class without a prototype the logit is very small; without any the models keep their heads.

    Args:
      problem: of the models.
      models: of the clients [M, ...].
      server: the prototypes.

    Raises:
      InputError: the head of the models is not one dense layer.

    Example:
      >>> models = tree.broadcast(task.problem.init(jax.random.key(0)), 4)
      >>> server = Prototypes(jnp.eye(2, 8), jnp.ones(2, bool))
      >>> nearest_head(task.problem, models, server)["params"]["Dense_1"]["bias"][0].tolist()
      [-1.0, -1.0]
    """
    head, body = tree.split(models, linear_head_of(problem))
    values, known = server.values, server.known > 0
    bias = jnp.where(known, -jnp.sum(values**2, axis=1), jnp.finfo(values.dtype).min / 2)
    kernel, bias = tree.broadcast((2 * values.T, bias), len(jax.tree.leaves(head)[0]))
    nearest = jax.tree.map(lambda x: (kernel if x.ndim == 3 else bias).astype(x.dtype), head)
    return tree.join(tree.where(known.any(), nearest, head), body)


@checked
def shared_prototypes(
    task: Task,
    title: str,
    lam: Scalar,
    predict: Predict,
    *,
    server: Callable[[ServerState, Prototypes, Uploads], Outcome],
    start: Callable[[PRNGKey, Prototypes], Any] = lambda key, nothing: nothing,
    prototypes: Callable[[Any], Prototypes] = lambda server: server,
) -> Algorithm:
    """A method of clients with models of their own, whose features are drawn to shared prototypes.

    A client minimises its loss plus lam times the mean squared difference of the features of an
    example from the prototype of its class, if there is one. Then it sends its own prototypes, and
    which classes it has.

    Args:
      task: the model and its training.
      title: of the method, for messages.
      lam: strength of the attraction.
      predict: by the client's own head, or by the nearest of the server's prototypes.
      server: (state, what clients have sent [M], uploads) -> what the server makes of it.
      start: (key, no prototypes) -> what the server has at first.
      prototypes: what the server has -> the prototypes that it sends.

    Raises:
      InputError: the model does not define its features, its head is not one dense layer and
        clients predict by prototypes, or the task has no labels.

    Example:
      >>> keep = lambda state, sent, uploads: Outcome(state)
      >>> state, info = one_round(shared_prototypes(task, "mine", 1.0, "head", server=keep))
      >>> state.server.known.shape
      (2,)
    """
    problem = task.problem
    features, training_features = features_of(problem), training_features_of(problem)
    loss = data_loss(problem)

    def objective(params: Params, batch: Dataset, common: Prototypes, key: PRNGKey):
        value, aux = loss(params, batch, None, key)
        embeddings = training_features(params, batch.x, batch.mask, key)
        return value + lam * distance_to_prototypes(embeddings, batch, common), aux

    fit = task.trainer(objective)
    own_prototypes = over_clients(partial(client_prototypes, features), "auto")

    def init(key: PRNGKey, train: Dataset) -> tuple[Params, ServerState]:
        require_labels(problem, train, title)
        memory, _ = init_own(problem)(key, train)
        nothing = no_prototypes(problem, features, train)
        return memory, ServerState(start(stream(key, "server"), nothing))

    def download(state: ServerState) -> Down:
        return download_server(state._replace(server=prototypes(state.server)))

    def client(key: PRNGKey, memory: Params, down: Down, cohort: Cohort) -> Turn[Params]:
        before = tree.broadcast(down.common, cohort.ids.size)
        fitted = fit(stream(key, "fit"), memory, before, cohort)
        own = own_prototypes(fitted.params, cohort.train, before)
        report = report_of(fitted, trained=deploy(fitted.params, down, cohort))
        return fitted.params, Up(own.values, before.values, plain=own.known), report

    def step(key: PRNGKey, state: ServerState, uploads: Uploads) -> Outcome:
        return server(state, Prototypes(uploads.received, uploads.plain), uploads)

    def deploy(memory: Params, down: Down, cohort: Cohort) -> Params:
        return memory if predict == "head" else nearest_head(problem, memory, down.common)

    if predict == "prototypes":
        linear_head_of(problem)
    return compose(task, Wire(init, (Exchange(client, step),), deploy, download))


def descend(loss: Callable[[Params], Scalar], params: Params, rate: Scalar, steps: int) -> Params:
    """The parameters after steps of gradient descent, which a server takes.

    Example:
      >>> descend(lambda x: x**2, jnp.array(1.0), 0.25, steps=2).item()
      0.25
    """

    def step(_: int | Array, params: Params) -> Params:
        return jax.tree.map(lambda x, grad: x - rate * grad, params, jax.grad(loss)(params))

    return lax.fori_loop(0, steps, step, params)
