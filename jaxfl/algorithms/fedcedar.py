"""FedCedar: clusters of models are the nodes of a graph.

each round t, with k the node of client i:
  client i:  w_i = local training of F_i from x_k, and sends it; from the mean of the x if it
             was away in the last round
  server:    c_1, ..., c_K = the centres of k-means of the w_i                              (1)
             R_kl = cos(c_k, c_l) / sum_m cos(c_k, c_m); x = R^P c                          (2)
client i deploys that from which it would train.
"""

from typing import Annotated, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, PyTree

from jaxfl.algorithms import steps
from jaxfl.core import tree
from jaxfl.core.errors import check
from jaxfl.core.facts import COUNT, COUNT_OR_ZERO, POSITIVE, Paper, method
from jaxfl.core.messages import Down, Exchange, Outcome, ServerState, Turn, Uploads, Wire
from jaxfl.core.streams import stream
from jaxfl.core.types import Algorithm, Cohort, Dataset, Params, PRNGKey, Scalar, Task
from jaxfl.kernels import contraction, graph_rows, kmeans, mix, predecessors, similarities
from jaxfl.kernels.propagate import propagate
from jaxfl.kernels.similarity import Measure, distances_between
from jaxfl.training import data_loss, deployed_losses


class Record(NamedTuple):
    """What the server keeps for each client."""

    # [C] its cluster in the round in which it last took part
    cluster: Int[Array, "*c"]
    # [C] the number of that round; -1 if the client has never taken part
    seen: Int[Array, "*c"]


class Server(NamedTuple):
    """The state of the server."""

    # [K, ...] the models of the nodes after propagation; an empty cluster has the others' mean
    models: Params
    # number of rounds so far
    round: Int[Array, ""]
    # the initial model if differences from it are compared, otherwise ()
    initial: Params
    # `Nodes` if nodes have an identity, otherwise ()
    nodes: PyTree


class Nodes(NamedTuple):
    """What the server knows of nodes that stay the same over rounds."""

    # [K, ...] the centre of each node when it last had members
    centres: Params
    # [K] whether it has ever had any
    occupied: Bool[Array, "k"]


