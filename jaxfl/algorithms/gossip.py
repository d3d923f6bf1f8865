"""Gossip (D-PSGD): clients train and average with their neighbours on a graph, without a server."""

from typing import Annotated, Literal

import jax.numpy as jnp
from jaxtyping import ArrayLike, Shaped

from jaxfl import tree
from jaxfl.kernels.gossip import metropolis, spectral_gap
from jaxfl.kernels.mixing import keep_own, mix
from jaxfl.objectives import data_loss
from jaxfl.options import COUNT, COUNT_OR_ZERO, FRACTION
from jaxfl.papers import Paper
from jaxfl.registry import method
from jaxfl.skeleton import train_and_upload
from jaxfl.topology import network_of
from jaxfl.types import Algorithm, Cohort, Dataset, Info, Params, PRNGKey, Scalar, State, Task


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
    separating={"own": 0.9},
    turn_first="own: raise it where neighbours differ, lower it where they are alike",
)
def gossip(
    task: Task,
    *,
    graph: Literal[
        "ring", "grid", "exponential", "random_regular", "erdos_renyi", "complete", "one_peer"
    ]
    | str
    | Shaped[ArrayLike, "c c"] = "ring",
    own: Annotated[Scalar, FRACTION] = 0.0,
    degree: Annotated[int, COUNT] = 4,
    seed: Annotated[int, COUNT_OR_ZERO] = 0,
) -> Algorithm:
    """Each client trains its own model and takes the mean with its neighbours; there is no server.

    The weights are those of Metropolis and Hastings, so that the mean of all models stays where it
    is. The graph "exponential" links clients whose places in a circle differ by 1, 2, 4, ... With
    "one_peer" a client receives from one other in each round, whose place is 1, 2, 4, ... before
    its own, in turn (Ying et al., 2021, https://arxiv.org/abs/2110.13363). The clients of a cohort
    stand in a named graph in the order of their ids, so that each cohort has a whole graph.

    What is sent and received is counted for each neighbour.

    State: clients = the client's model; server = the number of rounds so far. Metrics:
    `spectral_gap` of the round's weights, see `kernels.gossip`.

    Args:
      task: the model and its training.
      graph: by name, the path of a NumPy file (.npy), or an array [C, C] of zeros and ones.
      own: at least this weight stays with the client, and the graph divides the rest. At 1 it is
        local training.
      degree: neighbours of a client in a "random_regular" graph; their mean number with
        "erdos_renyi".
      seed: of these two graphs.

    Raises:
      InputError: the graph has no such name and is no such file, is directed, or is of
        another number of clients.

    Differs: neighbours take the mean after a round of many local steps. In Algorithm 1 an iteration
    has one step, along the gradient at the model before the mean. The paper's result is the mean of
    all models; here a client deploys its own. Where clients have not reported, the degrees are
    those among the others.

    Example:
      >>> _, info = one_round(gossip(task, graph="grid"))
      >>> info.weights.shape, list(info.metrics)
      ((4, 4), ['spectral_gap'])
    """
    fit = task.trainer(data_loss(task.problem))
    network = network_of(graph, degree, seed, directed=False)

    def init(key: PRNGKey, train: Dataset) -> State:
        network.check(train.mask.shape[0])
        model = task.problem.init(key)
        return State(tree.broadcast(model, train.mask.shape[0]), jnp.zeros((), jnp.int32))

    def round(key: PRNGKey, state: State, cohort: Cohort) -> tuple[State, Info]:
        edges = network.edges(cohort.ids, state.server)
        trained, received, info = train_and_upload(task, fit, key, state.clients, None, cohort)
        weights = metropolis(edges, info.reported, own)
        gap = spectral_gap(weights)
        # Line 5 of Algorithm 1: the weighted mean over the neighbourhood.
        model, accepted = task.accept(trained, mix(weights, received), cohort)
        info = info._replace(
            weights=keep_own(weights, accepted),
            up=info.up * edges.sum(axis=0).astype(int),
            down=info.down * edges.sum(axis=1).astype(int),
            metrics={"spectral_gap": gap},
        )
        return State(model, state.server + 1), info

    def models(state: State, cohort: Cohort) -> Params:
        return tree.take(state.clients, cohort.ids)

    return Algorithm(init, round, models, task.problem.apply)
