"""FedBuff: the server takes a step with a buffer of updates, some of which are stale.

each round t, with a buffer of K clients:                                   (Algorithm 1)
  client i:  u_i = the update by local training of F_i from the model that it has got when it
             last took part; sends it
  server:    d_i = how many steps it has taken since then
             x = x + rate / K sum_i u_i / (1 + d_i)^(1/2), and sends it
client i deploys x.
"""

from typing import Annotated

import jax
import jax.numpy as jnp

from jaxfl.algorithms import steps
from jaxfl.core import tree
from jaxfl.core.facts import POSITIVE, Paper, method
from jaxfl.core.messages import ServerState, Uploads
from jaxfl.core.types import Algorithm, PRNGKey, Scalar, Task
from jaxfl.kernels import mix
from jaxfl.training import of_statistics


@method(
    title="FedBuff",
    paper=Paper(
        authors="Nguyen, John and Malik, Kshitiz and Zhan, Hongyuan and Yousefpour, Ashkan and "
        "Rabbat, Michael and Malek, Mani and Huba, Dzmitry",
        title="Federated Learning with Buffered Asynchronous Aggregation",
        venue="AISTATS",
        year=2022,
        link="https://arxiv.org/abs/2106.06639",
    ),
    place="Algorithm 1",
    personal="",
    sends="its update",
    defaults="ours",
    starts_from_server=False,
    advice="lower rate if the accuracy jumps; one model cannot fit clients that differ",
)
def fedbuff(task: Task, *, rate: Annotated[Scalar, POSITIVE] = 1.0) -> Algorithm:
    """One global model, moved by the mean of K updates of clients, less if these are stale.

    A client trains from the model that it received when it last took part. The clients of a cohort
    are the buffer, K = M. Their updates, trained minus start, count 1 / sqrt(1 + d) where the
    server has taken d steps since the client received its start; the server adds their mean times
    `rate`. The schedule of clients that arrive late is that of `clock.arrivals`, on the command
    line `arrivals=asynchronous`. Under another participation, d is the number of rounds since
    the client last took part, less one.

    State: memory = the model that each client has received last; record = after how many steps of
    the server; server = (the global model, the number of steps). Metrics: `staleness` (mean of the
    cohort) and `largest_staleness`. The weights are the shares of the clients in the step.

    Args:
      task: the model and its training.
      rate: eta_g, the learning rate of the server.

    Differs: a client that has arrived waits for the server's step before it begins anew; in the
    paper a new client begins at once, from the model of before the step. All clients train at the
    same time, while the paper draws those that do. The local learning rate does not depend on the
    number of examples. Statistics of BatchNorm are the mean of the clients', with the same shares.

    Example:
      >>> state, info = one_round(fedbuff(task))
      >>> state.clients.record.shape, sorted(info.metrics)
      ((4,), ['largest_staleness', 'staleness'])
    """

    def step(key: PRNGKey, state: ServerState, uploads: Uploads) -> tuple:
        model, number = state.server
        reported = uploads.reported
        # Section 5: the update of client i counts 1 / sqrt(1 + tau_i).
        staleness = number - state.record
        counts = steps.discount(staleness, "polynomial", 0.5, 0.0) * reported
        updates = jax.tree.map(jnp.subtract, uploads.received, uploads.before)
        # Algorithm 1, lines 9 to 12: the sum of the updates over K, times eta_g.
        mean = mix(counts / jnp.maximum(reported.sum(), 1), updates)
        after = jax.tree.map(lambda old, step: old + rate * step, model, mean)
        after = tree.combine(of_statistics, mix(steps.shares(counts), uploads.received), after)
        return (tree.where(reported.any(), after, model), number + 1), counts, staleness

    return steps.stale_starts(task, None, step)
