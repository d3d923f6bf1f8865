"""layer_tree: clients have shallow layers in common with many, and deep ones with few.

each round t, with layers 1 to L from shallow to deep:
  client i:  w_i = local training of F_i from x_i, and sends it
  server:    a tree of the clients by average linkage of 1 - cos(w_i - w^0, w_j - w^0)
             of each layer l the clusters of the tree where it has 1 + (K - 1) (l - 1) / (L - 1) of
             them, rounded; x_i in layer l is the mean of w_j over the cluster of i, by examples
client i deploys x_i.
"""

from typing import Annotated

import jax.numpy as jnp
from jaxtyping import Array

from jaxfl.algorithms import steps
from jaxfl.core import tree
from jaxfl.core.facts import COUNT, method
from jaxfl.core.messages import Down, Exchange, Outcome, ServerState, Turn, Uploads, Wire
from jaxfl.core.text import by_number
from jaxfl.core.trainable import trainable
from jaxfl.core.types import Algorithm, Cohort, Dataset, Params, PRNGKey, Task
from jaxfl.kernels import cosine, isolate, merges
from jaxfl.training.objectives import data_loss

# What models of texts and images call the layers that make vectors of their inputs.
EMBEDDINGS = ("token", "position", "segment", "class", "patches")


@method(
    title="layer tree",
    paper="none; jaxfl's own, after the idea of FedTreeLoRA (ICML 2026)",
    personal="the mixture of models",
    sends="its model",
    defaults="ours",
    offers_mixture=True,
    takes_top_edges=True,
    starts_from_server=False,
    advice="groups: how many groups of clients the deepest layer tells apart",
)
def layer_tree(task: Task, *, groups: Annotated[int, COUNT] = 4) -> Algorithm:
    """One tree of clients, in which each layer is shared at a depth of its own.

    The shallowest layer is the mean of all clients, the deepest one that of each of `groups`
    clusters; the clusters of a layer lie within those of every shallower one. With adapters
    (`jaxfl.lora`) the layers are the adapters and the head. Embeddings come first and the head
    last; others are in the order of their names and of the numbers in them, block2 before block10.

    State: memory = the mixture, which the client deploys and from which it trains; server = the
    initial model. Weights: one matrix for each layer.

    Args:
      task: the model and its training.
      groups: K, the clusters in the deepest layer; with fewer clients each is one.

    Differs: of FedTreeLoRA (https://arxiv.org/abs/2603.13282) a summary was at hand, and no
    equation.

    Example:
      >>> _, info = one_round(layer_tree(task, groups=4))
      >>> sorted(info.weights)
      ['Dense_0', 'Dense_1']
    """
    fit = task.trainer(data_loss(task.problem))
    start = steps.init_own(task.problem)
    shapes = steps.model_shapes(task.problem)
    head = task.problem.head
    heads = () if head is None else steps.by_layer(tree.split(shapes, head)[0])

    def depth_of(layer: str) -> tuple:
        is_first = layer.rpartition("/")[2] in EMBEDDINGS
        return layer in heads, not is_first, by_number(layer)

    layers = sorted(steps.by_layer(shapes), key=depth_of)
    deepest = max(len(layers) - 1, 1)

    def init(key: PRNGKey, train: Dataset) -> tuple[Params, ServerState]:
        memory, _ = start(key, train)
        return memory, ServerState(task.problem.init(key))

    def client(key: PRNGKey, memory: Params, down: Down, cohort: Cohort) -> Turn[Params]:
        return steps.train_and_send(fit, key, memory, None, cohort)

    def server(key: PRNGKey, state: ServerState, uploads: Uploads) -> Outcome:
        reported = uploads.reported
        changes = tree.subtract(uploads.received, state.server)
        divisions = merges(1 - cosine(trainable(changes)), uploads.ids, reported)
        shares = uploads.sizes * reported

        def rows(clusters: int) -> Array:
            # With n clients, n - K merges leave K clusters.
            cluster = divisions[jnp.clip(reported.sum() - clusters, 0, reported.size - 1)]
            same = (cluster[:, None] == cluster[None]) * shares[None]
            return isolate(same / jnp.maximum(same.sum(axis=1, keepdims=True), 1), reported)

        edges = {
            layer: task.keep_edges(rows(1 + round((groups - 1) * depth / deepest)))
            for depth, layer in enumerate(layers)
        }
        offer = Down(each=steps.mix_layers(edges, uploads.received))
        return Outcome(state, offer, {layer: one.weights for layer, one in edges.items()})

    exchanges = (Exchange(client, server), Exchange(steps.take_offered(task)))
    return steps.compose(task, Wire(init, exchanges, steps.deploy_memory))
