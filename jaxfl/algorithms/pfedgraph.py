"""pFedGraph: a collaboration graph found by a quadratic program.

each round t:                                                               (Algorithm 1)
  client i:  w_i = local training of F_i(w) - lam / 2 <w, n_i> / |w| from c_i, and sends it (3)
  server:    s_ij = the cosine of w_i - w_0 and w_j - w_0, with the initial model w_0
             p_j = the share of client j in the examples
             r_i = argmin_r alpha |r - p|^2 - <s_i, r> on the simplex                       (4)
             c_i = sum_j r_ij w_j, n_i = sum_j r_ij w_j / |w_j|, and sends both
client i deploys c_i.
"""

from functools import partial
from typing import Annotated, Literal

import jax.numpy as jnp

from jaxfl.algorithms import steps
from jaxfl.core import tree
from jaxfl.core.facts import POSITIVE, Paper, method
from jaxfl.core.messages import Down, Exchange, Outcome, ServerState, Turn, Uploads, Wire
from jaxfl.core.trainable import trainable
from jaxfl.core.types import Algorithm, Cohort, PRNGKey, Scalar, Task
from jaxfl.kernels import collaboration_rows, isolate, mix, similarities, size_weights
from jaxfl.kernels.alignment import Alignment
from jaxfl.kernels.similarity import LARGEST_SQUARE, Measure


@method(
    title="pFedGraph",
    paper=Paper(
        authors="Ye, Rui and Ni, Zhenyang and Wu, Fangzhao and Chen, Siheng and Wang, Yanfeng",
        title="Personalized Federated Learning with Inferred Collaboration Graphs",
        venue="ICML",
        year=2023,
        link="https://proceedings.mlr.press/v202/ye23b.html",
    ),
    place="Algorithm 1",
    personal="the mixture of models",
    sends="its model",
    defaults="the authors' code",
    offers_mixture=True,
    takes_top_edges=True,
    starts_from_server=False,
    advice="lower alpha (try 0.2), or take general_graph with group=2: a client then learns "
    "only from clients that are more similar to it",
)
def pfedgraph(
    task: Task,
    *,
    alpha: Annotated[Scalar | None, POSITIVE] = None,
    lam: Scalar = 0.01,
    anchor: Alignment = "cosine",
    similarity: Literal["delta", "raw"] = "delta",
    measure: Measure = "cosine",
    layers: tree.Layers | None = None,
    snap: Scalar | None = 0.9,
    prior: Literal["size", "equal", "none"] = "size",
) -> Algorithm:
    """Each client receives its own mixture of models, weighted by similarity and by data size.

    The equations, with the models w_j of M clients, their fractions p of the examples, and their
    similarities s_i with client i:

    - (4): the weights r of client i minimise alpha (r - p) . (r - p) - s_i . r over all weights
      that are not negative and sum to 1. The client receives sum_j r_j w_j. This is the form of
      the authors' code; the alpha of the paper multiplies the similarities, and is one over it.

    - (3): it trains from there to lower its loss less lam / 2 times w . n_i / (w . w)^(1/2), where
      n_i = sum_j r_j w_j / (w_j . w_j)^(1/2) is the mixture of normalised models.

    `general_graph` has what the paper does not have: an alpha for groups of a size, sketches, caps,
    and a graph for each layer. `measured_graph` has no alpha to choose.

    State: memory = `Aligned`; server = the initial model if differences from it are compared,
    otherwise nothing.

    Args:
      task: the model and its training.
      alpha: balance of data size and similarity, see `kernels.simplex`. None: .08 M. 1.25 is the
        paper's .8.
      lam: strength of the regulariser in (3), which aligns a client's model with its aggregate.
        With a negative value it pushes them apart, as in the authors' code, which adds .01 times
        the cosine to the loss: the same as lam = -.02 here.
      anchor: the regulariser, see `kernels.alignment`. With "cosine" the server sends both the
        aggregate and the normalised aggregate.
      similarity: "delta" compares the differences from the initial model (appendix C.1.4), "raw"
        the models.
      measure: the measure of similarity (section 4.5); "dice", which is not the paper's, takes
        lengths into account. A name that a plug-in has added, or a function of one's own: see
        `kernels.similarity.similarities`.
      layers: the layers that are compared: a regular expression to find in their paths, or a
        predicate. None: all layers.
      snap: cosines above this number count as 1, as in the authors' code. None: no cosine does.
      prior: p in (4): each client's fraction of the data ("size"), or 1 / M ("equal", Table 9).
        With "none" no program is solved, and the similarities are the weights (Table 8).

    Differs: (4) is solved exactly. With the anchor "approx" the aggregate is divided by its norm,
    so that `lam` means the same as with "cosine".

    Example:
      >>> state = initial_state(pfedgraph(task, anchor="approx"))
      >>> state.clients.memory.anchor.shape
      (4,)
    """
    fit = steps.fit_aligned(task, lam, anchor)

    def client(
        key: PRNGKey, memory: steps.Aligned, down: Down, cohort: Cohort
    ) -> Turn[steps.Aligned]:
        trained, up, report = steps.train_and_send(fit, key, memory.model, memory, cohort)
        return memory._replace(model=trained), up, report

    def server(key: PRNGKey, state: ServerState, uploads: Uploads) -> Outcome:
        received, reported = uploads.received, uploads.reported
        features = tree.subtract(received, state.server) if similarity == "delta" else received
        compared = tree.select(trainable(features), "" if layers is None else layers)
        # A client that has not reported is in nobody's program: the others share its weight by (4).
        scores = similarities(compared, measure, snap)
        scores = jnp.where(reported[None], scores, -LARGEST_SQUARE)
        # (4): the quadratic program gives a row of weights for each client.
        sizes = reported if prior == "equal" else uploads.sizes
        p = size_weights(sizes * reported)
        solver = "none" if prior == "none" else "projection"
        rows = collaboration_rows(scores, p, alpha, "code", solver)
        edges = task.keep_edges(isolate(rows, reported))
        offer = steps.offer_aligned(partial(mix, edges), received, anchor)
        return Outcome(state, offer, edges.weights)

    init = steps.init_aligned(task.problem, anchor, keep_initial=similarity == "delta")
    exchanges = (Exchange(client, server), Exchange(steps.take_aligned(task, anchor)))
    return steps.compose(task, Wire(init, exchanges, steps.deploy_aligned))
