"""pFedSim: bodies are mixed by the similarity of the clients' heads, which stay personal.

each round t after a warm-up of FedAvg, with the body b_i and the head h_i of client i:
  client i:  (b_i, h_i) = local training of F_i from (x_i, h_i), and sends both
  server:    r_ij = -log(1 - max(cos(h_i, h_j), 0)), scaled to sum to 1
             x_i = sum_j r_ij b_j
client i deploys (b_i, h_i).
"""

from typing import Annotated, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Int

from jaxfl.algorithms import steps
from jaxfl.core import tree
from jaxfl.core.facts import COUNT_OR_ZERO, Paper, method
from jaxfl.core.messages import Down, Exchange, Outcome, ServerState, Turn, Uploads, Wire
from jaxfl.core.types import Algorithm, Cohort, Dataset, Params, PRNGKey, Task
from jaxfl.kernels import cosine, head_weights, isolate, mix, size_weights
from jaxfl.training import data_loss


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
    advice="warmup: half of the rounds; the personal rounds come after it",
)
def pfedsim(
    task: Task, *, warmup: Annotated[int, COUNT_OR_ZERO] = 10, head: tree.Layers | None = None
) -> Algorithm:
    """After rounds of FedAvg, each client has its own mixture of bodies and its own head.

    The weights of the bodies are -log(1 - c), with rows scaled to 1, where c is the cosine of two
    clients' heads, 0 if it is negative, see `kernels.merit`. A client trains from its mixture and
    its own head, and deploys what it trained. During the warm-up all clients deploy the global
    model.

    State: memory = the model that the client last trained, which it deploys; record = the mixture
    of bodies and the client's head, from which it trains next, and whether it has taken part since
    the warm-up (`Personal`); server = `Server`. Weights: "body" and "head".

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
    head = steps.head_of(task.problem, head)

    def init(key: PRNGKey, train: Dataset) -> tuple[Params, ServerState]:
        model = task.problem.init(key)
        record = steps.start_personal(model, train.mask.shape[0])
        return record.model, ServerState(Server(model, jnp.zeros((), jnp.int32)), record)

    def download(state: ServerState) -> Down:
        start = steps.personal_models(state.record, state.server.model)
        return Down(each=steps.Personal(start, state.record.seen))

    def client(key: PRNGKey, memory: Params, down: Down, cohort: Cohort) -> Turn[Params]:
        return steps.train_and_send(fit, key, down.each.model, None, cohort)

    def server(key: PRNGKey, state: ServerState, uploads: Uploads) -> Outcome:
        ids, sizes, reported, received, *_ = uploads
        model, rounds = state.server
        warm = rounds < warmup
        heads, bodies = tree.split(received, head)
        # The weights of FedAvg in the warm-up, and then those by the similarity of the heads.
        shares = size_weights(sizes * reported)
        by_head = isolate(head_weights(cosine(heads)), reported)
        by_head = task.keep_edges(by_head).weights
        weights = jnp.where(warm, tree.broadcast(shares, ids.size), by_head)
        personal_weights = jnp.where(warm, weights, jnp.eye(ids.size))
        mixture = tree.join(mix(personal_weights, heads), mix(weights, bodies))
        model = tree.where(warm, mix(shares, received), model)
        record = steps.Personal(mixture, jnp.broadcast_to(~warm, reported.shape))
        return Outcome(
            ServerState(Server(model, rounds + 1), record),
            weights=steps.part_weights(weights, "body", "head", bodies, personal_weights),
        )

    def deploy(memory: Params, down: Down, cohort: Cohort) -> Params:
        return tree.choose(down.each.seen, memory, down.each.model)

    return steps.compose(task, Wire(init, (Exchange(client, server),), deploy, download))
