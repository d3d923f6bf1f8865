"""pFedGraph (Ye et al., "Personalized Federated Learning with Inferred Collaboration Graphs", ICML 2023)."""

from collections.abc import Callable
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxfl import tree
from jaxfl.errors import check, check_positive
from jaxfl.kernels.mixing import mix, size_weights
from jaxfl.kernels.similarity import cosine, inverse_norms
from jaxfl.kernels.simplex import collaboration_rows
from jaxfl.types import Algorithm, Cohort, Dataset, Info, Params, PRNGKey, Scalar, State, Task


class Client(NamedTuple):
    """What is kept of each client."""

    model: Params  # [C, ...] the aggregate that it deploys and starts from
    anchor: Params  # the normalised aggregate [C, ...], (3); "approx": one over the model's length [C]; first zero


def pfedgraph(
    task: Task,
    *,
    alpha: Scalar | None = None,
    alpha_form: Literal["code", "paper"] = "code",
    lam: Scalar = 0.01,
    anchor: Literal["cosine", "approx"] = "cosine",
    similarity: Literal["delta", "raw"] = "delta",
    layers: str | Callable[[str], bool] = "",
    snap: Scalar | None = 0.9,
    solver: Literal["projection", "jaxopt"] = "projection",
    cap: Scalar | None = None,
) -> Algorithm:
    """Each client receives its own mixture; the weights come from model similarity and data size (Algorithm 1).

    State: clients = `Client`; server = the initial model if differences to it are compared, else nothing.

    Args:
      task: the model and its training.
      alpha: balance of data size and similarity, see `kernels.simplex`. None: .08 M ("code"), or .8 ("paper").
      alpha_form: which term alpha multiplies, the size ("code", as the authors' code) or the similarity ("paper", (4)).
      lam: strength of the regulariser that aligns a client with its aggregate, (3); negative: as the authors' code.
      anchor: align with the normalised aggregate, sent beside the aggregate ("cosine"), or with the aggregate itself.
      similarity: cosine of the differences to the initial model ("delta", appendix C.1.4), or of the models.
      layers: those that are compared: a regular expression to find in their paths, or a predicate; "" is all.
      snap: cosines above it count as 1, as in the authors' code; None for never.
      solver: of (4); "jaxopt" also takes `cap`.
      cap: the largest weight of an edge, a number or [C, C].

    Differs: (4) is solved exactly, where the authors call a QP solver. In the "approx" variant the aggregate is
    normalised before it is compared, so that `lam` means the same in both.
    """
    check(cap is None or solver == "jaxopt", "the exact projection takes no cap: choose solver=jaxopt, or no cap")
    check_positive(alpha=alpha, cap=cap)

    def objective(params: Params, batch: Dataset, aggregate: Params, key: PRNGKey):
        loss, aux = task.loss(params, batch, None, key)
        length = jnp.sqrt(jnp.maximum(tree.dot(params, params), 1e-12))
        return loss - lam / 2 * tree.dot(params, aggregate) / length, aux

    fit = task.trainer(objective)

    def graph(received: Params, initial: Params, share: Float[Array, "m"], ids: Array) -> Float[Array, "m m"]:
        compared = tree.subtract(received, initial) if similarity == "delta" else received
        cosines = cosine(tree.select(compared, layers))
        if snap is not None:
            cosines = jnp.where(cosines > snap, 1.0, cosines)
        caps = jnp.asarray(1.0 if cap is None else cap)
        caps = caps[ids][:, ids] if caps.ndim else caps
        return collaboration_rows(cosines, share, alpha, alpha_form, caps if solver == "jaxopt" else None)

    def init(key: PRNGKey, train: Dataset) -> State:
        model, clients = task.init(key), train.mask.shape[0]
        stacked = tree.broadcast(model, clients)
        unaligned = jax.tree.map(jnp.zeros_like, stacked) if anchor == "cosine" else jnp.zeros(clients)
        return State(Client(stacked, unaligned), model if similarity == "delta" else ())

    def round(key: PRNGKey, state: State, cohort: Cohort) -> tuple[State, Info]:
        fit_key, uplink_key = jax.random.split(key)
        start, aligned = state.clients
        aggregate = aligned if anchor == "cosine" else tree.scale(start, aligned)
        trained, loss = fit(fit_key, start, aggregate, cohort)
        received = task.uplink(uplink_key, start, trained, cohort.ids)
        weights = graph(received, state.server, size_weights(cohort.sizes), cohort.ids)
        model = mix(weights, received)
        unit = tree.scale(received, inverse_norms(received))
        aligned = mix(weights, unit) if anchor == "cosine" else inverse_norms(model)
        up = jnp.full_like(cohort.ids, tree.size(model) // loss.size)
        down = 2 * up if anchor == "cosine" else up
        return State(Client(model, aligned), state.server), Info(loss, weights, up, down)

    def models(state: State, ids):
        return tree.take(state.clients.model, ids)

    return Algorithm(init, round, models, task.apply)
