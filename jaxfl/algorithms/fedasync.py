"""FedAsync: the server mixes in each model as it arrives, less if it is stale.

each time that a client arrives:                                            (Algorithm 1)
  client i:  w_i = local training of F_i(w) + rho / 2 |w - y_i|^2 from y_i, the model that it
             has got when it last took part; sends it
  server:    d = how many models it has mixed in since then
             x = (1 - alpha s(d)) x + alpha s(d) w_i, and sends it
client i deploys x.
"""

from typing import Annotated

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxfl.algorithms import steps
from jaxfl.core.facts import FRACTION, NOT_NEGATIVE, Paper, method
from jaxfl.core.messages import ServerState, Uploads
from jaxfl.core.streams import client_keys, stream
from jaxfl.core.types import Algorithm, PRNGKey, Scalar, Task
from jaxfl.kernels import mix
from jaxfl.training import data_loss, proximal

# The exponent of the polynomial discount, and the slope of the hinge.
SLOPES = {"constant": 0.0, "polynomial": 0.5, "hinge": 10.0}


@method(
    title="FedAsync",
    paper=Paper(
        authors="Xie, Cong and Koyejo, Sanmi and Gupta, Indranil",
        title="Asynchronous Federated Optimization",
        venue="",
        year=2019,
        link="https://arxiv.org/abs/1903.03934",
    ),
    place="Algorithm 1",
    personal="",
    sends="its model",
    defaults="ours",
    starts_from_server=False,
    advice="lower alpha if the accuracy jumps; one model cannot fit clients that differ",
)
def fedasync(
    task: Task,
    *,
    alpha: Annotated[Scalar, FRACTION] = 0.6,
    staleness: steps.Discount = "polynomial",
    a: Annotated[Scalar | None, NOT_NEGATIVE] = None,
    b: Annotated[Scalar, NOT_NEGATIVE] = 4.0,
    rho: Annotated[Scalar, NOT_NEGATIVE] = 0.005,
) -> Algorithm:
    """One global model, which moves toward each model that arrives: x + alpha s(d) (x_new - x).

    A client trains from the model that it received when it last took part, with a proximal term
    rho / 2 |x - start|^2. Its staleness d is the number of models that the server has mixed in
    since then. The models of a cohort are mixed in one after the other, in an order that is drawn
    anew in each round; a cohort of one client is the paper's. The schedule of clients that arrive
    late is that of `clock.arrivals`, on the command line `arrivals=asynchronous`. Under
    another participation, a client that is in every round has a d of less than M.

    State: memory = the model that each client has received last; record = how many models were
    mixed in before it was; server = (the global model, that number). Metrics: `staleness` (mean of
    the cohort) and `largest_staleness`. The weights are the shares of the clients in what the round
    adds.

    Args:
      task: the model and its training.
      alpha: what a model counts that is not stale.
      staleness: s, what a stale model counts of that, see `staleness.discount`.
      a: the exponent of "polynomial" (.5 if None), or the slope of "hinge" (10 if None).
      b: models that "hinge" does not count.
      rho: strength of the proximal term.

    Differs: d is 0 if no other model has arrived since, where the paper's t - tau is 1. The clients
    of a cohort receive the model of after its last member. All clients train at the same time;
    the paper's scheduler triggers some of them.

    Example:
      >>> state, info = one_round(fedasync(task, staleness="hinge"))
      >>> state.clients.record.shape, sorted(info.metrics)
      ((4,), ['largest_staleness', 'staleness'])
    """
    slope = SLOPES[staleness] if a is None else a

    def step(key: PRNGKey, state: ServerState, uploads: Uploads) -> tuple:
        model, mixed = state.server
        order = _order(stream(key, "server"), uploads.ids)
        arrived = uploads.reported[order].astype(jnp.int32)
        # Between its download and its turn, the server has also mixed in those before it.
        before = (jnp.cumsum(arrived) - arrived)[jnp.argsort(order)]
        delay = mixed - state.record + before
        # Algorithm 1: alpha_t = alpha s(t - tau).
        rates = alpha * steps.discount(delay, staleness, slope, b) * uploads.reported
        counts = _left_in_the_end(rates[order])[jnp.argsort(order)]
        # x_t = (1 - alpha_t) x_(t-1) + alpha_t x_new, for one arrival after the other.
        increment = mix(counts, uploads.received)
        factor = jnp.prod(1 - rates)
        model = jax.tree.map(lambda old, new: factor * old + new, model, increment)
        return (model, mixed + arrived.sum()), counts, delay

    return steps.stale_starts(task, proximal(data_loss(task.problem), rho), step)


def _order(key: PRNGKey, ids: Int[Array, "m"]) -> Int[Array, "m"]:
    """The places of the clients in the order in which their models are mixed in."""
    return jnp.argsort(jax.vmap(jax.random.uniform)(client_keys(key, ids)))


def _left_in_the_end(rates: Float[Array, "m"]) -> Float[Array, "m"]:
    """What is left of each model after the last one: a_j times the product of 1 - a_k behind it."""
    behind = jnp.cumprod((1 - rates)[::-1])[::-1]
    return rates * jnp.append(behind[1:], 1.0)
