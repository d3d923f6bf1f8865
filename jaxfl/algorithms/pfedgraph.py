"""pFedGraph: a collaboration graph found by a quadratic program."""

from typing import Annotated, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxfl import tree
from jaxfl.batch_statistics import parameters
from jaxfl.errors import check
from jaxfl.kernels.alignment import Alignment, misalignment
from jaxfl.kernels.mixing import isolate, keep_own, mix, size_weights
from jaxfl.kernels.similarity import LARGEST, Measure, inverse_norms, similarities
from jaxfl.kernels.simplex import Solver, alpha_for_groups, collaboration_rows
from jaxfl.objectives import data_loss
from jaxfl.options import COUNT, POSITIVE
from jaxfl.papers import Paper
from jaxfl.registry import method
from jaxfl.skeleton import train_and_upload
from jaxfl.types import Algorithm, Cohort, Dataset, Info, Params, PRNGKey, Scalar, State, Task


class Client(NamedTuple):
    """The state of each client."""

    # [C, ...] the aggregate, which the client deploys and from which it trains
    model: Params
    # with which the client aligns its model: the normalised aggregate of (3) [C, ...], or a factor
    # of `model` [C]; at first 0
    anchor: Params


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
    turn_first="lower alpha (try 0.2), or give group=2: a client then learns only from clients "
    "that are more similar to it",
)
def pfedgraph(
    task: Task,
    *,
    alpha: Annotated[Scalar | None, POSITIVE] = None,
    group: Annotated[int | None, COUNT] = None,
    alpha_form: Literal["code", "paper"] = "code",
    lam: Scalar = 0.01,
    anchor: Alignment = "cosine",
    similarity: Literal["delta", "raw"] = "delta",
    measure: Measure = "cosine",
    layers: tree.Layers | None = None,
    snap: Scalar | None = 0.9,
    prior: Literal["size", "equal"] = "size",
    solver: Solver = "projection",
    cap: Annotated[Scalar | None, POSITIVE] = None,
) -> Algorithm:
    """Each client receives its own mixture of models, weighted by similarity and by data size.

    State: clients = `Client`; server = the initial model if differences from it are compared,
    otherwise nothing.

    Args:
      task: the model and its training.
      alpha: balance of data size and similarity, see `kernels.simplex`. None: .08 M ("code"), or .8
        ("paper").
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
        lengths into account.
      layers: the layers that are compared: a regular expression to find in their paths, or a
        predicate. None: all layers.
      snap: cosines above this number count as 1, as in the authors' code. None: no cosine does.
      prior: p in (4): each client's fraction of the data ("size"), or 1 / M ("equal", Table 9).
      solver: the solver of (4). "jaxopt" allows a `cap`; with "none" the similarities are the
        weights (Table 8).
      cap: the largest weight of an edge, one number or [C, C].

    Raises:
      InputError: a cap is given, but the solver does not take one; or alpha is given in two ways.

    Differs: (4) is solved exactly. With the anchor "approx" the aggregate is divided by its norm,
    so that `lam` means the same as with "cosine".

    Example:
      >>> state = initial_state(pfedgraph(task, anchor="approx"))
      >>> state.clients.anchor.shape
      (4,)
    """
    check(
        cap is None or solver == "jaxopt",
        "only one solver takes a cap: choose solver=jaxopt, or no cap",
    )
    check(
        group is None or (alpha is None and alpha_form == "code"),
        "group sets alpha: give group=M or alpha=NUMBER with alpha_form=..., not both",
    )
    loss = data_loss(task.problem)

    def objective(params: Params, batch: Dataset, aligned: tuple, key: PRNGKey):
        centre, factor = aligned
        value, aux = loss(params, batch, None, key)
        apart = misalignment(parameters(params), parameters(centre), factor, anchor)
        return value + lam / 2 * apart, aux

    fit = task.trainer(objective)

    def graph(
        received: Params, initial: Params, sizes: Array, ids: Array, reported: Array
    ) -> Float[Array, "m m"]:
        compared = tree.subtract(received, initial) if similarity == "delta" else received
        chosen = tree.select(compared, "" if layers is None else layers)
        caps = jnp.asarray(cap)[ids][:, ids] if getattr(cap, "ndim", 0) else cap
        # A client that has not reported is in nobody's program: the others share its weight by (4).
        near = jnp.where(reported[None], similarities(chosen, measure, snap), -LARGEST)
        strength = alpha if group is None else alpha_for_groups(near, reported, group)
        return collaboration_rows(
            near,
            size_weights(sizes * reported),
            strength,
            alpha_form,
            solver,
            caps,
        )

    def init(key: PRNGKey, train: Dataset) -> State:
        model = task.problem.init(key)
        clients = train.mask.shape[0]
        stacked = tree.broadcast(model, clients)
        unaligned = jnp.zeros(clients)
        if anchor == "cosine":
            unaligned = jax.tree.map(jnp.zeros_like, stacked)
        return State(Client(stacked, unaligned), model if similarity == "delta" else ())

    def round(key: PRNGKey, state: State, cohort: Cohort) -> tuple[State, Info]:
        start, aligned = state.clients
        ones = jnp.ones(cohort.ids.size)
        centre = (aligned, ones) if anchor == "cosine" else (start, aligned)
        trained, received, info = train_and_upload(task, fit, key, start, centre, cohort)
        # (4): the quadratic program gives a row of weights for each client.
        sizes = cohort.sizes if prior == "size" else info.reported
        rows = graph(received, state.server, sizes, cohort.ids, info.reported)
        weights = isolate(rows, info.reported)
        # The aggregate of each client, from which it trains in the next round.
        model, accepted = task.accept(trained, mix(weights, received), cohort)
        weights = keep_own(weights, accepted)
        # (3): the anchor of the regulariser in the next round.
        aligned = inverse_norms(model) if anchor == "approx" else ones
        if anchor == "cosine":
            aligned = mix(weights, tree.scale(received, inverse_norms(received)))
        info = info._replace(weights=weights, down=(1 + (anchor == "cosine")) * info.down)
        return State(Client(model, aligned), state.server), info

    def models(state: State, cohort: Cohort) -> Params:
        return tree.take(state.clients.model, cohort.ids)

    return Algorithm(init, round, models, task.problem.apply)
