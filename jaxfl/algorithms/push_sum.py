"""Push-sum (SGP): gossip on a directed graph, where each client counts what it has received.

each round t, with the shares P (columns sum to 1) along the edges:         (Algorithm 1)
  client i:  x_i = x_i + (local training of F_i from z_i) - z_i, where z_i = x_i / w_i
             sends P_ji x_i and P_ji w_i to each j
             x_i = sum_j P_ij x_j, w_i = sum_j P_ij w_j
client i deploys x_i / w_i.
"""

from typing import Annotated, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, Shaped

from jaxfl.algorithms import steps
from jaxfl.core import tree
from jaxfl.core.errors import InputError
from jaxfl.core.facts import FRACTION, File, Paper, method
from jaxfl.core.messages import (
    Down,
    Exchange,
    Outcome,
    Report,
    ServerState,
    Turn,
    Up,
    Uploads,
    Wire,
)
from jaxfl.core.streams import stream
from jaxfl.core.types import Algorithm, Cohort, Dataset, Params, PRNGKey, Scalar, Task
from jaxfl.graphs.links import EdgeLoss, links_of
from jaxfl.graphs.networks import network_of
from jaxfl.graphs.pairs import unreached
from jaxfl.kernels import mix, share_rows
from jaxfl.kernels.network import for_info, for_mixing
from jaxfl.training import data_loss, of_statistics


class Memory(NamedTuple):
    """What each client keeps."""

    # [C, ...] x, the sum of the models received, each times its share
    total: Params
    # [C] w, the sum of these shares
    weight: Float[Array, "*c"]


@method(
    title="SGP",
    paper=Paper(
        authors="Assran, Mahmoud and Loizou, Nicolas and Ballas, Nicolas and Rabbat, Michael",
        title="Stochastic Gradient Push for Distributed Deep Learning",
        venue="ICML",
        year=2019,
        link="https://arxiv.org/abs/1811.10792",
    ),
    place="Algorithm 1",
    personal="the whole model",
    sends="its model and a scalar weight, to each receiver",
    defaults="the paper",
    starts_from_server=False,
    reports_gap=True,
    separating={"own": 0.9},
    advice="own: raise it where senders differ from the client, lower it where they are alike",
)
def push_sum(
    task: Task,
    *,
    graph: Literal["one_peer", "exponential", "ring"]
    | File
    | Shaped[ArrayLike, "c c"] = "one_peer",
    own: Annotated[Scalar, FRACTION] = 0.0,
    edge_loss: EdgeLoss = 0.0,
) -> Algorithm:
    """Clients send shares of their models along directed edges, and divide by the shares they got.

    A client divides its model equally among itself and its receivers: the matrix P of the shares is
    column-stochastic. It holds a sum of shares of models, x, and the sum of the shares, w, at first
    1. Its model is z = x / w. In a round it trains from z, adds the change to x, and sends its
    shares of x and w. So the sum of all x stays where it is, and without training every z
    approaches the mean of the first models, on any graph that is strongly connected. On others a
    client that hears nobody would send its w away, half of it or more in each round, until nothing
    is left to divide by.

    With "one_peer" client i sends to the client 1, 2, 4, ... places further in a circle, in turn;
    "exponential" has all these edges in each round. Clients of a cohort stand in a named graph in
    the order of their ids. What is sent and received is counted for each neighbour.

    State: memory = `Memory`; server = the number of rounds so far. Evaluations tell the
    `spectral_gap` of the last round's weights (`jaxfl.graphs.measures`), which is that of P once w
    no longer changes, or from the beginning if all degrees are equal.
    Weights: those of the other clients' z in a client's new z.

    Args:
      task: the model and its training.
      graph: by name, the path of a NumPy file (.npy), or an array [C, C] (receiver, sender) of
        zeros and ones; a path has to lead from each client to each other one.
      own: at least this share stays with the client. At 1 it is local training.
      edge_loss: the probability that a message is lost, drawn for each edge and round: a number, or
        the path of a NumPy file (.npy) or an array [C, C] (receiver, sender) with one for each
        edge. The sender hears of it and keeps the share, so that the sum of all x stays where it
        is. Of arrays, the edges below 1 have to leave a path from each client to each other one.
        With much loss the w of some clients is small, and their steps are as many times too long:
        choose a lower learning rate.

    Raises:
      InputError: the graph has no such name and is no such file, is not strongly connected, or is
        of another number of clients; or the probabilities are out of their range.

    Differs: a round has many local steps, whose whole change is added to x; in Algorithm 1 an
    iteration has one step.

    Example:
      >>> state, info = one_round(push_sum(task, graph="ring"))
      >>> state.clients.memory.weight.shape, info.weights.shape
      ((4,), (4, 4))
    """
    fit = task.trainer(data_loss(task.problem))
    network = network_of(graph, 0, 0, directed=True)
    links = links_of(edge_loss)

    def init(key: PRNGKey, train: Dataset) -> tuple[Memory, ServerState]:
        clients = train.mask.shape[0]
        network.check(clients)
        links.check(clients)
        if links.dead is not None:
            pairs = network.pairs(clients)
            apart = unreached(pairs[~links.dead[pairs[:, 0], pairs[:, 1]]], clients)
            if apart is not None:
                raise InputError(
                    "edge_loss is 1 on so many edges that no path leads from client "
                    f"{apart[0]} to client {apart[1]}: expected a path from each client to each "
                    "other one; choose a probability below 1, or a graph with more edges"
                )
        total = tree.broadcast(task.problem.init(key), clients)
        return Memory(total, jnp.ones(clients)), ServerState(jnp.zeros((), jnp.int32))

    def client(key: PRNGKey, memory: Memory, down: Down, cohort: Cohort) -> Turn[Memory]:
        total, weight = memory
        start = deploy(memory, down, cohort)
        # Line 3: a step at z, taken by x.
        fitted = fit(stream(key, "fit"), start, None, cohort)
        after = jax.tree.map(lambda x, y, z: x + (y - z), total, fitted.params, start)
        # Statistics of z are those that the step has left.
        after = tree.combine(of_statistics, tree.scale(fitted.params, weight), after)
        return memory, Up(after, total, plain=weight), steps.report_of(fitted)

    def network_step(key: PRNGKey, state: ServerState, uploads: Uploads) -> Outcome:
        neighbours = network.neighbours(uploads.ids, state.server)
        # Nobody takes what comes with a weight that no client has.
        weight = jnp.maximum(uploads.plain, 0.0)
        uploads = uploads._replace(reported=uploads.reported & (weight > 0))
        delivery = steps.deliver(links, key, uploads, neighbours)
        # Lines 4 to 6: the shares of x and of w.
        shares = share_rows(delivery.network, own, delivery.arrived)
        parts = shares.values * weight[shares.columns]
        sums = Memory(mix(for_mixing(shares), uploads.received), parts.sum(axis=1))
        # A row of zeros for a client of which nothing is known.
        rows = parts / jnp.where(sums.weight > 0, sums.weight, 1.0)[:, None]
        return Outcome(
            ServerState(state.server + 1),
            Down(each=sums),
            for_info(shares._replace(values=rows)),
            copies=steps.copies_of(delivery),
        )

    def take(key: PRNGKey, memory: Memory, down: Down, cohort: Cohort) -> Turn[Memory]:
        return down.each, None, Report()

    def deploy(memory: Memory, down: Down, cohort: Cohort) -> Params:
        return tree.scale(memory.total, 1 / memory.weight)

    return steps.compose(task, Wire(init, (Exchange(client, network_step), Exchange(take)), deploy))
