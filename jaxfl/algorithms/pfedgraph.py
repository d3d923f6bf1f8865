"""pFedGraph (Ye et al., "Personalized Federated Learning with Inferred Collaboration Graphs", ICML 2023)."""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxfl import tree
from jaxfl.errors import check, check_positive
from jaxfl.kernels.alignment import Alignment, misalignment
from jaxfl.kernels.mixing import isolate, mix, size_weights
from jaxfl.kernels.similarity import Measure, inverse_norms, similarities
from jaxfl.kernels.simplex import Solver, collaboration_rows
from jaxfl.types import Algorithm, Cohort, Dataset, Info, Params, PRNGKey, Scalar, State, Task


class Client(NamedTuple):
    """What is kept of each client."""

    model: Params  # [C, ...] the aggregate that it deploys and starts from
    # to align with: normalised aggregate [C, ...] (3), or factor of `model` [C]; first zero
    anchor: Params


def pfedgraph(
    task: Task,
    *,
    alpha: Scalar | None = None,
    alpha_form: Literal["code", "paper"] = "code",
    lam: Scalar = 0.01,
    anchor: Alignment = "cosine",
    similarity: Literal["delta", "raw"] = "delta",
    measure: Measure = "cosine",
    layers: tree.Layers = "",
    snap: Scalar | None = 0.9,
    prior: Literal["size", "equal"] = "size",
    solver: Solver = "projection",
    cap: Scalar | None = None,
) -> Algorithm:
    """Each client receives its own mixture; the weights come from model similarity and data size (Algorithm 1).

    Personal is the mixture; a client sends its model. State: clients = `Client`; server = the
    initial model if needed.

    Args:
      task: the model and its training.
      alpha: balance of data size and similarity, see `kernels.simplex`. None: .08 M ("code"), or .8
        ("paper").
      alpha_form: which term alpha multiplies, the size ("code", as the authors' code) or the
        similarity ("paper", (4)).
      lam: strength of the regulariser that aligns a client with its aggregate, (3); negative: as
        the authors' code.
      anchor: the regulariser, see `kernels.alignment`; "cosine" has the normalised aggregate sent
        beside the aggregate.
      similarity: of the differences to the initial model ("delta", appendix C.1.4), or of the
        models.
      measure: of the similarity (section 4.5).
      layers: those that are compared: a regular expression to find in their paths, or a predicate;
        "" is all.
      snap: cosines above it count as 1, as in the authors' code; None for never.
      prior: p of (4): shares of the data, or 1 / M for each (Table 9).
      solver: of (4); "jaxopt" also takes `cap`; "none": the similarities are the weights (Table 8).
      cap: the largest weight of an edge, a number or [C, C].

    Differs: (4) is solved exactly; in "approx" the aggregate is normalised first, so that `lam`
    means the same in both.
    """
    check(
        cap is None or solver == "jaxopt",
        "only one solver takes a cap: choose solver=jaxopt, or no cap",
    )
    check_positive(alpha=alpha, cap=cap)

    def objective(params: Params, batch: Dataset, aligned: Params, key: PRNGKey):
        loss, aux = task.loss(params, batch, None, key)
        return loss + lam / 2 * misalignment(params, *aligned, anchor), aux

    fit = task.trainer(objective)

    def graph(received: Params, initial: Params, sizes: Array, ids: Array) -> Float[Array, "m m"]:
        compared = tree.subtract(received, initial) if similarity == "delta" else received
        alike = similarities(tree.select(compared, layers), measure, snap)
        caps = jnp.asarray(cap)[ids][:, ids] if getattr(cap, "ndim", 0) else cap
        return collaboration_rows(alike, size_weights(sizes), alpha, alpha_form, solver, caps)

    def init(key: PRNGKey, train: Dataset) -> State:
        model, clients = task.init(key), train.mask.shape[0]
        stacked = tree.broadcast(model, clients)
        unaligned = (
            jax.tree.map(jnp.zeros_like, stacked) if anchor == "cosine" else jnp.zeros(clients)
        )
        return State(Client(stacked, unaligned), model if similarity == "delta" else ())

    def round(key: PRNGKey, state: State, cohort: Cohort) -> tuple[State, Info]:
        fit_key, uplink_key = jax.random.split(key)
        start, aligned = state.clients
        ones = jnp.ones(cohort.ids.size)
        trained, loss = fit(
            fit_key, start, (aligned, ones) if anchor == "cosine" else (start, aligned), cohort
        )
        received, heard = task.uplink(uplink_key, start, trained, cohort.ids)
        weights = isolate(
            graph(received, state.server, cohort.sizes if prior == "size" else heard, cohort.ids),
            heard,
        )
        model = mix(weights, received)
        aligned = inverse_norms(model) if anchor == "approx" else ones
        if anchor == "cosine":
            aligned = mix(weights, tree.scale(received, inverse_norms(received)))
        up = jnp.full_like(cohort.ids, tree.size(model) // loss.size)
        info = Info(loss, weights, up, (1 + (anchor == "cosine")) * up, heard=heard)
        return State(Client(model, aligned), state.server), info

    def models(state: State, ids):
        return tree.take(state.clients.model, ids)

    return Algorithm(init, round, models, task.apply)
