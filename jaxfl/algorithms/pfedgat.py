"""pFedGAT: the server learns graph attention from the clients' losses.

each round t:
  client i:  w_i = local training of F_i from x_i, and sends it
  server:    z_i = W LayerNorm(w_i); R_ij = softmax_j(LeakyReLU(a . [z_i, z_j]))   (3) to (7)
             x_i = sum_j R_ij w_j, and sends it                                             (8)
  client i:  g_i = the gradient of its validation loss at x_i, and sends it
  server:    W and a take a step down their gradients; dL / dR_ij = <g_i, w_j>     (9), (10)
client i deploys x_i.
"""

from collections.abc import Callable
from typing import Annotated, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from jaxfl.algorithms import steps
from jaxfl.core import tree
from jaxfl.core.facts import COUNT, POSITIVE, Paper, method
from jaxfl.core.messages import (
    Down,
    Exchange,
    Outcome,
    Report,
    ServerState,
    Turn,
    Up,
    Uploads,
    Wire,
)
from jaxfl.core.streams import stream
from jaxfl.core.types import Algorithm, Cohort, Dataset, Params, PRNGKey, Scalar, Task
from jaxfl.kernels import gram, isolate, mix
from jaxfl.kernels.attention import attention_weights, init_attention, layer_norm
from jaxfl.kernels.mixing import disturbance
from jaxfl.training import data_loss, deployed_losses


class Upload(NamedTuple):
    """A client's last upload, from which the server learns in its next round."""

    # [C, ...] the model
    model: Params
    # [C, ...] what the attention compared of it; nothing if that is the model
    inputs: Params
    # [C] whether there is one
    known: Bool[Array, "*c"]


class Record(NamedTuple):
    """What the server keeps for each client."""

    # [C, C] logits of its weights by client id if `attention` is "free"; otherwise nothing
    logits: PyTree
    # [C] its last upload if `wire` is "update"; otherwise nothing
    last: PyTree


