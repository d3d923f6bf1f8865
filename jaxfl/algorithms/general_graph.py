"""general_graph: pFedGraph's round, with what its paper does not have.

each round t, as in pFedGraph; the server, for the whole model or for each layer of it:
  s = the similarities of the models, or of their sketches of d numbers
  alpha = m (1 - c) / 2 for groups of m clients, with the median c of s; or a number
  r_i = argmin_r alpha |r - p|^2 - <s_i, r> on the simplex, where r_ij is at most cap_ij
"""

from functools import partial
from typing import Annotated, Literal

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxfl.algorithms import steps
from jaxfl.core import tree
from jaxfl.core.errors import check
from jaxfl.core.facts import COUNT, POSITIVE, method
from jaxfl.core.messages import Down, Exchange, Outcome, ServerState, Turn, Uploads, Wire
from jaxfl.core.streams import stream
from jaxfl.core.trainable import trainable
from jaxfl.core.types import Algorithm, Cohort, Params, PRNGKey, Scalar, Task
from jaxfl.kernels import (
    alpha_for_groups,
    collaboration_rows,
    isolate,
    mix,
    similarities,
    size_weights,
    sketches,
)
from jaxfl.kernels.alignment import Alignment
from jaxfl.kernels.similarity import BUILT_IN, LARGEST_SQUARE, Measure


@method(
    title="general graph",
    paper="none; jaxfl's own, from pFedGraph's graph (Ye et al., ICML 2023)",
    personal="the mixture of models",
    sends="its model",
    defaults="pFedGraph's",
    offers_mixture=True,
    takes_top_edges=True,
    starts_from_server=False,
    advice="give group=2: a client then learns only from clients that are more similar to it",
)
def general_graph(
    task: Task,
    *,
    group: Annotated[int | None, COUNT] = None,
    cap: Annotated[Scalar | None, POSITIVE] = None,
    sketch: Annotated[int | None, COUNT] = None,
    parts: bool = False,
    alpha: Annotated[Scalar | None, POSITIVE] = None,
    lam: Scalar = 0.01,
    anchor: Alignment = "cosine",
    similarity: Literal["delta", "raw"] = "delta",
    measure: Measure = "cosine",
    layers: tree.Layers | None = None,
    snap: Scalar | None = 0.9,
    prior: Literal["size", "equal"] = "size",
) -> Algorithm:
    """The round of pFedGraph with an alpha for groups, caps of edges, sketches, a graph by layer.

    Without the first four options it is `pfedgraph`, from which the others are.

    State: memory = `Aligned`; server = the initial model if differences from it are compared,
    otherwise nothing. Weights: one matrix, or one for each layer.

    Args:
      task: the model and its training.
      group: m, the size of the smallest group of similar clients that should not mix with others.
        It sets alpha for cohorts of any size, see `simplex.alpha_for_groups`. None: as `alpha`.
      cap: the largest weight of an edge, one number or [C, C].
      sketch: d, the number of floats that stand for a model when models are compared: the
        similarities of a large cohort are those of random projections, see `kernels.sketch`. A
        cosine has an error of about 1 / sqrt(d) at most. None: models are compared exactly.
      parts: each layer, such as each adapter of `jaxfl.lora`, has a quadratic program and weights
        of its own.
      alpha: as in `pfedgraph`, balance of data size and similarity. None: .08 M.
      lam: as in `pfedgraph`, strength of the regulariser.
      anchor: as in `pfedgraph`, the regulariser.
      similarity: as in `pfedgraph`, whether differences from the initial model are compared.
      measure: as in `pfedgraph`, the measure of similarity.
      layers: as in `pfedgraph`, the layers that are compared.
      snap: as in `pfedgraph`, cosines above this number count as 1.
      prior: as in `pfedgraph`, p in its program.

    Raises:
      InputError: alpha and group are given; each layer has weights of its own, and layers to
        compare are given; or sketches are to have distances of measure l1, which they do not keep,
        or a measure of one's own.

    Example:
      >>> _, info = one_round(general_graph(task, parts=True))
      >>> sorted(info.weights)
      ['Dense_0', 'Dense_1']
    """
    check(
        group is None or alpha is None, "group sets alpha: give group=M or alpha=NUMBER, not both"
    )
    check(
        not parts or layers is None,
        "with parts each layer is compared alone: give layers=..., or parts, not both",
    )
    check(
        sketch is None or measure != "l1",
        "sketches keep inner products and no l1 distances: choose another measure, or no sketch",
    )
    check(
        sketch is None or (isinstance(measure, str) and measure in BUILT_IN),
        "sketches keep inner products, and a measure of one's own may ask for more: choose "
        "measure=cosine, dice, inner or l2, or no sketch",
    )
    fit = steps.fit_aligned(task, lam, anchor)

    def client(
        key: PRNGKey, memory: steps.Aligned, down: Down, cohort: Cohort
    ) -> Turn[steps.Aligned]:
        trained, up, report = steps.train_and_send(fit, key, memory.model, memory, cohort)
        return memory._replace(model=trained), up, report

    def graph(key: PRNGKey, compared: Params, uploads: Uploads) -> Float[Array, "m m"]:
        """The weights of clients by what is compared of their models [M, ...]."""
        ids, sizes, reported, *_ = uploads
        if sketch is not None:
            compared = sketches(stream(key, "server"), compared, sketch)
        caps = jnp.asarray(cap)[ids][:, ids] if getattr(cap, "ndim", 0) else cap
        check(
            not isinstance(cap, int | float) or cap * ids.size > 1 - 1e-6,
            f"cap of general_graph is {cap}, and {ids.size} clients take part: expected at least "
            f"{1 / ids.size:.3g}, or the weights of a client cannot sum to 1",
        )
        scores = similarities(compared, measure, snap)
        scores = jnp.where(reported[None], scores, -LARGEST_SQUARE)
        strength = alpha if group is None else alpha_for_groups(scores, group, reported)
        p = size_weights((reported if prior == "equal" else sizes) * reported)
        return isolate(collaboration_rows(scores, p, strength, "code", caps=caps), reported)

    def server(key: PRNGKey, state: ServerState, uploads: Uploads) -> Outcome:
        received = uploads.received
        features = tree.subtract(received, state.server) if similarity == "delta" else received
        if not parts:
            compared = tree.select(trainable(features), "" if layers is None else layers)
            edges = task.keep_edges(graph(key, compared, uploads))
            offer = steps.offer_aligned(partial(mix, edges), received, anchor)
            return Outcome(state, offer, edges.weights)
        by_part = {
            part: task.keep_edges(graph(key, compared, uploads))
            for part, compared in steps.by_layer(features).items()
        }
        weights = {part: edges.weights for part, edges in by_part.items()}
        offer = steps.offer_aligned(partial(steps.mix_layers, by_part), received, anchor)
        return Outcome(state, offer, weights)

    init = steps.init_aligned(task.problem, anchor, keep_initial=similarity == "delta")
    exchanges = (Exchange(client, server), Exchange(steps.take_aligned(task, anchor)))
    return steps.compose(task, Wire(init, exchanges, steps.deploy_aligned))
