"""pFedGAT (Zhou et al., "Personalized Federated Learning via Learning Dynamic Graphs", 2025)."""

from typing import Literal

import jax
import jax.numpy as jnp

from jaxfl import tree
from jaxfl.errors import check_positive
from jaxfl.kernels.attention import attention_weights, init_attention, layer_norm
from jaxfl.kernels.mixing import disturbance, isolate, mix
from jaxfl.kernels.similarity import gram
from jaxfl.types import Algorithm, Cohort, Dataset, Info, PRNGKey, Scalar, State, Task


def pfedgat(
    task: Task,
    *,
    attention: Literal["gat", "gatv2", "dot", "free"] = "gat",
    feature: Literal["weights", "update", "round"] = "weights",
    heads: int = 8,
    width: int = 8,
    slope: float = 0.2,
    eta: Scalar = 0.01,
    normalised: bool = False,
    wire: Literal["gradient", "inner", "scalars"] = "gradient",
    radius: float = 0.1,
) -> Algorithm:
    """Each client receives its own mixture; attention over the models learns the weights from the clients' losses.

    Personal is the mixture; a client sends its model, and what `wire` says. State: clients =
    (mixture, with "free" the logits of its weights by id [C, C]), server = (W and a, with "update"
    the initial model).

    Args:
      task: the model and its training.
      attention: scores pairs, see `kernels.attention`; "free" does not, the weights themselves are
        learned (Table 4).
      feature: what is compared: the models, their updates since the initial model, or those of this
        round.
      heads: H. W takes H d' D floats (LeNet: 15 MiB), with "gatv2" and "dot" twice that, and its
        gradient as much.
      width: d'.
      slope: of the LeakyReLU.
      eta: learning rate of W and a, SGD on the sum of the clients' losses, (9) and (10).
      normalised: features of length 1, not sqrt(D): a step on W then moves its products by eta and
        not by D eta.
      wire: a client's answer to its mixture: its loss's gradient, through the uplink ("gradient"),
        its products with all models, which it is sent ("inner"), or two losses, of mixtures
        disturbed both ways ("scalars").
      radius: M times the disturbance of a weight. Its estimate of dL/dR is noisy, with a variance
        of order M.

    Differs: a client's loss alone, as in the paper, does not give (10), hence `wire`. Losses are of
    validation data, not of the test set; a client without any has none. LayerNorm has no
    parameters; d' and the start are not given.
    """
    check_positive(heads=heads, width=width, radius=radius)
    fit, free = task.trainer(task.loss), attention == "free"

    def init(key: PRNGKey, train: Dataset) -> State:
        model, clients = task.init(key), train.mask.shape[0]
        key = jax.random.fold_in(key, 1)
        graph = () if free else init_attention(key, model, attention, heads, width, unit=normalised)
        stacked, logits = (
            tree.broadcast(model, clients),
            jnp.zeros((clients, clients)) if free else (),
        )
        return State((stacked, logits), (graph, model if feature == "update" else ()))

    def round(key: PRNGKey, state: State, cohort: Cohort) -> tuple[State, Info]:
        fit_key, uplink_key = jax.random.split(key)
        (start, logits), (graph, initial), M = *state, cohort.ids.size
        trained, loss = fit(fit_key, start, None, cohort)
        received, heard = task.uplink(uplink_key, start, trained, cohort.ids)
        base = {"update": tree.broadcast(initial, M), "round": start}.get(feature)
        compared = received if base is None else jax.tree.map(jnp.subtract, received, base)

        def weigh(graph, logits):  # -> [M, M]
            if free:
                return isolate(jax.nn.softmax(logits[:, cohort.ids]), heard)
            return isolate(
                attention_weights(graph, layer_norm(compared, unit=normalised), attention, slope),
                heard,
            )

        def ask(weights):  # the clients' losses at their mixtures [M], and the gradients [M, ...]
            return task.gradient(
                jax.random.fold_in(key, 2), mix(weights, received), cohort.val, cohort.ids
            )

        weights, backward = jax.vjp(weigh, graph, logits)
        if wire == "scalars":
            step = disturbance(jax.random.fold_in(key, 3), M, radius / M)
            (above, _), (below, _) = ask(weights + step), ask(weights - step)
            losses, slopes = (
                (above + below) / 2,
                ((above - below) / 2)[:, None] * step / (radius / M) ** 2,
            )
        else:
            losses, gradients = ask(weights)
            if wire == "gradient":
                nothing = jax.tree.map(jnp.zeros_like, gradients)
                gradients, _ = task.uplink(
                    jax.random.fold_in(uplink_key, 1), nothing, gradients, cohort.ids
                )
            slopes = gram(gradients, received)  # dL_i / dR_ij [M, M]
        changes = backward(
            jnp.where(jnp.isfinite(slopes), slopes, 0)
        )  # whose loss is no number teaches nothing
        graph, logits = jax.tree.map(lambda x, change: x - eta * change, (graph, logits), changes)
        model, D = mix(weights, received), tree.size(received) // M
        up, down = {"gradient": (2 * D, D), "inner": (D + M, M * D + M), "scalars": (D + 2, 2 * D)}[
            wire
        ]
        up, down = jnp.full_like(cohort.ids, up), jnp.full_like(cohort.ids, down)
        metrics = {
            "feedback": jnp.nanmean(losses),
            "entropy": jax.scipy.special.entr(weights).sum(axis=1).mean(),
        }
        batches = task.batches(cohort) + task.batches(
            cohort._replace(train=cohort.val), epochs=1
        ) * (wire != "scalars")
        return State((model, logits), (graph, initial)), Info(
            loss, weights, up, down, metrics, batches, heard=heard
        )

    def models(state: State, ids):
        return tree.take(state.clients[0], ids)

    return Algorithm(init, round, models, task.apply)