def mean_loss(losses: Float[Array, "m"], data: Dataset) -> dict[str, Float[Array, ""]]:
    """`feedback`, to which a client without the data of its loss has none to add."""
    has_loss = (data.weights > 0).any(axis=1) & jnp.isfinite(losses)
    total = jnp.sum(jnp.where(has_loss, losses, 0.0))
    return {"feedback": total / jnp.maximum(has_loss.sum(), 1)}


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
    advice="feature=round attention=dot wire=update: the defaults mix nearly evenly",
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

    The equations, for one head; R is the mean over the heads:

    - (3) to (7): z_i = W LayerNorm(w_i) is the feature of client i, LeakyReLU(a . [z_i, z_j]) the
      score of a pair, and R_ij the softmax of the scores over j.

    - (8): client i receives sum_j R_ij w_j.

    - (9) and (10): W and a take a step down the gradient of L = sum_i L_i, where L_i is the loss of
      client i at its mixture. The derivative of L by R_ij is the product of the gradient of L_i at
      the mixture with w_j.

    State: memory = the mixture, from which a client trains; record = `Record`; server = (W and a,
    the initial model if `feature` is "update"). Metrics: `feedback`, the mean of the clients'
    validation losses at their mixtures, of their training losses if `wire` is "update"; `entropy`,
    the mean entropy of a row of the weights that the server gives.

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
    data has no loss. LayerNorm has no parameters. Gradients are of training mode,
    with dropout and the statistics of the batch. The paper gives neither d' nor the initial W and
    a.

    Example:
      >>> _, info = one_round(pfedgat(task, heads=2))
      >>> sorted(info.metrics)
      ['entropy', 'feedback']
    """
    loss = data_loss(task.problem)
    fit = task.trainer(loss)
    gradient = task.gradient(loss)
    losses = deployed_losses(task)
    score = None if attention == "free" else attention

    def init(key: PRNGKey, train: Dataset) -> tuple[Params, ServerState]:
        model = task.problem.init(key)
        clients = train.mask.shape[0]
        learned: PyTree = ()
        logits: PyTree = ()
        if score is None:
            logits = jnp.zeros((clients, clients))
        else:
            server_key = stream(key, "server")
            learned = init_attention(server_key, model, score, heads, width, unit=normalised)
        stacked = tree.broadcast(model, clients)
        last: PyTree = ()
        if wire == "update":
            zero = tree.zeros_like(stacked)
            last = Upload(stacked, () if feature == "weights" else zero, jnp.zeros(clients, bool))
        initial = model if feature == "update" else ()
        return stacked, ServerState((learned, initial), Record(logits, last))

    def client(key: PRNGKey, memory: Params, down: Down, cohort: Cohort) -> Turn[Params]:
        fitted = fit(stream(key, "fit"), memory, None, cohort)
        metrics = mean_loss(fitted.loss, cohort.train) if wire == "update" else {}
        return fitted.params, Up(fitted.params, memory), steps.report_of(fitted, metrics=metrics)

    def compare(uploads: Uploads, initial: Params) -> Params:
        if feature == "weights":
            return uploads.received
        if feature == "update":
            return tree.subtract(uploads.received, initial)
        return jax.tree.map(jnp.subtract, uploads.received, uploads.before)

    # (3) to (7): mixing weights R of models.
    def weigh(parameters: tuple, ids: Array, inputs: Params, mask: Array) -> Float[Array, "m m"]:
        learned, logits = parameters
        if score is None:
            rows = jax.nn.softmax(logits[:, ids])
        else:
            features = layer_norm(inputs, unit=normalised)
            rows = attention_weights(learned, features, score, slope)
        return task.keep_edges(isolate(rows, mask)).weights

    # (9) and (10): a step of SGD. Derivatives that are NaN or inf count as 0.
    def descend(
        parameters: tuple, pull_back: Callable, weights: Array, derivatives: Array
    ) -> tuple:
        finite = jnp.where(jnp.isfinite(derivatives), derivatives, 0)
        grads = pull_back(tree.cast_like(finite, weights))
        return jax.tree.map(lambda x, g: x - eta * g, parameters, grads)

    def server(key: PRNGKey, state: ServerState, uploads: Uploads) -> Outcome:
        (learned, initial), (logits, last), _ = state
        ids, reported, received = uploads.ids, uploads.reported, uploads.received
        inputs = compare(uploads, initial)
        # The weights that the clients' answers are about, of these uploads or of the last ones.
        about, mask = inputs, reported
        if wire == "update":
            about = last.model if feature == "weights" else last.inputs
            mask = last.known
        weights, pull_back = jax.vjp(
            lambda *arguments: weigh(arguments, ids, about, mask), learned, logits
        )
        memo: PyTree = (pull_back, weights, received)
        if wire == "update":
            drift = jax.tree.map(jnp.subtract, uploads.before, received)
            # Changes of statistics are no derivatives.
            products = gram(drift, last.model)
            derivatives = jnp.where(last.known[:, None], products, 0.0)
            learned, logits = descend((learned, logits), pull_back, weights, derivatives)
            weights = weigh((learned, logits), ids, inputs, reported)
            known = jnp.ones_like(last.known)
            last = Upload(received, () if feature == "weights" else inputs, known)
        # (8): each client's mixture.
        reply = Down(each=(mix(task.keep_edges(weights), received),))
        if wire == "inner":
            # Clients mix themselves.
            reply = Down(received, each=weights)
        if wire == "scalars":
            # Mixtures at the weights plus and minus a random disturbance.
            step = disturbance(stream(key, "disturb"), ids.size, radius / ids.size)
            both = (mix(weights + step, received), mix(weights - step, received))
            reply, memo = Down(each=(*reply.each, *both)), (pull_back, weights, step)
        entropy = jax.scipy.special.entr(weights).sum(axis=1).mean()
        state = ServerState((learned, initial), Record(logits, last), memo)
        return Outcome(state, reply, weights, {"entropy": entropy})

    def answer(key: PRNGKey, memory: Params, down: Down, cohort: Cohort) -> Turn[Params]:
        """From which the server learns how a client's loss depends on its weights."""
        if wire == "inner":
            mixture = mix(task.keep_edges(down.each), down.common)
        else:
            mixture, *both = down.each
        model, accepted = task.accept(memory, mixture, cohort)
        report = Report(accepted=accepted)
        if wire == "update":
            return model, None, report
        if wire == "scalars":
            above, below = (losses(models, cohort.val, cohort) for models in both)
            metrics = mean_loss((above + below) / 2, cohort.val)
            return model, Up((), (), (above, below)), report._replace(metrics=metrics)
        evaluate_key = stream(key, "evaluate")
        loss, grads, batches = gradient(evaluate_key, mixture, cohort.val, cohort.ids)
        report = report._replace(batches=batches, metrics=mean_loss(loss, cohort.val))
        if wire == "inner":
            return model, Up((), (), gram(grads, down.common)), report
        return model, Up(grads, tree.zeros_like(grads)), report

    def learn(key: PRNGKey, state: ServerState, uploads: Uploads) -> Outcome:
        (learned, initial), (logits, last), (pull_back, weights, kept) = state
        # By the chain rule, dL_i / dR_ij is the product of the gradient at mixture i with model j.
        if wire == "scalars":
            above, below = uploads.plain
            derivatives = ((above - below) / 2)[:, None] * kept / (radius / uploads.ids.size) ** 2
        else:
            derivatives = uploads.plain if wire == "inner" else gram(uploads.received, kept)
        learned, logits = descend((learned, logits), pull_back, weights, derivatives)
        return Outcome(ServerState((learned, initial), Record(logits, last)))

    update = wire == "update"
    exchanges = (Exchange(client, server), Exchange(answer, None if update else learn))
    return steps.compose(task, Wire(init, exchanges, steps.deploy_memory), validates=not update)
