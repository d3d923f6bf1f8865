"""pFedGraph: a collaboration graph found by a quadratic program."""

from functools import partial
from typing import Annotated, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxfl.algorithms.steps.client import train_and_send
from jaxfl.algorithms.steps.composition import compose
from jaxfl.algorithms.steps.layerwise import by_layer, mix_layers
from jaxfl.core import tree
from jaxfl.core.errors import check
from jaxfl.core.facts import method
from jaxfl.core.messages import Down, Exchange, Outcome, Report, ServerState, Up, Wire
from jaxfl.core.options import COUNT, POSITIVE
from jaxfl.core.papers import Paper
from jaxfl.core.streams import stream
from jaxfl.core.types import (
    Algorithm,
    Cohort,
    Dataset,
    Params,
    PRNGKey,
    Scalar,
    Task,
)
from jaxfl.kernels.alignment import Alignment, misalignment
from jaxfl.kernels.mixing import isolate, mix, size_weights
from jaxfl.kernels.similarity import (
    BUILT_IN,
    LARGEST_SQUARE,
    Measure,
    inverse_norms,
    similarities,
)
from jaxfl.kernels.simplex import Solver, alpha_for_groups, collaboration_rows, measured_rows
from jaxfl.kernels.sketch import sketches
from jaxfl.training.batch_statistics import trainable
from jaxfl.training.objectives import data_loss


class Memory(NamedTuple):
    """What each client keeps."""

    # [C, ...] the aggregate, which the client deploys and from which it trains
    model: Params
    # with which the client aligns its model: the normalised aggregate of (3) [C, ...], or a factor
    # of `model` [C]; at first 0
    anchor: Params


def midpoint(a: Params, b: Params) -> Params:
    """The mean of two models of each client [M, ...]."""
    return jax.tree.map(lambda x, y: (x + y) / 2, a, b)


