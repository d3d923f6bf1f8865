"""pFedGAT: the server learns graph attention from the clients' losses."""

from typing import Annotated, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxfl import tree
from jaxfl.kernels.attention import attention_weights, init_attention, layer_norm
from jaxfl.kernels.mixing import disturbance, isolate, keep_own, mix
from jaxfl.kernels.similarity import gram
from jaxfl.objectives import data_loss
from jaxfl.options import COUNT, POSITIVE
from jaxfl.papers import Paper
from jaxfl.registry import method
from jaxfl.skeleton import train_and_upload
from jaxfl.streams import stream
from jaxfl.types import Algorithm, Cohort, Dataset, Info, Params, PRNGKey, Scalar, State, Task


@method(
    title="pFedGAT",
    paper=Paper(
        authors="Zhou, Ziran and Gao, Guanyu and Wu, Xiaohu and Lyu, Yan",
        title="Personalized Federated Learning via Learning Dynamic Graphs",
        venue="",
        year=2025,
        link="https://arxiv.org/abs/2503.05474",
    ),
    personal="the mixture of models",
    sends="its model, and an answer to its mixture",
    defaults="the paper; width is ours",
    offers_mixture=True,
    separating={"feature": "round", "attention": "dot", "eta": 0.1},
    turn_first="feature=round attention=dot eta=0.1: the defaults mix nearly evenly",
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
    """Each client receives its own mixture of models, with weights from learned graph attention.

    State: clients = (the mixture, the logits of its weights by client id [C, C] if `attention` is
    "free"); server = (W and a, the initial model if `feature` is "update"). Metrics: `feedback`,
    the mean of the clients' validation losses at their mixtures; `entropy`, the mean entropy of a
    row of the weights.

    Args:
      task: the model and its training.
      attention: the score of a pair of models, see `kernels.attention`. With "free" there is no
        attention, and the weights themselves are learned (Table 4).
      feature: what is compared: the models ("weights"), their differences from the initial model
        ("update"), or their updates in this round ("round").
      heads: H. W has H d' D floats (15 MiB for LeNet), with "gatv2" and "dot" twice as many, and
        its gradient has as many.
      width: d'.
      slope: of the LeakyReLU.
      eta: learning rate of W and a, trained by SGD on the sum of the clients' losses, (9) and (10).
      normalised: scale features to length 1, not to sqrt(D). A step on W then changes its products
        with features by the order of eta, not of D eta.
      wire: what a client sends after it has received its mixture: the gradient of its loss, through
        the uplink ("gradient"); the products of that gradient with all models, which the server
        sends it ("inner"); or two losses, at mixtures with disturbed weights ("scalars").
      radius: M times the disturbance of a weight, with "scalars". The estimate of dL/dR is noisy,
        with a variance of order M.

    Differs: in the paper a client sends only its loss, from which (10) cannot be computed; hence
    `wire`. Losses are those of validation data, not of the test set; a client without validation
    data has no loss. LayerNorm has no parameters. The paper gives neither d' nor the initial W and
    a.

    Example:
      >>> _, info = one_round(pfedgat(task, heads=2))
      >>> sorted(info.metrics)
      ['entropy', 'feedback']
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

    def ask_clients(
        key: PRNGKey, weights: Float[Array, "m m"], received: Params, cohort: Cohort
    ) -> tuple[Float[Array, "m"], Float[Array, "m m"], Array | int]:
        """The losses L at the mixtures [M], dL_i / dR_ij [M, M], and the clients' batches [M]."""
        M = cohort.ids.size
        evaluate_key = stream(key, "evaluate")
        if wire == "scalars":
            # Losses at the weights plus and minus a random disturbance.
            step = disturbance(stream(key, "disturb"), M, radius / M)
            above = evaluate(evaluate_key, mix(weights + step, received), cohort.val, cohort.ids)
            below = evaluate(evaluate_key, mix(weights - step, received), cohort.val, cohort.ids)
            derivatives = ((above - below) / 2)[:, None] * step / (radius / M) ** 2
            return (above + below) / 2, derivatives, 0
        # By the chain rule, dL_i / dR_ij is the product of the gradient at mixture i with model j.
        answer = gradient(evaluate_key, mix(weights, received), cohort.val, cohort.ids)
        grads = answer.grads
        if wire == "gradient":
            zero = jax.tree.map(jnp.zeros_like, grads)
            grads, _ = task.upload(stream(key, "second_upload"), zero, grads, cohort.ids)
        return answer.loss, gram(grads, received), answer.batches

    def round(key: PRNGKey, state: State, cohort: Cohort) -> tuple[State, Info]:
        start, logits = state.clients
        learned, initial = state.server
        M = cohort.ids.size
        trained, received, info = train_and_upload(task, fit, key, start, None, cohort)
        D = tree.size(received) // M
        compared = compare(received, start, initial)

        # (3) to (7): mixing weights R of the received models.
        def weigh(learned, logits) -> Float[Array, "m m"]:
            if score is None:
                rows = jax.nn.softmax(logits[:, cohort.ids])
            else:
                features = layer_norm(compared, unit=normalised)
                rows = attention_weights(learned, features, score, slope)
            return isolate(rows, info.reported)

        weights, pull_back = jax.vjp(weigh, learned, logits)

        # The clients' losses at their mixtures, and the derivatives with respect to R.
        losses, derivatives, more_batches = ask_clients(key, weights, received, cohort)

        # (9) and (10): a step of SGD. Derivatives that are NaN or inf count as 0.
        grads = pull_back(jnp.where(jnp.isfinite(derivatives), derivatives, 0))
        learned, logits = jax.tree.map(lambda x, g: x - eta * g, (learned, logits), grads)

        # (8): each client's mixture.
        model, accepted = task.accept(trained, mix(weights, received), cohort)
        weights = keep_own(weights, accepted)
        up = {"gradient": 2 * D, "inner": D + M, "scalars": D + 2}[wire]
        down = {"gradient": D, "inner": M * D + M, "scalars": 2 * D}[wire]
        # A client without validation data has no loss.
        known = (cohort.val.mask > 0).any(axis=1) & jnp.isfinite(losses)
        feedback = jnp.sum(jnp.where(known, losses, 0.0)) / jnp.maximum(known.sum(), 1)
        entropy = jax.scipy.special.entr(weights).sum(axis=1).mean()
        info = info._replace(
            weights=weights,
            up=jnp.full_like(info.up, up),
            down=jnp.full_like(info.down, down),
            batches=info.batches + more_batches,
            metrics={"feedback": feedback, "entropy": entropy},
        )
        return State((model, logits), (learned, initial)), info

    def models(state: State, cohort: Cohort) -> Params:
        return tree.take(state.clients[0], cohort.ids)

    return Algorithm(init, round, models, task.problem.apply, validates=True)
