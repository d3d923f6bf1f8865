"""pFedGAT: graph attention on the server, learned from the clients' losses."""

from typing import Annotated, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxfl import tree
from jaxfl.kernels.attention import attention_weights, init_attention, layer_norm
from jaxfl.kernels.mixing import disturbance, isolate, mix
from jaxfl.kernels.similarity import gram
from jaxfl.objectives import data_loss
from jaxfl.options import COUNT, POSITIVE
from jaxfl.registry import method
from jaxfl.skeleton import train_and_upload
from jaxfl.streams import stream
from jaxfl.types import Algorithm, Cohort, Dataset, Info, Params, PRNGKey, Scalar, State, Task


@method(
    title="pFedGAT",
    paper='Zhou et al., "Personalized Federated Learning via Learning Dynamic Graphs", 2025',
    link="https://arxiv.org/abs/2503.05474",
    personal="the mixture of models",
    sends="its model, and an answer to its mixture",
    separating={"feature": "round", "attention": "dot", "eta": 0.1},
)
def pfedgat(
    task: Task,
    *,
    attention: Literal["gat", "gatv2", "dot", "free"] = "gat",
    feature: Literal["weights", "update", "round"] = "weights",
    heads: Annotated[int, COUNT] = 8,
    width: Annotated[int, COUNT] = 8,
    slope: float = 0.2,
    eta: Scalar = 0.01,
    normalised: bool = False,
    wire: Literal["gradient", "inner", "scalars"] = "gradient",
    radius: Annotated[float, POSITIVE] = 0.1,
) -> Algorithm:
    """Each client receives a mixture of its own; attention over the models learns the weights.

    State: clients = (mixture, with "free" the logits of its weights by id [C, C]), server = (W and
    a, with "update" the initial model). Metrics: `feedback`, the clients' mean validation loss at
    their mixtures; `entropy`, mean over the rows of the weights.

    Args:
      task: the model and its training.
      attention: how pairs are scored, see `kernels.attention`; with "free" there is no attention,
        the weights themselves are learned (Table 4).
      feature: what is compared: the models, their updates since the initial model, or the updates
        of this round.
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
    parameters; the paper does not give d' and the start.
    """
    loss = data_loss(task.problem)
    fit = task.trainer(loss)
    gradient = task.gradient(loss)
    evaluate = task.evaluate(loss)
    score = None if attention == "free" else attention

    def init(key: PRNGKey, train: Dataset) -> State:
        model = task.problem.init(key)
        clients = train.mask.shape[0]
        if score is None:
            learned = ()
            logits = jnp.zeros((clients, clients))
        else:
            server_key = stream(key, "server")
            learned = init_attention(server_key, model, score, heads, width, unit=normalised)
            logits = ()
        initial = model if feature == "update" else ()
        return State((tree.broadcast(model, clients), logits), (learned, initial))

    def compare(received: Params, start: Params, initial: Params) -> Params:
        if feature == "weights":
            return received
        if feature == "update":
            return tree.subtract(received, initial)
        return jax.tree.map(jnp.subtract, received, start)

    def round(key: PRNGKey, state: State, cohort: Cohort) -> tuple[State, Info]:
        start, logits = state.clients
        learned, initial = state.server
        M = cohort.ids.size
        _, received, info = train_and_upload(task, fit, key, start, None, cohort)
        D = tree.size(received) // M
        compared = compare(received, start, initial)

        # (5) to (7): mixing weights of the received models.
        def weigh(learned, logits) -> Float[Array, "m m"]:
            if score is None:
                rows = jax.nn.softmax(logits[:, cohort.ids])
            else:
                features = layer_norm(compared, unit=normalised)
                rows = attention_weights(learned, features, score, slope)
            return isolate(rows, info.reported)

        weights, pull_back = jax.vjp(weigh, learned, logits)

        # The clients' losses at their mixtures, and dL_i / dR_ij [M, M].
        ask_key = stream(key, "evaluate")
        if wire == "scalars":
            step = disturbance(stream(key, "disturb"), M, radius / M)
            above = evaluate(ask_key, mix(weights + step, received), cohort.val, cohort.ids)
            below = evaluate(ask_key, mix(weights - step, received), cohort.val, cohort.ids)
            losses = (above + below) / 2
            derivatives = ((above - below) / 2)[:, None] * step / (radius / M) ** 2
        else:
            asked = gradient(ask_key, mix(weights, received), cohort.val, cohort.ids)
            losses = asked.loss
            answers = asked.grads
            if wire == "gradient":
                nothing = jax.tree.map(jnp.zeros_like, answers)
                answer_key = stream(key, "second_upload")
                answers, _ = task.upload(answer_key, nothing, answers, cohort.ids)
            derivatives = gram(answers, received)
            info = info._replace(batches=info.batches + asked.batches)

        # (9) and (10): a step of SGD. A client whose loss is NaN or inf teaches nothing.
        grads = pull_back(jnp.where(jnp.isfinite(derivatives), derivatives, 0))
        learned, logits = jax.tree.map(lambda x, g: x - eta * g, (learned, logits), grads)

        # (8): each client's mixture.
        model = mix(weights, received)
        up = {"gradient": 2 * D, "inner": D + M, "scalars": D + 2}[wire]
        down = {"gradient": D, "inner": M * D + M, "scalars": 2 * D}[wire]
        entropy = jax.scipy.special.entr(weights).sum(axis=1).mean()
        info = info._replace(
            weights=weights,
            up=jnp.full_like(info.up, up),
            down=jnp.full_like(info.down, down),
            metrics={"feedback": jnp.nanmean(losses), "entropy": entropy},
        )
        return State((model, logits), (learned, initial)), info

    def models(state: State, ids: Array) -> Params:
        return tree.take(state.clients[0], ids)

    return Algorithm(init, round, models, task.problem.apply)
