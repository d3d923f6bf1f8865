"""pFedSim: bodies are mixed by the similarity of the clients' heads, which stay personal."""

from typing import Annotated, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from jaxfl.algorithms.steps.heads import head_of, part_weights
from jaxfl.algorithms.steps.uploads import train_and_upload
from jaxfl.core import tree
from jaxfl.core.facts import method
from jaxfl.core.options import COUNT_OR_ZERO
from jaxfl.core.papers import Paper
from jaxfl.core.types import (
    Algorithm,
    Cohort,
    Dataset,
    Info,
    Params,
    PRNGKey,
    State,
    Task,
)
from jaxfl.kernels.merit import head_weights
from jaxfl.kernels.mixing import isolate, mix, size_weights
from jaxfl.kernels.similarity import cosine
from jaxfl.training.objectives import data_loss


class Client(NamedTuple):
    """The state of each client."""

    # [C, ...] the mixture of bodies and the client's head, from which it trains next
    start: Params
    # [C, ...] the model that it last trained, which it deploys
    trained: Params
    # [C] whether it has taken part since the warm-up
    seen: Bool[Array, "*c"]


class Server(NamedTuple):
    """The state of the server."""

    # the global model of the warm-up
    model: Params
    # t, the number of rounds so far
    rounds: Int[Array, ""]


@method(
    title="pFedSim",
    paper=Paper(
        authors="Tan, Jiahao and Zhou, Yipeng and Liu, Gang and Wang, Jessie Hui and Yu, Shui",
        title="pFedSim: Similarity-Aware Model Aggregation Towards Personalized Federated Learning",
        venue="",
        year=2023,
        link="https://arxiv.org/abs/2305.15706",
    ),
    personal="the whole model, since the warm-up",
    sends="its model",
    takes_top_edges=True,
    defaults="ours",
    separating={"warmup": 2},
    turn_first="warmup: half of the rounds; the personal rounds come after it",
)
def pfedsim(
    task: Task, *, warmup: Annotated[int, COUNT_OR_ZERO] = 10, head: tree.Layers | None = None
) -> Algorithm:
    """After rounds of FedAvg, each client has its own mixture of bodies and its own head.

    The weights of the bodies are -log(1 - c), with rows scaled to 1, where c is the cosine of two
    clients' heads, 0 if it is negative, see `kernels.merit`. A client trains from its mixture and
    its own head, and deploys what it trained. During the warm-up all clients deploy the global
    model.

    State: clients = `Client`; server = `Server`. Weights: "body" and "head".

    Args:
      task: the model and its training.
      warmup: the number of rounds of FedAvg; half of all rounds in the authors' code.
      head: the layers that stay personal: a regular expression to find in their paths, or a
        predicate. None: the model's head.

    Raises:
      InputError: the model names no head and none is given, or no layer matches.

    Differs: the cosine is that of whole heads; the authors' code takes the mean of the cosines of
    the weights of each class, without the bias. The mixture is made among the clients of a cohort
    at the end of their round; the code makes it of all clients' last models at the start of the
    next.

    Example:
      >>> _, info = one_round(pfedsim(task, warmup=0))
      >>> sorted(info.weights)
      ['body', 'head']
    """
    fit = task.trainer(data_loss(task.problem))
    head = head_of(task.problem, head)

    def init(key: PRNGKey, train: Dataset) -> State:
        model = task.problem.init(key)
        clients = train.mask.shape[0]
        stacked = tree.broadcast(model, clients)
        client = Client(stacked, stacked, jnp.zeros(clients, bool))
        return State(client, Server(model, jnp.zeros((), jnp.int32)))

    def round(key: PRNGKey, state: State, cohort: Cohort) -> tuple[State, Info]:
        client, server = state
        clients = cohort.ids.size
        warm = server.rounds < warmup
        start = tree.choose(client.seen, client.start, tree.broadcast(server.model, clients))
        trained, received, info = train_and_upload(task, fit, key, start, None, cohort)
        heads, bodies = tree.split(received, head)
        # The weights of FedAvg in the warm-up, and then those by the similarity of the heads.
        shares = size_weights(cohort.sizes * info.reported)
        by_head = isolate(head_weights(cosine(heads)), info.reported)
        by_head = task.keep_edges(by_head).weights
        weights = jnp.where(warm, tree.broadcast(shares, clients), by_head)
        personal_weights = jnp.where(warm, weights, jnp.eye(clients))
        mixture = tree.join(mix(personal_weights, heads), mix(weights, bodies))
        model = tree.where(warm, mix(shares, received), server.model)
        info = info._replace(
            weights=part_weights(weights, "body", "head", bodies, personal_weights),
        )
        seen = jnp.broadcast_to(~warm, client.seen.shape)
        return State(Client(mixture, trained, seen), Server(model, server.rounds + 1)), info

    def models(state: State, cohort: Cohort) -> Params:
        client = tree.take(state.clients, cohort.ids)
        others = tree.broadcast(state.server.model, cohort.ids.size)
        return tree.choose(client.seen, client.trained, others)

    return Algorithm(init, round, models, task.problem.apply)
