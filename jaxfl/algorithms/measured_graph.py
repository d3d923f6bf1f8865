"""measured_graph: pFedGraph's round, with weights from a bias and a variance that are measured.

each round t:
  client i:  a_i = local training of F_i(w) - lam / 2 <w, n_i> / |w| from c_i on half of its
             examples, b_i = the same on the other half; sends both
  server:    w_i = (a_i + b_i) / 2, with a variance v_i by |a_i - b_i|^2 and a bias b_ij by the
             distances from those of j
             r_i = argmin_r sum_j v_j r_j^2 + b_ij r_j on the simplex
             c_i = sum_j r_ij w_j, n_i = sum_j r_ij w_j / |w_j|, and sends both
client i deploys c_i.
"""

from functools import partial

import jax
import jax.numpy as jnp

from jaxfl.algorithms import steps
from jaxfl.core import tree
from jaxfl.core.facts import method
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
from jaxfl.core.trainable import trainable
from jaxfl.core.types import Algorithm, Cohort, Dataset, Params, PRNGKey, Scalar, Task
from jaxfl.kernels import isolate, measured_rows, mix
from jaxfl.kernels.alignment import Alignment


def midpoint(a: Params, b: Params) -> Params:
    """The mean of two models of each client [M, ...]."""
    return jax.tree.map(lambda x, y: (x + y) / 2, a, b)


def halves(data: Dataset) -> tuple[Dataset, Dataset]:
    """Every other example of each client [M, n, ...], and the others."""
    number = jnp.cumsum(data.mask > 0, axis=-1)
    first = data._replace(mask=data.mask & (number % 2 == 1))
    return first, data._replace(mask=data.mask & (number % 2 == 0))


@method(
    title="measured graph",
    paper="none; jaxfl's own, from pFedGraph's graph (Ye et al., ICML 2023)",
    personal="the mixture of models",
    sends="two models, each trained on half of its examples",
    defaults="pFedGraph's",
    offers_mixture=True,
    takes_top_edges=True,
    starts_from_server=False,
    advice="lam, by factors of 10: the graph itself has no option",
)
def measured_graph(
    task: Task,
    *,
    lam: Scalar = 0.01,
    anchor: Alignment = "cosine",
    layers: tree.Layers | None = None,
) -> Algorithm:
    """The round of pFedGraph without a balance to choose: clients measure how sure they are.

    Each client trains on two halves of its examples, and sends both models. The mean of the two is
    its model, and from their distance follows its variance; `simplex.measured_rows` weighs this
    variance against the distance of other clients. It computes as many gradients as `pfedgraph`
    with epochs, and twice as many with steps.

    State: memory = `Aligned`; server = nothing.

    Args:
      task: the model and its training.
      lam: as in `pfedgraph`, strength of the regulariser.
      anchor: as in `pfedgraph`, the regulariser.
      layers: the layers that are compared: a regular expression to find in their paths, or a
        predicate. None: all layers.

    Example:
      >>> _, info = one_round(measured_graph(task))
      >>> info.up.shape, info.weights.shape
      ((4,), (4, 4))
    """
    fit = steps.fit_aligned(task, lam, anchor)

    def client(
        key: PRNGKey, memory: steps.Aligned, down: Down, cohort: Cohort
    ) -> Turn[steps.Aligned]:
        start = memory.model
        first, second = (cohort._replace(train=half) for half in halves(cohort.train))
        one = fit(stream(key, "fit"), start, memory, first)
        other = fit(stream(key, "second_fit"), start, memory, second)
        trained = midpoint(one.params, other.params)
        report = Report((one.loss + other.loss) / 2, one.batches + other.batches, trained)
        ups = Up(one.params, start), Up(other.params, start)
        return memory._replace(model=trained), ups, report

    def server(key: PRNGKey, state: ServerState, uploads: tuple[Uploads, Uploads]) -> Outcome:
        one, other = uploads
        reported = other.reported & one.reported
        pattern = "" if layers is None else layers
        first, second = (tree.select(trainable(each.received), pattern) for each in uploads)
        edges = task.keep_edges(isolate(measured_rows(first, second, reported), reported))
        received = midpoint(one.received, other.received)
        offer = steps.offer_aligned(partial(mix, edges), received, anchor)
        return Outcome(state, offer, edges.weights)

    init = steps.init_aligned(task.problem, anchor)
    exchanges = (Exchange(client, server), Exchange(steps.take_aligned(task, anchor)))
    return steps.compose(task, Wire(init, exchanges, steps.deploy_aligned))
