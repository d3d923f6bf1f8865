"""FedCedar (Wang et al., "Rethinking Personalized Federated Learning with Clustering-based Dynamic Graph Propagation").

Pacific-Asia Conference on Knowledge Discovery and Data Mining, PAKDD 2024.
"""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from jaxfl import tree
from jaxfl.errors import check, check_positive
from jaxfl.kernels.cluster import kmeans
from jaxfl.kernels.mixing import leave_out, mix
from jaxfl.kernels.propagate import contraction, graph_rows, propagate
from jaxfl.kernels.similarity import cosine
from jaxfl.types import Algorithm, Cohort, Dataset, Info, Params, PRNGKey, Scalar, State, Task


class Client(NamedTuple):
    """What is kept of each client."""

    cluster: Int[Array, "*c"]  # [C] its cluster in the round in which it last took part
    seen: Int[Array, "*c"]  # [C] that round; first -1


class Server(NamedTuple):
    """What the server keeps."""

    models: (
        Params  # [K, ...] of the clusters after propagation; of an empty one the mean of the others
    )
    round: Int[Array, ""]  # rounds done
    initial: Params  # the initial model if differences to it are compared, else nothing


def fedcedar(
    task: Task,
    *,
    clusters: int = 5,
    hops: int = 2,
    feature: Literal["weights", "update"] = "weights",
    graph: Literal["sum", "softmax"] = "sum",
    temperature: Scalar | None = None,
    personal: bool = True,
) -> Algorithm:
    """Clusters of models are nodes of a graph; whoever was there last round gets its node's model, others the mean.

    Personal is the cluster; a client sends its model. State: `Client`, `Server`. Metrics:
    `contraction`, 0: all alike.

    Args:
      task: the model and its training.
      clusters: K. As many as the cohort has clients: each is a node (ablation AS-1 of section 4.3).
      hops: P, passes over the graph, (2). 0: no graph (AS-2).
      feature: what the graph compares: the clusters' centres, or their differences to the initial
        model, which are less alike. K-means finds the same clusters in both.
      graph: cosines divided by their sum, or their softmax.
      temperature: of the softmax, see `kernels.propagate`.
      personal: False: everybody gets the mean of the nodes' models (AS-3).

    Differs: negative cosines count as 0, and empty clusters nowhere. The authors' code takes a
    client's place in the last cohort for its id; here, as in the paper, a client that returns finds
    its own cluster.
    """
    check(clusters >= 1, f"clusters is {clusters}: expected 1 or more")
    check(hops >= 0, f"hops is {hops}: expected 0 or more")
    check(
        temperature is None or graph == "softmax",
        "temperature is of the softmax: choose graph=softmax, or leave it",
    )
    check_positive(temperature=temperature)
    fit = task.trainer(task.loss)

    def init(key: PRNGKey, train: Dataset) -> State:
        model, first = task.init(key), jnp.zeros(train.mask.shape[0], jnp.int32)
        initial = model if feature == "update" else ()
        server = Server(tree.broadcast(model, clusters), jnp.zeros((), jnp.int32), initial)
        return State(Client(first, first - 1), server)

    def models(state: State, ids: Int[Array, "m"]) -> Params:
        (cluster, seen), server = tree.take(state.clients, ids), state.server
        recent = (seen == server.round - 1) & personal  # in round 0 all, who hold the initial model
        deliver = jnp.where(
            recent[:, None], jax.nn.one_hot(cluster, clusters), 1 / clusters
        )  # [M, K]
        return mix(deliver, server.models)

    def round(key: PRNGKey, state: State, cohort: Cohort) -> tuple[State, Info]:
        fit_key, uplink_key = jax.random.split(key)
        server, clients = state.server, cohort.ids.size
        start = models(state, jnp.arange(clients))
        trained, loss = fit(fit_key, start, None, cohort)
        received, heard = task.uplink(uplink_key, start, trained, cohort.ids)
        cluster, collect, _ = kmeans(jax.random.fold_in(key, 2), received, cohort.ids, clusters)
        compared = tree.subtract(received, server.initial) if feature == "update" else received
        collect = (
            leave_out(collect, heard) * (heard | ~heard.any())[None]
        )  # of whom nobody is heard is empty
        exists = collect.any(axis=1)
        edges = graph_rows(cosine(mix(collect, compared)), graph, temperature)
        to_nodes = mix(propagate(edges, hops, exists), collect)  # [K, M]
        weights = to_nodes[cluster] if personal else tree.broadcast(to_nodes.mean(axis=0), clients)
        client = Client(cluster, jnp.full_like(cohort.ids, server.round))
        floats = jnp.full_like(cohort.ids, tree.size(received) // clients)
        info = Info(
            loss,
            weights,
            floats,
            floats,
            {"contraction": contraction(edges, hops, exists)},
            heard=heard,
        )
        return State(
            client, Server(mix(to_nodes, received), server.round + 1, server.initial)
        ), info

    return Algorithm(init, round, models, task.apply)