def halves(data: Dataset) -> tuple[Dataset, Dataset]:
    """Every other example of each client [M, n, ...], and the others."""
    number = jnp.cumsum(data.mask > 0, axis=-1)
    first = data._replace(mask=data.mask & (number % 2 == 1))
    return first, data._replace(mask=data.mask & (number % 2 == 0))


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
    turn_first="lower alpha (try 0.2), or give group=2: a client then learns only from clients "
    "that are more similar to it",
)
def pfedgraph(
    task: Task,
    *,
    alpha: Annotated[Scalar | None, POSITIVE] | Literal["measured"] = None,
    group: Annotated[int | None, COUNT] = None,
    alpha_form: Literal["code", "paper"] = "code",
    lam: Scalar = 0.01,
    anchor: Alignment = "cosine",
    similarity: Literal["delta", "raw"] = "delta",
    measure: Measure = "cosine",
    layers: tree.Layers | None = None,
    parts: bool = False,
    sketch: Annotated[int | None, COUNT] = None,
    snap: Scalar | None = 0.9,
    prior: Literal["size", "equal"] = "size",
    solver: Solver = "projection",
    cap: Annotated[Scalar | None, POSITIVE] = None,
) -> Algorithm:
    """Each client receives its own mixture of models, weighted by similarity and by data size.

    The equations, with the models w_j of M clients, their fractions p of the examples, and their
    similarities s_i with client i:

    - (4): the weights r of client i minimise r . r - (2 p + alpha s_i) . r over all weights that
      are not negative and sum to 1. With `alpha_form="code"`, the default, they minimise
      alpha (r - p) . (r - p) - s_i . r. The client receives sum_j r_j w_j.

    - (3): it trains from there to lower its loss less lam / 2 times w . n_i / (w . w)^(1/2), where
      n_i = sum_j r_j w_j / (w_j . w_j)^(1/2) is the mixture of normalised models.

    State: memory = `Memory`; server = the initial model if differences from it are compared,
    otherwise nothing. Weights: one matrix, or one for each layer.

    Args:
      task: the model and its training.
      alpha: balance of data size and similarity, see `kernels.simplex`. None: .08 M ("code"), or .8
        ("paper"). "measured", not the paper's: no balance has to be chosen. Each client trains on
        two halves of its examples, and sends both models. The mean of the two is its model, and
        their distance tells how uncertain it is; `simplex.measured_rows` weighs this variance
        against the distance of other clients. It computes as many gradients with epochs, and twice
        as many with steps.
      group: m, the size of the smallest group of similar clients that should not mix with others.
        It sets alpha for cohorts of any size, see `simplex.alpha_for_groups`. None: as above.
      alpha_form: the term that alpha multiplies: the one with the sizes ("code", as in the authors'
        code), or the one with the similarities ("paper", (4)).
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
      parts: each layer, such as each adapter of `jaxfl.lora`, has a quadratic program and weights
        of its own, not the paper's.
      sketch: d, the number of floats that stand for a model when models are compared, not the
        paper's: the similarities of a large cohort are those of random projections, see
        `kernels.sketch`. A cosine has an error of about 1 / sqrt(d) at most. None: models are
        compared exactly.
      snap: cosines above this number count as 1, as in the authors' code. None: no cosine does.
      prior: p in (4): each client's fraction of the data ("size"), or 1 / M ("equal", Table 9).
      solver: the solver of (4): an exact "projection"; "jaxopt", to compare with, which has no
        derivative; with "none" the similarities are the weights (Table 8).
      cap: the largest weight of an edge, one number or [C, C].

    Raises:
      InputError: a cap is given, but no program is solved; alpha is given in two ways;
        alpha is measured and an option is given that it does not have; each layer has weights of
        its own, and layers to compare are given; or sketches are to have distances of measure l1,
        which they do not keep, or a measure of one's own.

    Differs: (4) is solved exactly. With the anchor "approx" the aggregate is divided by its norm,
    so that `lam` means the same as with "cosine".

    Example:
      >>> state = initial_state(pfedgraph(task, anchor="approx"))
      >>> state.clients.memory.anchor.shape
      (4,)
    """
    check(
        cap is None or solver != "none",
        "similarities that are the weights have no cap: choose solver=projection, or no cap",
    )
    check(
        group is None or (alpha is None and alpha_form == "code"),
        "group sets alpha: give group=M or alpha=NUMBER with alpha_form=..., not both",
    )
    measured = isinstance(alpha, str)
    balance = None if isinstance(alpha, str) else alpha
    others = (alpha_form, similarity, measure, snap, prior, solver, sketch)
    defaults = ("code", "delta", "cosine", 0.9, "size", "projection", None)
    check(
        not measured or (others == defaults and cap is None and not parts),
        "alpha=measured compares distances and asks for no other option of the quadratic program: "
        "leave alpha_form, similarity, measure, snap, prior, solver, sketch, parts and cap",
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
    loss = data_loss(task.problem)

    def objective(params: Params, batch: Dataset, aligned: tuple, key: PRNGKey):
        centre, factor = aligned
        value, aux = loss(params, batch, None, key)
        distance = misalignment(trainable(params), trainable(centre), factor, anchor)
        return value + lam / 2 * distance, aux

    fit = task.trainer(objective)

    def graph(
        key: PRNGKey, leaves: Params, sizes: Array, ids: Array, reported: Array
    ) -> Float[Array, "m m"]:
        if sketch is not None:
            leaves = sketches(stream(key, "server"), leaves, sketch)
        caps = jnp.asarray(cap)[ids][:, ids] if getattr(cap, "ndim", 0) else cap
        # A client that has not reported is in nobody's program: the others share its weight by (4).
        scores = jnp.where(reported[None], similarities(leaves, measure, snap), -LARGEST_SQUARE)
        strength = balance if group is None else alpha_for_groups(scores, group, reported)
        return collaboration_rows(
            scores,
            size_weights(sizes * reported),
            strength,
            alpha_form,
            solver,
            caps,
        )

    def init(key: PRNGKey, train: Dataset) -> tuple[Memory, ServerState]:
        model = task.problem.init(key)
        clients = train.mask.shape[0]
        stacked = tree.broadcast(model, clients)
        unaligned = jnp.zeros(clients)
        if anchor == "cosine":
            unaligned = tree.zeros_like(stacked)
        return Memory(stacked, unaligned), ServerState(model if similarity == "delta" else ())

    def client(
        key: PRNGKey, memory: Memory, down: Down, cohort: Cohort
    ) -> tuple[Memory, Up | tuple[Up, Up], Report]:
        start, aligned = memory
        centre = (aligned, jnp.ones(cohort.ids.size)) if anchor == "cosine" else memory
        if not measured:
            trained, up, report = train_and_send(fit, key, start, centre, cohort)
            return Memory(trained, aligned), up, report
        first, second = (cohort._replace(train=half) for half in halves(cohort.train))
        one = fit(stream(key, "fit"), start, centre, first)
        other = fit(stream(key, "second_fit"), start, centre, second)
        trained = midpoint(one.params, other.params)
        report = Report((one.loss + other.loss) / 2, one.batches + other.batches, trained)
        return Memory(trained, aligned), (Up(one.params, start), Up(other.params, start)), report

    def server(key: PRNGKey, state: ServerState, uploads: Any) -> Outcome:
        if not measured:
            ids, sizes, reported, received, *_ = uploads
            # (4): the quadratic program gives a row of weights for each client.
            sizes = sizes if prior == "size" else reported
            features = received
            if similarity == "delta":
                features = tree.subtract(received, state.server)
            compared = {"": tree.select(features, "" if layers is None else layers)}
            rows = {
                part: graph(key, leaves, sizes, ids, reported)
                for part, leaves in (by_layer(features) if parts else compared).items()
            }
        else:
            one, other = uploads
            reported = other.reported & one.reported
            predicate = "" if layers is None else layers
            first, second = (tree.select(each.received, predicate) for each in uploads)
            rows = {"": measured_rows(first, second, reported)}
            received = midpoint(one.received, other.received)
        edges = {part: task.keep_edges(isolate(each, reported)) for part, each in rows.items()}
        kept = {part: each.rows for part, each in edges.items()}
        weights = {part: each.weights for part, each in edges.items()}
        aggregate = partial(mix_layers, kept) if parts else partial(mix, kept[""])
        offer = (aggregate(received),)
        if anchor == "cosine":
            # (3): the anchor of the regulariser in the next round.
            offer += (aggregate(tree.scale(received, inverse_norms(received))),)
        return Outcome(state, Down(each=offer), weights if parts else weights[""])

    def take(
        key: PRNGKey, memory: Memory, down: Down, cohort: Cohort
    ) -> tuple[Memory, None, Report]:
        # The aggregate of each client, from which it trains in the next round.
        model, accepted = task.accept(memory.model, down.each[0], cohort)
        aligned = inverse_norms(model) if anchor == "approx" else jnp.ones(cohort.ids.size)
        if anchor == "cosine":
            alone = tree.scale(model, inverse_norms(model))
            aligned = tree.choose(accepted, down.each[1], alone)
        return Memory(model, aligned), None, Report(accepted=accepted)

    def deploy(memory: Memory, down: Down, cohort: Cohort) -> Params:
        return memory.model

    return compose(task, Wire(init, (Exchange(client, server), Exchange(take)), deploy))
