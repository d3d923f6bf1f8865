"""Clients that train from mixtures with weights of each layer, which the server learns."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from jaxfl.algorithms.steps.client_steps import deploy_memory, train_and_send
from jaxfl.algorithms.steps.composition import compose
from jaxfl.core import tree
from jaxfl.core.messages import (
    Down,
    Exchange,
    Outcome,
    ServerState,
    Turn,
    Uploads,
    Wire,
)
from jaxfl.core.trainable import of_statistics
from jaxfl.core.types import Algorithm, Cohort, Dataset, Params, PRNGKey, Task, take_offer
from jaxfl.kernels.mixing import isolate, keep_own, mix
from jaxfl.kernels.similarity import gram
from jaxfl.training.objectives import data_loss

# One matrix for each layer, by name [M, M] (receiver, sender).
LayerWeights = dict[str, Float[Array, "m m"]]


def layer_of(path: str) -> str:
    """The layer of a leaf: the module that it belongs to, or its path if there is none.

    Example:
      >>> layer_of("params/Dense_0/kernel"), layer_of("w")
      ('Dense_0', 'w')
    """
    return "/".join(path.split("/")[1:-1]) or path


def by_layer(model: Params) -> dict[str, tuple[Any, ...]]:
    """The parameters of each layer, without statistics of BatchNorm.

    Args:
      model: one model or a stack, or its shapes.

    Example:
      >>> layers = by_layer({"params": {"Dense_0": {"bias": jnp.zeros(2), "kernel": jnp.ones(2)}}})
      >>> [(name, len(leaves)) for name, leaves in layers.items()]
      [('Dense_0', 2)]
    """
    layers: dict[str, list[Any]] = {}
    for keys, leaf in jax.tree_util.tree_leaves_with_path(model):
        name = tree.path(keys)
        if not of_statistics(name):
            layers.setdefault(layer_of(name), []).append(leaf)
    return {name: tuple(leaves) for name, leaves in layers.items()}


def mix_layers(rows: dict[str, PyTree], stacked: Params) -> Params:
    """Mixtures of models with weights of each layer, see `mixing.mix`.

    Statistics of a layer that has no parameters are mixed as the first layer is.

    Args:
      rows: a matrix or `Edges` for each layer, by the names of `by_layer`.
      stacked: models [M, ...].

    Example:
      >>> models = {"a": jnp.array([1.0, 3.0]), "b": jnp.array([1.0, 3.0])}
      >>> mixtures = mix_layers({"a": jnp.eye(2), "b": jnp.full((2, 2), 0.5)}, models)
      >>> mixtures["a"].tolist(), mixtures["b"].tolist()
      ([1.0, 3.0], [2.0, 2.0])
    """
    first = next(iter(rows.values()))

    def row(keys: tuple, leaf: Array) -> PyTree:
        return rows.get(layer_of(tree.path(keys)), first)

    return mix(jax.tree_util.tree_map_with_path(row, stacked), stacked)


class LayerRecord(NamedTuple):
    """What the server keeps for each client."""

    # [C, ...] what it last received from the client; at first the initial model
    received: Params
    # [C, ...] what the server learns, of which the weights are made
    learned: PyTree
    # [C, ...] of what else the weights are made
    known: PyTree
    # [C] whether it has received anything
    seen: Bool[Array, "*c"]


class LayerStep(NamedTuple):
    """What the server makes of the derivatives."""

    # [M, ...] `LayerRecord.learned` after the step
    learned: PyTree
    # [M, ...] `LayerRecord.known` after the round
    known: PyTree
    # of `Info`
    metrics: dict[str, Array]


def learned_mixtures(
    task: Task,
    *,
    start: Callable[[PRNGKey, Params, int], tuple[PyTree, PyTree]],
    weigh: Callable[[PyTree, PyTree], LayerWeights],
    step: Callable[[LayerRecord, PyTree, LayerWeights, Uploads], LayerStep],
    personal: tree.Layers | None = None,
    every_edge: bool = False,
) -> Algorithm:
    """A method whose clients train from mixtures, and whose server sees how weights should change.

    Local training moves a client along the negative gradients of its loss, so start - received
    stands for the gradient at the mixture. Its products with the models of the mixture are the
    derivatives of the loss by the weights, and the chain rule gives those by what the server
    learns. A client from which the server has received nothing is in nobody's mixture, and starts
    from the initial model. Where clients may refuse their mixtures (`Task.accept`), each says
    whether it took it, which counts as one number.

    State: memory = the model that each client last trained, which it deploys; record =
    `LayerRecord`; server = nothing. Weights: a matrix for each layer.

    Args:
      task: the problem and its clients.
      start: (key, initial model, C) -> `learned` and `known` of the record at first.
      weigh: (learned, known) -> row-stochastic weights of each layer that is sent, in the order of
        `by_layer`.
      step: (record, the gradient of the sum of the clients' losses by `learned`, the weights of the
        round, uploads) -> `LayerStep`.
      personal: layers that clients keep and do not send; their weights are the identity.
      every_edge: whether derivatives are taken by the weights of all clients that have reported, by
        their initial models too, or only by those that are in a mixture.

    Example:
      >>> start = lambda key, model, clients: (jnp.full((clients, 1), 0.5), ())
      >>> half = lambda s, _: {n: (s + jnp.eye(4)) / (4 * s + 1) for n in ("Dense_0", "Dense_1")}
      >>> step = lambda record, grads, weights, uploads: LayerStep(record.learned - grads, (), {})
      >>> algorithm = learned_mixtures(task, start=start, weigh=half, step=step)
      >>> state, info = one_round(algorithm)
      >>> state.clients.record.learned.shape, sorted(info.weights)
      ((4, 1), ['Dense_0', 'Dense_1'])
    """
    fit = task.trainer(data_loss(task.problem))
    may_refuse = task.accept is not take_offer
    shapes = jax.eval_shape(task.problem.init, jax.random.key(0))
    kept = () if personal is None else tuple(by_layer(tree.split(shapes, personal)[0]))

    def shared(model: Params) -> Params:
        return model if personal is None else tree.split(model, personal)[1]

    def possible(learned: PyTree, known: PyTree, seen: Array) -> LayerWeights:
        layers = weigh(learned, known)
        return {name: isolate(layers[name], seen) for name in layers}

    def edge_weights(learned: PyTree, record: LayerRecord) -> LayerWeights:
        layers = possible(learned, record.known, record.seen)
        return {name: task.keep_edges(layers[name]).weights for name in layers}

    def init(key: PRNGKey, train: Dataset) -> tuple[Params, ServerState]:
        model = task.problem.init(key)
        clients = train.mask.shape[0]
        stacked = tree.broadcast(model, clients)
        record = LayerRecord(shared(stacked), *start(key, model, clients), jnp.zeros(clients, bool))
        return stacked, ServerState((), record)

    def download(state: ServerState) -> Down:
        record: LayerRecord = state.record
        weights = edge_weights(record.learned, record)
        rows = {name: task.keep_edges(matrix) for name, matrix in weights.items()}
        return Down(each=mix_layers(rows, record.received))

    def client(key: PRNGKey, memory: Params, down: Down, cohort: Cohort) -> Turn[Params]:
        # Each client trains from its mixture of every layer, with the layers that are its own.
        own = None if personal is None else tree.split(memory, personal)[0]
        mixture = down.each if own is None else tree.join(own, down.each)
        first, accepted = task.accept(memory, mixture, cohort)
        trained, up, report = train_and_send(fit, key, first, None, cohort, sends=shared)
        return trained, up._replace(plain=accepted if may_refuse else ()), report

    def server(key: PRNGKey, state: ServerState, uploads: Uploads) -> Outcome:
        record: LayerRecord = state.record
        accepted = uploads.plain if may_refuse else jnp.ones_like(record.seen)
        weights, pull_back = jax.vjp(lambda learned: edge_weights(learned, record), record.learned)
        seen = record.seen
        if every_edge:
            seen = seen | uploads.reported
            _, pull_back = jax.vjp(
                lambda learned: possible(learned, record.known, seen), record.learned
            )
        # The derivatives of the losses by the weights, and by what the weights are made of.
        drifts = by_layer(jax.tree.map(jnp.subtract, uploads.before, uploads.received))
        models = by_layer(record.received)
        mask = (accepted & seen)[:, None]
        derivatives = {
            name: jnp.where(mask, gram(drifts[name], models[name]), 0.0) for name in models
        }
        finite = jax.tree.map(lambda x: jnp.where(jnp.isfinite(x), x, 0.0), derivatives)
        (grads,) = pull_back(tree.cast_like(finite, weights))
        weights = jax.tree.map(partial(keep_own, accepted=accepted), weights)
        learned, known, metrics = step(record, grads, weights, uploads)
        record = LayerRecord(uploads.received, learned, known, jnp.ones_like(record.seen))
        weights |= {name: jnp.eye(record.seen.size) for name in kept}
        return Outcome(ServerState((), record), weights=weights, metrics=metrics)

    return compose(task, Wire(init, (Exchange(client, server),), deploy_memory, download))
