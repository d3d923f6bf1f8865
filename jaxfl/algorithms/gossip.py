"""Gossip (D-PSGD): clients train and average with their neighbours on a graph, without a server.

each round t:                                                               (Algorithm 1)
  client i:  w_i = local training of F_i from w_i, and sends it to its neighbours
             w_i = sum_j r_ij w_j, r_ij = 1 / (1 + max(d_i, d_j)) by the degrees of both, the
             rest its own
client i deploys w_i.
"""

from typing import Annotated, Literal

import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, Int, Shaped

from jaxfl.algorithms import steps
from jaxfl.core.errors import check
from jaxfl.core.facts import COUNT, COUNT_OR_ZERO, FRACTION, File, Paper, method
from jaxfl.core.messages import Down, Exchange, Outcome, ServerState, Turn, Uploads, Wire
from jaxfl.core.types import Algorithm, Cohort, Dataset, Params, PRNGKey, Scalar, Task
from jaxfl.graphs.hierarchy import given_weights, hierarchy
from jaxfl.graphs.links import EdgeDelay, EdgeLoss, EdgePart, links_of
from jaxfl.graphs.networks import network_of
from jaxfl.kernels import isolate, metropolis_rows, mix, neighbours_of, within
from jaxfl.kernels.network import rows_on
from jaxfl.training import data_loss


