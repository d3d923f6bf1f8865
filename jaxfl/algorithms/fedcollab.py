"""FedCollab: coalitions that are found before training, from divergences and sizes of the data."""

from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from jaxfl.algorithms.steps.client import train_and_send
from jaxfl.algorithms.steps.composition import compose
from jaxfl.algorithms.steps.divergence import estimate_divergences
from jaxfl.core import tree
from jaxfl.core.facts import method
from jaxfl.core.messages import (
    Down,
    Exchange,
    Joining,
    Outcome,
    Report,
    ServerState,
    Up,
    Uploads,
    Wire,
)
from jaxfl.core.options import COUNT, NOT_NEGATIVE, POSITIVE
from jaxfl.core.papers import Paper
from jaxfl.core.streams import stream
from jaxfl.core.types import Algorithm, Cohort, Dataset, Params, PRNGKey, Scalar, Task
from jaxfl.kernels.coalitions import coalition_weights, find_coalitions
from jaxfl.kernels.mixing import leave_out, mix
from jaxfl.training.objectives import data_loss


class Record(NamedTuple):
    """What the server keeps for each client."""

    # [C] its coalition, which never changes
    coalition: Int[Array, "*c"]
    # [C] floats that it sent and received in the estimation, until its first round has counted them
    up: Int[Array, "*c"]
    down: Int[Array, "*c"]


@method(
    title="FedCollab",
    paper=Paper(
        authors="Bao, Wenxuan and Wang, Haohan and Wu, Jun and He, Jingrui",
        title="Optimizing the Collaboration Structure in Cross-Silo Federated Learning",
        venue="ICML",
        year=2023,
        link="https://arxiv.org/abs/2306.06508",
    ),
    personal="the coalition",
    sends="its model; before its first round gradients of the discriminators",
    defaults="the authors' scripts for C; the discriminators' training is ours",
    separating={"trade": 1.0},
    turn_first="trade, the constant C: lower it for more coalitions, raise it for fewer",
)
def fedcollab(
    task: Task,
    *,
    trade: Annotated[Scalar, NOT_NEGATIVE] = 10.0,
    coalitions: Annotated[int, COUNT] = 10,
    starts: Annotated[int, COUNT] = 20,
    steps: Annotated[int, COUNT] = 200,
    rate: Annotated[Scalar, POSITIVE] = 0.1,
    examples: Annotated[int, COUNT] = 500,
) -> Algorithm:
    """FedAvg in coalitions, which are found from divergences and sizes before the first round.

    For each pair of clients a discriminator learns to tell their examples (x, y) apart; from its
    accuracy follows the divergence of their data, see `divergence`. The coalitions are those of
    the smallest mean bound of the clients' errors, trade / sqrt(m_S) plus the mean divergence from
    the coalition S weighted by size, that a search finds, see `kernels.coalitions`. m_S is the
    number of training examples of the coalition. Then each coalition is a federation of its own.

    State: record = `Record`; server = the models of the coalitions [K, ...]. Metrics: the number of
    `coalitions` of the cohort.

    Args:
      task: the model and its training.
      trade: the constant C of the paper, what few examples cost against divergences, which lie
        between 0 and 1. The authors' scripts have 10 and, for CIFAR-100, 8.
      coalitions: K, the largest number of coalitions.
      starts: searches for the coalitions, each with another order of the clients; 100 in the
        authors' code.
      steps: of SGD for each discriminator; C clients have C (C - 1) / 2 discriminators.
      rate: learning rate of the discriminators.
      examples: at most so many of each client serve the estimation, half of them for the accuracy.

    Differs: beyond its abstract the paper was not at hand; bound, divergence and search are those
    of the authors' code. Its discriminator has a hidden layer of 200 (here 64), or a ResNet that
    was trained before; it takes up to 2,000 steps of rate .01 until the held-out accuracy has not
    grown for 100 of them, and its best value counts; here the value after the last step counts,
    which is not biased upward. All of its clients train on half as many examples as the smallest
    one has, here on half of their own. The authors' search draws a new order in each pass, and does
    not limit the number of coalitions. The estimation is an exchange of all clients before round 0,
    which `init` does with the data of all of them at hand. It does not pass the task's upload, so
    attacks, noise and compression do not reach it, and counts in `up` and `down` of a client's
    first round.
    The gradients of discriminators, `steps` for each other client, are not counted in `batches`,
    which is of the model.

    Example:
      >>> _, info = one_round(fedcollab(task, trade=1.0))
      >>> info.weights.shape, list(info.metrics)
      ((4, 4), ['coalitions'])
    """
    fit = task.trainer(data_loss(task.problem))

    # One program: operation by operation, it takes twice as long to compile.
    @jax.jit
    def init(key: PRNGKey, train: Dataset) -> tuple[tuple, ServerState]:
        sizes = jnp.sum(train.mask > 0, axis=1)
        divergences = estimate_divergences(
            key, task.problem, train, steps=steps, rate=rate, most=examples
        )
        coalition, _ = find_coalitions(
            stream(key, "evaluate"),
            divergences.matrix,
            sizes,
            trade,
            coalitions=coalitions,
            starts=starts,
        )
        record = Record(
            coalition,
            jnp.full_like(coalition, divergences.up),
            jnp.full_like(coalition, divergences.down),
        )
        models = tree.broadcast(task.problem.init(key), coalitions)
        return (), ServerState(models, record)

    def download(state: ServerState) -> Down:
        return Down(each=tree.take(state.server, state.record.coalition))

    def client(key: PRNGKey, memory: tuple, down: Down, cohort: Cohort) -> tuple[tuple, Up, Report]:
        _, up, report = train_and_send(fit, key, down.each, None, cohort)
        return (), up, report

    def server(key: PRNGKey, state: ServerState, uploads: Uploads) -> Outcome:
        coalition, up, down = state.record
        # FedAvg in each coalition; one without a model that arrived keeps its own.
        weights = leave_out(coalition_weights(coalition, uploads.sizes), uploads.reported)
        mixed = mix(weights, uploads.received)
        present = coalition[None] == jnp.arange(coalitions)[:, None]  # [K, M]
        reported = present & uploads.reported[None]
        of_member = tree.take(mixed, jnp.argmax(reported, axis=1))
        models = tree.choose(reported.any(axis=1), of_member, state.server)
        nothing = jnp.zeros_like(up)
        return Outcome(
            ServerState(models, Record(coalition, nothing, nothing)),
            weights=weights,
            metrics={"coalitions": present.any(axis=1).sum().astype(float)},
            joining=Joining(up, down),
        )

    def deploy(memory: tuple, down: Down, cohort: Cohort) -> Params:
        return down.each

    return compose(task, Wire(init, (Exchange(client, server),), deploy, download))
