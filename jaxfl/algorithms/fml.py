"""FML: beside its own model a client trains a small one, which all share; each learns from both.

each round t, with the small model s and KL(a | b), the divergence of b's predictions from a's:
  client i:  w_i = local training of alpha F_i(w) + (1 - alpha) KL(s_i | w) from w_i  (5)
             s_i = local training of beta F_i(s) + (1 - beta) KL(w_i | s) from s      (6)
             at once, and sends s_i                                                 (Algorithm 1)
  server:    s = sum_i p_i s_i, where p_i are the clients' shares of the examples
client i deploys w_i.
"""

from typing import Annotated

import jax.numpy as jnp

from jaxfl.algorithms import steps
from jaxfl.core import tree
from jaxfl.core.facts import FRACTION, Paper, method
from jaxfl.core.messages import Down, Exchange, Outcome, ServerState, Turn, Uploads, Wire
from jaxfl.core.streams import stream
from jaxfl.core.types import Algorithm, Cohort, Dataset, Params, PRNGKey, Scalar, Task


@method(
    title="FML",
    paper=Paper(
        authors="Shen, Tao and Zhang, Jie and Jia, Xinkang and Zhang, Fengda and Huang, Gang and "
        "Zhou, Pan and Kuang, Kun and Wu, Fei and Wu, Chao",
        title="Federated Mutual Learning",
        venue="",
        year=2020,
        link="https://arxiv.org/abs/2006.16765",
    ),
    place="Algorithm 1",
    personal="the whole model",
    sends="a small model that all share",
    defaults="ours; HtFLlib's of 1 are local training",
    takes_initial_model=False,
    advice="alpha, the weight of the labels for a client's own model: at 1 it is local training",
)
def fml(
    task: Task,
    *,
    alpha: Annotated[Scalar, FRACTION] = 0.5,
    beta: Annotated[Scalar, FRACTION] = 0.5,
) -> Algorithm:
    """Clients keep models of their own, and learn from a small one that the server averages.

    The small model has the smallest architecture of `jaxfl.heterogeneous`; where all clients have
    one architecture it is that one. Own models are never sent. A client that has never taken part
    deploys the small model if it has that architecture.

    State: memory = the client's `Personal` model; server = the small model. Weights: "small" and
    "model".

    Args:
      task: the model and its training, which is that of the small model too.
      alpha: weight of the labels for a client's own model, the rest is the small model's
        predictions.
      beta: weight of the labels for the small model.

    Raises:
      InputError: the task has no labels.

    Example:
      >>> state, info = one_round(fml(task))
      >>> sorted(info.weights)
      ['model', 'small']
    """
    train = steps.mutual_training(task, alpha, beta)

    def init(key: PRNGKey, data: Dataset) -> tuple[steps.Personal, ServerState]:
        steps.require_labels(task.problem, data, "FML")
        memory, _ = steps.init_personal(task.problem)(key, data)
        return memory, ServerState(steps.small_problem(task).init(stream(key, "server")))

    def client(
        key: PRNGKey, memory: steps.Personal, down: Down, cohort: Cohort
    ) -> Turn[steps.Personal]:
        start = tree.broadcast(down.common, cohort.ids.size)
        own, up, report = train(key, memory.model, start, cohort)
        return steps.seen(own, cohort), up, report

    def server(key: PRNGKey, state: ServerState, uploads: Uploads) -> Outcome:
        small, weights = steps.mean_by_size(uploads)
        rows = {"model": jnp.eye(weights.size), "small": tree.broadcast(weights, weights.size)}
        return Outcome(ServerState(small), weights=rows)

    def deploy(memory: steps.Personal, down: Down, cohort: Cohort) -> Params:
        if steps.small_problem(task) is task.problem:
            return steps.deploy_personal(memory, down, cohort)
        return memory.model

    wire = Wire(init, (Exchange(client, server),), deploy, steps.download_server)
    return steps.compose(task, wire)
