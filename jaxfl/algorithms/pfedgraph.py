"""pFedGraph: a collaboration graph inferred by a quadratic program."""

from typing import Annotated, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxfl import tree
from jaxfl.errors import check
from jaxfl.kernels.alignment import Alignment, misalignment
from jaxfl.kernels.mixing import isolate, mix, size_weights
from jaxfl.kernels.similarity import Measure, inverse_norms, similarities
from jaxfl.kernels.simplex import Solver, collaboration_rows
from jaxfl.objectives import data_loss
from jaxfl.options import POSITIVE
from jaxfl.registry import method
from jaxfl.skeleton import train_and_upload
from jaxfl.types import Algorithm, Cohort, Dataset, Info, Params, PRNGKey, Scalar, State, Task


class Client(NamedTuple):
    """What is kept of each client."""

    # [C, ...] the aggregate that the client deploys and starts from
    model: Params
    # what it aligns with: the normalised aggregate [C, ...] (3), or a factor of `model` [C]; first 0
    anchor: Params


@method(
    title="pFedGraph",
    paper='Ye et al., "Personalized Federated Learning with Inferred Collaboration Graphs", ICML '
    "2023, Algorithm 1",
    link="https://proceedings.mlr.press/v202/ye23b.html",
    personal="the mixture of models",
    sends="its model",
)
def pfedgraph(
    task: Task,
    *,
    alpha: Annotated[Scalar | None, POSITIVE] = None,
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
    """Each client receives a mixture of its own, weighted by the similarity of models and by size.

    State: clients = `Client`; server = the initial model if it is needed.

    Args:
      task: the model and its training.
      alpha: balance of data size and similarity, see `kernels.simplex`. None: .08 M ("code"), or .8
        ("paper").
      alpha_form: which term alpha multiplies, the size ("code", as the authors' code) or the
        similarity ("paper", (4)).
      lam: strength of the regulariser that aligns a client with its aggregate, (3); negative: as
        the authors' code.
      anchor: the regulariser, see `kernels.alignment`; with "cosine" the server sends the
        normalised aggregate beside the aggregate.
      similarity: of the differences to the initial model ("delta", appendix C.1.4), or of the
        models.
      measure: of the similarity (section 4.5).
      layers: the layers that are compared: a regular expression to find in their paths, or a
        predicate; None: all.
      snap: cosines above it count as 1, as in the authors' code; None for never.
      prior: p of (4): the fractions of the data, or 1 / M for each (Table 9).
      solver: of (4); "jaxopt" also takes `cap`; "none": the similarities are the weights (Table 8).
      cap: the largest weight of an edge, a number or [C, C].

    Raises:
      InputError: a cap is given and the solver takes none.

    Differs: (4) is solved exactly. With "approx" the aggregate is normalised first, so that `lam`
    means the same in both.
    """
    check(
        cap is None or solver == "jaxopt",
        "only one solver takes a cap: choose solver=jaxopt, or no cap",
    )
    loss = data_loss(task.problem)

    def objective(params: Params, batch: Dataset, aligned: tuple, key: PRNGKey):
        centre, factor = aligned
        value, aux = loss(params, batch, None, key)
        return value + lam / 2 * misalignment(params, centre, factor, anchor), aux

    fit = task.trainer(objective)

    def graph(received: Params, initial: Params, sizes: Array, ids: Array) -> Float[Array, "m m"]:
        compared = tree.subtract(received, initial) if similarity == "delta" else received
        chosen = tree.select(compared, "" if layers is None else layers)
        caps = jnp.asarray(cap)[ids][:, ids] if getattr(cap, "ndim", 0) else cap
        return collaboration_rows(
            similarities(chosen, measure, snap),
            size_weights(sizes),
            alpha,
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
        _, received, info = train_and_upload(task, fit, key, start, centre, cohort)
        # (4): a row of weights for each client.
        sizes = cohort.sizes if prior == "size" else info.reported
        rows = graph(received, state.server, sizes, cohort.ids)
        weights = isolate(rows, info.reported)
        # Each client's aggregate.
        model = mix(weights, received)
        # What (3) aligns with in the next round.
        aligned = inverse_norms(model) if anchor == "approx" else ones
        if anchor == "cosine":
            aligned = mix(weights, tree.scale(received, inverse_norms(received)))
        info = info._replace(weights=weights, down=(1 + (anchor == "cosine")) * info.down)
        return State(Client(model, aligned), state.server), info

    def models(state: State, ids: Array) -> Params:
        return tree.take(state.clients.model, ids)

    return Algorithm(init, round, models, task.problem.apply)