@method(
    title="D-PSGD",
    paper=Paper(
        authors="Lian, Xiangru and Zhang, Ce and Zhang, Huan and Hsieh, Cho-Jui and Zhang, Wei "
        "and Liu, Ji",
        title="Can Decentralized Algorithms Outperform Centralized Algorithms? A Case Study for "
        "Decentralized Parallel Stochastic Gradient Descent",
        venue="NeurIPS",
        year=2017,
        link="https://arxiv.org/abs/1705.09056",
    ),
    place="Algorithm 1",
    personal="the whole model",
    sends="its model, to each neighbour",
    defaults="ours",
    offers_mixture=True,
    starts_from_server=False,
    reports_gap=True,
    separating={"own": 0.9},
    advice="own: raise it where neighbours differ, lower it where they are alike",
)
def gossip(
    task: Task,
    *,
    graph: Literal[
        "ring",
        "grid",
        "exponential",
        "random_regular",
        "erdos_renyi",
        "complete",
        "one_peer",
        "hierarchy",
    ]
    | File
    | Shaped[ArrayLike, "*p c c"] = "ring",
    own: Annotated[Scalar, FRACTION] = 0.0,
    degree: Annotated[int, COUNT] = 4,
    seed: Annotated[int, COUNT_OR_ZERO] = 0,
    weights: Literal["metropolis", "given"] = "metropolis",
    servers: Annotated[int, COUNT] = 2,
    every: Annotated[int, COUNT] = 1,
    edge_loss: EdgeLoss = 0.0,
    edge_delay: EdgeDelay = 0,
    edge_part: EdgePart = 1.0,
) -> Algorithm:
    """Each client trains its own model and takes the mean with its neighbours; there is no server.

    The weights are those of Metropolis and Hastings, so that the mean of all models stays where it
    is (with "one_peer" as long as all clients report). The graph "exponential" links clients whose
    places in a circle differ by 1, 2, 4, ... With "one_peer" a client receives from one other in
    each round, whose place is 1, 2, 4, ... before its own, in turn (Ying et al., 2021,
    https://arxiv.org/abs/2110.13363). The clients of a cohort stand in a named graph in the order
    of their ids, so that each cohort has a whole graph.

    With "hierarchy" clients exchange models through edge servers: client i has the server i mod S,
    which takes the mean of its clients by size, and in each k-th round all servers take the mean by
    size, as with HierFAVG's cloud (Liu et al., 2020, https://arxiv.org/abs/1905.06641).

    What is sent and received is counted for each neighbour; in a hierarchy a client sends and
    receives one model, and the traffic between servers is not counted.

    State: memory = the client's model; record = with delays, the client's last models; server = the
    number of rounds so far. Evaluations tell the `spectral_gap` of the last round's weights
    (`jaxfl.graphs.measures`). The weights of more than 2,048 clients are `core.edges.SparseRows` if
    each has few neighbours.

    Args:
      task: the model and its training.
      graph: by name, the path of a NumPy file (.npy), or an array [C, C] of zeros and ones; see
        `weights`.
      own: at least this weight stays with the client, and the graph divides the rest. At 1 it is
        local training.
      degree: neighbours of a client in a "random_regular" graph; their mean number with
        "erdos_renyi".
      seed: of these two graphs.
      weights: "given": the array or file has mixing weights in place of edges, row-stochastic
        [C, C] (receiver, sender), or [P, C, C], one for each round in turn, for example of
        `hierarchy.hierarchy`. The rows of a cohort, or without clients that have not reported, are
        rescaled. If columns do not sum to 1, the mean of all models moves.
      servers: S, the number of edge servers of a "hierarchy".
      every: k, in each k-th round the servers of a "hierarchy" mix.
      edge_loss: the probability that a message is lost, drawn for each edge and round. A number, or
        the path of a NumPy file (.npy) or an array [C, C] (receiver, sender) with one for each
        edge, as for the two below. Its weight stays with the receiver, so that the mean of all
        models moves.
      edge_delay: how many rounds a message takes: over an edge of this round a client receives the
        model that the sender had so many of its rounds ago. The weight of a model that is still on
        its way stays with the receiver.
      edge_part: the part of its numbers that a message has, drawn for each edge and round. The
        receiver takes its own number for one that is missing.

    Raises:
      InputError: the graph has no such name and is no such file, is directed, or is of
        another number of clients; given weights are not row-stochastic; or the conditions of the
        edges are out of their ranges.

    Differs: neighbours take the mean after a round of many local steps. In Algorithm 1 an iteration
    has one step, along the gradient at the model before the mean. The paper's result is the mean of
    all models; here a client deploys its own. Where clients have not reported, the degrees are
    those among the others.

    Example:
      >>> _, info = one_round(gossip(task, graph="grid"))
      >>> info.weights.shape
      (4, 4)
    """
    fit = task.trainer(data_loss(task.problem))
    start = steps.init_own(task.problem)
    links = links_of(edge_loss, edge_delay, edge_part)
    named = isinstance(graph, str) and graph == "hierarchy"
    check(
        weights == "metropolis" or not named,
        "gossip has weights=given and graph=hierarchy, which has weights of its own: leave out one",
    )
    check(
        not (named and (links.is_lossy or links.is_partial or links.longest)),
        "gossip has graph=hierarchy, whose clients have no edges to each other: leave out "
        "edge_loss, edge_delay and edge_part",
    )
    matrices = jnp.asarray(given_weights(graph)) if weights == "given" else None
    network = None if named or matrices is not None else network_of(graph, degree, seed, False)

    def through_servers(number: Int[Array, ""], uploads: Uploads) -> Float[Array, "m m"]:
        """The weights of a round of a hierarchy."""
        sizes = uploads.sizes * uploads.reported
        of_servers = (uploads.ids % servers, sizes, servers)
        below, mixed = (hierarchy(*of_servers, graph=g) for g in ("alone", "cloud"))
        return keep(jnp.where((number + 1) % every == 0, mixed, below), uploads)

    def keep(rows: Float[Array, "m m"], uploads: Uploads) -> Float[Array, "m m"]:
        """The weights of clients that have reported, of which each keeps `own` to itself."""
        alone = jnp.eye(uploads.ids.size)
        return own * alone + (1 - own) * isolate(rows, uploads.reported)

    def init(key: PRNGKey, train: Dataset) -> tuple[Params, ServerState]:
        clients = train.mask.shape[0]
        if network is not None:
            network.check(clients)
        links.check(clients)
        if matrices is not None:
            size = matrices.shape[1]
            check(
                size == clients,
                f"the mixing weights are of {size} clients, and there are {clients}: expected a "
                "row and a column for each",
            )
        memory, _ = start(key, train)
        past = steps.init_past(links, memory)
        return memory, ServerState(jnp.zeros((), jnp.int32), past)

    def client(key: PRNGKey, memory: Params, down: Down, cohort: Cohort) -> Turn[Params]:
        return steps.train_and_send(fit, key, memory, None, cohort)

    def network_step(key: PRNGKey, state: ServerState, uploads: Uploads) -> Outcome:
        number = state.server
        after = state._replace(server=number + 1)
        if matrices is not None:
            given = matrices[number % len(matrices)][uploads.ids][:, uploads.ids]
            delivery = steps.deliver(links, key, uploads, neighbours_of(given), state.record)
            weights = keep(within(given, uploads.reported), uploads)
            rows = rows_on(weights, delivery.network, delivery.arrived)
        elif network is not None:
            neighbours = network.neighbours(uploads.ids, number)
            delivery = steps.deliver(links, key, uploads, neighbours, state.record)
            rows = metropolis_rows(delivery.network, own, delivery.arrived)
        else:
            rows = through_servers(number, uploads)
            one = jnp.ones_like(uploads.ids)
            return Outcome(after, Down(each=mix(rows, uploads.received)), rows, copies=(one, one))
        # Line 5 of Algorithm 1: the weighted mean over the neighbourhood.
        return steps.mix_delivered(delivery, rows, after)

    exchanges = (Exchange(client, network_step), Exchange(steps.take_offered(task)))
    return steps.compose(task, Wire(init, exchanges, steps.deploy_memory))
