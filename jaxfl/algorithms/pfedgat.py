"""pFedGAT: the server learns graph attention from the clients' losses."""

from typing import Annotated, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxfl.algorithms.steps.personal import models_in_state
from jaxfl.algorithms.steps.uploads import train_and_upload
from jaxfl.core import tree
from jaxfl.core.facts import method
from jaxfl.core.options import COUNT, POSITIVE
from jaxfl.core.papers import Paper
from jaxfl.core.streams import stream
from jaxfl.core.types import (
    Algorithm,
    Cohort,
    Dataset,
    Info,
    Params,
    PRNGKey,
    Scalar,
    State,
    Task,
)
from jaxfl.kernels.attention import attention_weights, init_attention, layer_norm
from jaxfl.kernels.mixing import disturbance, isolate, keep_own, mix
from jaxfl.kernels.similarity import gram
from jaxfl.training.objectives import data_loss


class Upload(NamedTuple):
    """A client's last upload, from which the server learns in its next round."""

    # [C, ...] the model
    model: Params
    # [C, ...] what the attention compared of it; nothing if that is the model
    inputs: Params
    # [C] whether there is one
    known: Bool[Array, "*c"]


class Client(NamedTuple):
    """The state of each client."""

    # [C, ...] the mixture, which the client deploys and from which it trains
    model: Params
    # [C, C] logits of its weights by client id if `attention` is "free"; otherwise nothing
    logits: Params
    # [C] its last upload if `wire` is "update"; otherwise nothing
    last: Params


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
    takes_top_edges=True,
    starts_from_server=False,
    separating={"feature": "round", "attention": "dot", "eta": 0.1},
    turn_first="feature=round attention=dot wire=update: the defaults mix nearly evenly",
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
    wire: Literal["gradient", "inner", "scalars", "update"] = "gradient",
    radius: Annotated[float, POSITIVE] = 0.1,
) -> Algorithm:
    """Each client receives its own mixture of models, with weights from learned graph attention.

    State: clients = `Client`; server = (W and a, the initial model if `feature` is "update").
    Metrics: `feedback`, the mean of the clients' validation losses at their mixtures, of their
    training losses if `wire` is "update"; `entropy`, the mean entropy of a row of the weights.

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
        sends it ("inner"); two losses, at mixtures with disturbed weights ("scalars"); or nothing
        ("update", see below).
      radius: M times the disturbance of a weight, with "scalars". The estimate of dL/dR is noisy,
        with a variance of order M.

    With `wire="update"`, which is not the paper's, clients send their models alone, and no
    validation data are needed. Local training moves a client from its mixture along the negative
    gradients of its loss. So start - trained, which the server has in the client's next round,
    stands for the gradient at the mixture, as in pFedHN (https://arxiv.org/abs/2103.04628), and its
    products with the last uploads of the cohort stand for dL_i / dR_ij. (9) and (10) are a step at
    the weights that the attention gives to these uploads, before it weighs the new ones. A
    difference is as large as the sum of a client's steps: eta is to be smaller with more steps.

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
            logits: Params = jnp.zeros((clients, clients))
        else:
            server_key = stream(key, "server")
            learned = init_attention(server_key, model, score, heads, width, unit=normalised)
            logits = ()
        stacked = tree.broadcast(model, clients)
        last: Params = ()
        if wire == "update":
            zero = jax.tree.map(jnp.zeros_like, stacked)
            last = Upload(stacked, () if feature == "weights" else zero, jnp.zeros(clients, bool))
        initial = model if feature == "update" else ()
        return State(Client(stacked, logits, last), (learned, initial))

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
        rows = task.keep_edges(weights).rows
        answer = gradient(evaluate_key, mix(rows, received), cohort.val, cohort.ids)
        grads = answer.grads
        if wire == "gradient":
            zero = jax.tree.map(jnp.zeros_like, grads)
            upload_key = stream(key, "second_upload")
            grads, _ = task.upload(upload_key, zero, grads, cohort.ids, cohort.lost)
        return answer.loss, gram(grads, received), answer.batches

    def round(key: PRNGKey, state: State, cohort: Cohort) -> tuple[State, Info]:
        start, logits, last = state.clients
        learned, initial = state.server
        M = cohort.ids.size
        trained, received, info = train_and_upload(task, fit, key, start, None, cohort)
        D = tree.size(received) // M
        inputs = compare(received, start, initial)

        # (3) to (7): mixing weights R of models.
        def weigh(learned, logits, inputs: Params, mask: Array) -> Float[Array, "m m"]:
            if score is None:
                rows = jax.nn.softmax(logits[:, cohort.ids])
            else:
                features = layer_norm(inputs, unit=normalised)
                rows = attention_weights(learned, features, score, slope)
            return task.keep_edges(isolate(rows, mask)).weights

        # The weights that the clients' answers are about, of these uploads or of the last ones.
        about = inputs
        mask = info.reported
        if wire == "update":
            about = last.model if feature == "weights" else last.inputs
            mask = last.known
        weights, pull_back = jax.vjp(
            lambda *arguments: weigh(*arguments, inputs=about, mask=mask), learned, logits
        )

        # The clients' losses at their mixtures, and the derivatives with respect to R.
        if wire == "update":
            drift = jax.tree.map(jnp.subtract, start, received)
            derivatives = jnp.where(last.known[:, None], gram(drift, last.model), 0.0)
            losses = info.loss
            more_batches = 0
        else:
            losses, derivatives, more_batches = ask_clients(key, weights, received, cohort)

        # (9) and (10): a step of SGD. Derivatives that are NaN or inf count as 0.
        grads = pull_back(jnp.where(jnp.isfinite(derivatives), derivatives, 0))
        learned, logits = jax.tree.map(lambda x, g: x - eta * g, (learned, logits), grads)
        if wire == "update":
            weights = weigh(learned, logits, inputs, info.reported)
            known = jnp.ones_like(last.known)
            last = Upload(received, () if feature == "weights" else inputs, known)

        # (8): each client's mixture.
        mixture = mix(task.keep_edges(weights).rows, received)
        model, accepted = task.accept(trained, mixture, cohort)
        weights = keep_own(weights, accepted)
        up = {"gradient": 2 * D, "inner": D + M, "scalars": D + 2, "update": D}[wire]
        down = {"gradient": D, "inner": M * D + M, "scalars": 2 * D, "update": D}[wire]
        # A client without the data of its loss has none.
        data = cohort.train if wire == "update" else cohort.val
        has_loss = (data.mask > 0).any(axis=1) & jnp.isfinite(losses)
        feedback = jnp.sum(jnp.where(has_loss, losses, 0.0)) / jnp.maximum(has_loss.sum(), 1)
        entropy = jax.scipy.special.entr(weights).sum(axis=1).mean()
        info = info._replace(
            weights=weights,
            up=jnp.full_like(info.up, up),
            down=jnp.full_like(info.down, down),
            batches=info.batches + more_batches,
            metrics={"feedback": feedback, "entropy": entropy},
        )
        return State(Client(model, logits, last), (learned, initial)), info

    return Algorithm(init, round, models_in_state, task.problem.apply, validates=wire != "update")