@method(
    title="FedCedar",
    paper=Paper(
        authors="Wang, Jiaqi and Chen, Yuzhong and Wu, Yuhang and Das, Mahashweta and Yang, Hao"
        " and Ma, Fenglong",
        title="Rethinking Personalized Federated Learning with Clustering-based Dynamic Graph"
        " Propagation",
        venue="PAKDD",
        year=2024,
        link="https://arxiv.org/abs/2401.15874",
    ),
    personal="the cluster",
    sends="its model; with identity=chosen also which model it took",
    defaults="the paper",
    absent="the mean of the nodes' models (section 3.5)",
    separating={"feature": "update"},
    advice="feature=update, and graph=softmax with a low temperature: the defaults mix nearly "
    "evenly",
)
def fedcedar(
    task: Task,
    *,
    clusters: Annotated[int, COUNT] = 5,
    hops: Annotated[int, COUNT_OR_ZERO] = 2,
    feature: Literal["weights", "update"] = "weights",
    graph: Literal["sum", "softmax"] = "sum",
    temperature: Annotated[Scalar | None, POSITIVE] = None,
    measure: Measure = "cosine",
    personal: bool = True,
    identity: Literal["round", "kept", "chosen"] = "round",
) -> Algorithm:
    """Clusters of models are the nodes of a graph, and models propagate between the nodes.

    The equations:

    - (1): k-means divides the models of a round into K clusters with the means c_1 to c_K.

    - (2): with the edges R_kl = cos(c_k, c_l) / sum_m cos(c_k, c_m), the models of the nodes are
      the rows of R^P c: P steps of propagation.

    A client that took part in the last round gets the model of its node; any other client gets the
    mean of the nodes' models (but see `identity`).

    State: record = `Record`; server = `Server`. Metrics: `contraction`, see `kernels.propagate`;
    if it is 0, all nodes have the same model.

    Args:
      task: the model and its training.
      clusters: K. If K is the number of clients in a cohort, each client is a node (ablation AS-1
        of section 4.3).
      hops: P in (2), the number of propagation steps over the graph. 0: no graph (AS-2).
      feature: what the graph compares: the centres of the clusters ("weights"), or their
        differences from the initial model ("update"), which are less similar. K-means finds the
        same clusters with both.
      graph: edges are the cosines divided by their sum ("sum"), or the softmax of the cosines.
      temperature: of the softmax, see `kernels.propagate`.
      measure: in place of the cosine, not the paper's: see `kernels.similarity.similarities`. A
        node whose similarity with itself is not positive has no edges.
      personal: False: all clients get the mean of the nodes' models (AS-3).
      identity: the nodes of a round are those of that round alone ("round", the paper), or nodes
        keep an identity over the rounds ("kept" and "chosen", not the paper's): each cluster
        continues the node from which most of its members come, or one that nobody was in, or else
        the one with the nearest centre; several clusters may continue one node. A node without
        members in a round keeps its model. A client that was away gets the model of the node that
        it was last in, which is better where clients form groups, and worse where they do not. So
        with "chosen" each client receives both the model of its node and the mean of all nodes, and
        takes the one with the lower loss on its training data, when it trains and when it deploys.

    Raises:
      InputError: a temperature is given and the graph is not a softmax, nodes have an identity and
        all clients get their mean, or the measure is minus a distance.

    Differs: negative cosines count as 0, and empty clusters do not count. The authors' code uses a
    client's position in the last cohort as its id; here, as in the paper, a client that returns
    gets the model of its own cluster.

    Example:
      >>> _, info = one_round(fedcedar(task, clusters=2))
      >>> sorted(info.metrics)
      ['contraction']
    """
    check(
        temperature is None or graph == "softmax",
        "temperature is of the softmax: choose graph=softmax, or leave it",
    )
    check(
        personal or identity == "round",
        f"with personal=False no client gets a node, and identity={identity} is of nodes: leave it",
    )
    check(
        measure not in ("l2", "l1"),
        f"measure={measure} is 0 for a node with itself, which has no edges then: choose cosine, "
        "dice or inner, or exp(-distance) as a measure of your own",
    )
    loss = data_loss(task.problem)
    fit = task.trainer(loss)
    losses = deployed_losses(task)

    def init(key: PRNGKey, train: Dataset) -> tuple[tuple, ServerState]:
        model = task.problem.init(key)
        first = jnp.zeros(train.mask.shape[0], jnp.int32)
        initial = model if feature == "update" else ()
        models = tree.broadcast(model, clusters)
        nodes = () if identity == "round" else Nodes(models, jnp.zeros(clusters, bool))
        server = Server(models, jnp.zeros((), jnp.int32), initial, nodes)
        return (), ServerState(server, Record(first, first - 1))

    def download(state: ServerState) -> Down:
        """The model of each client's node or the mean of the nodes, or both to choose from."""
        server, record, _ = state
        # Whether the client took part in the last round. Before round 0 all clients did, by their
        # initial state, and all nodes have the initial model.
        has_node = (record.seen == server.round - 1) & personal
        if identity != "round":
            has_node = record.seen >= 0
        own_node = jax.nn.one_hot(record.cluster, clusters)
        weights = jnp.where(has_node[:, None], own_node, 1 / clusters)
        models = (mix(weights, server.models),)
        if identity == "chosen":
            models += (mix(jnp.full_like(weights, 1 / clusters), server.models),)
        return Down(each=models)

    def choose(down: Down, cohort: Cohort) -> tuple[Params, PyTree]:
        """The model that each client takes, and whether it is the node's if it has a choice."""
        if identity != "chosen":
            return down.each[0], ()
        of_node, of_mean = (losses(models, cohort.train, cohort) for models in down.each)
        # A loss that is not a number is not lower.
        takes_node = ~(of_mean < of_node)
        return tree.choose(takes_node, *down.each), takes_node

    def client(key: PRNGKey, memory: tuple, down: Down, cohort: Cohort) -> Turn[tuple]:
        start, takes_node = choose(down, cohort)
        _, up, report = steps.train_and_send(fit, key, start, None, cohort)
        return memory, up._replace(plain=takes_node), report

    def identify(
        cluster: Array, centres: Array, state: ServerState, uploads: Uploads
    ) -> tuple[Array, Array, Nodes]:
        """The node of each client, the averaging of each node's members [K, M], and the nodes."""
        record, last = state.record, state.server.nodes
        received, reported = uploads.received, uploads.reported
        again = (record.seen >= 0) & reported
        before = jax.nn.one_hot(record.cluster, clusters) * again[:, None]
        votes = jax.nn.one_hot(cluster, clusters).T @ before
        distances = distances_between(mix(centres, received), last.centres)
        node = predecessors(votes, distances, last.occupied, centres.any(axis=1))
        # Clusters that continue one node are one cluster.
        counts = reported | ~reported.any()
        members = jax.nn.one_hot(node[cluster], clusters, axis=0) * counts[None]
        averaging = members / jnp.maximum(members.sum(axis=1), 1)[:, None]
        exists = members.any(axis=1)
        now = tree.choose(exists, mix(averaging, received), last.centres)
        return node[cluster], averaging, Nodes(now, last.occupied | exists)

    def server(key: PRNGKey, state: ServerState, uploads: Uploads) -> Outcome:
        before = state.server
        ids, _, reported, received, *_ = uploads
        clients = ids.size
        counted = reported | ~reported.any()
        # Section 3.2, (1): clusters of models; each centre is the mean of its members.
        if clusters < clients:
            seeds = stream(key, "server")
            cluster, centres, _ = kmeans(seeds, received, clusters, ids, counted)
        else:
            # Each model is a cluster of its own (AS-1), also models that are equal.
            cluster = jnp.argsort(jnp.argsort(ids)).astype(jnp.int32)
            centres = counted[None] * jax.nn.one_hot(cluster, clusters, axis=0)
        now = ()
        if identity != "round":
            cluster, centres, now = identify(cluster, centres, state, uploads)
        exists = centres.any(axis=1)
        # Section 3.3: the cosines of the centres are the edges of the graph. Section 3.4, (2): P
        # steps of propagation over the graph.
        features = received
        if feature == "update":
            features = tree.subtract(received, before.initial)
        alike = similarities(mix(centres, features), measure)
        if measure != "cosine":
            # The cosines of the zeros in the place of an empty cluster are 0, others may not be.
            alike = jnp.where(exists[:, None] & exists[None], alike, 0.0)
        edges = graph_rows(alike, graph, temperature)
        nodes = mix(propagate(edges, hops, exists), centres)  # [K, M]
        # Section 3.5: each client gets the model of its node.
        weights = nodes[cluster]
        if not personal:
            weights = tree.broadcast(nodes.mean(axis=0), clients)
        models = mix(nodes, received)
        if identity != "round":
            # A node without members keeps its model, if it ever had any.
            models = tree.choose(~exists & before.nodes.occupied, before.models, models)
        new = ServerState(
            Server(models, before.round + 1, before.initial, now),
            Record(cluster, jnp.full_like(ids, before.round)),
        )
        return Outcome(
            new, weights=weights, metrics={"contraction": contraction(edges, hops, exists)}
        )

    def deploy(memory: tuple, down: Down, cohort: Cohort) -> Params:
        return choose(down, cohort)[0]

    return steps.compose(task, Wire(init, (Exchange(client, server),), deploy, download))
