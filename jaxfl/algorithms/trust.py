"""Trust: weights by how similar models are, how well they do elsewhere, or how they predict.

each round t:
  client i:  w_i = local training of F_i from x_i, and sends it
             s_ij = cos(w_i, w_j), or minus the loss of w_j on the validation examples of
             client i, or minus the distance of the predictions of w_i and w_j on them
             x_i = sum_j r_ij w_j, r_ij = softmax_j(s_ij / temperature)
client i deploys x_i.
"""

from collections.abc import Callable
from typing import Annotated, Literal

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, PyTree

from jaxfl.algorithms import steps
from jaxfl.core import tree
from jaxfl.core.edges import Edges
from jaxfl.core.errors import check
from jaxfl.core.facts import POSITIVE, Paper, method
from jaxfl.core.messages import Down, Exchange, Outcome, Report, ServerState, Turn, Uploads, Wire
from jaxfl.core.types import Algorithm, Cohort, Dataset, Params, PRNGKey, Scalar, Task
from jaxfl.kernels import cosine, isolate, mix
from jaxfl.kernels.similarity import LARGEST_SQUARE
from jaxfl.training import completion, data_loss, deployed_losses, masked_mean

# (model [M, ...], other [M, ...], cohort) -> [M]
Compare = Callable[[Params, Params, Cohort], Float[Array, "m"]]


def prediction_distances(task: Task) -> Compare:
    """How far the predictions of two deployed models are from each other.

    Returns:
      (model [M, ...], other [M, ...], cohort) -> the sum of the absolute differences of their
      outputs, its mean over the validation inputs of each client [M]; 0 for a client without any.

    Example:
      >>> models = tree.broadcast(task.problem.init(jax.random.key(0)), 4)
      >>> prediction_distances(task)(models, models, cohort).tolist()
      [0.0, 0.0, 0.0, 0.0]
    """

    def distance(pair: PyTree, batch: Dataset, anchor: PyTree, key: PRNGKey):
        one, other = (task.problem.apply(model, batch.x) for model in pair)

        def sums(one: Array, other: Array) -> Array:
            gap = jnp.abs(tree.wide(one) - tree.wide(other))
            return gap.reshape(len(gap), -1).sum(axis=1)

        each = jax.tree.leaves(jax.tree.map(sums, one, other))
        mean = masked_mean(jnp.sum(jnp.stack(each), axis=0), batch.weights)
        return mean, mean

    evaluate = task.evaluate(distance)
    complete = completion(task.problem)

    def distances(model: Params, other: Params, cohort: Cohort) -> Float[Array, "m"]:
        pair = complete(model, cohort), complete(other, cohort)
        # Nothing is random in evaluation, so any key will do.
        return evaluate(jax.random.key(0), pair, cohort.val, cohort.ids)

    return distances


@method(
    title="Trust-weighted aggregation",
    paper=Paper(
        authors="Wagner, Nicolas and Fan, Dongyang and Jaggi, Martin",
        title="Personalized Collaborative Fine-Tuning for On-Device Large Language Models",
        venue="COLM",
        year=2024,
        link="https://arxiv.org/abs/2404.09753",
    ),
    personal="the mixture of models",
    sends="its model",
    defaults="the authors' code",
    offers_mixture=True,
    takes_top_edges=True,
    starts_from_server=False,
    separating={"similarity": "delta", "temperature": 0.1},
    advice="give similarity=delta and a low temperature (try 0.1), or by=validation: the "
    "defaults mix nearly evenly",
)
def trust(
    task: Task,
    *,
    by: Literal["weights", "validation", "predictions"] = "weights",
    temperature: Annotated[Scalar | None, POSITIVE] = None,
    similarity: Literal["raw", "delta"] = "raw",
    parts: bool = False,
) -> Algorithm:
    """Each client mixes all models, with weights by its trust in each of the other clients.

    A client trains from its own model. A row of the trust matrix is a softmax of scores over the
    clients, the client itself included, and the client's new model is the mixture with these
    weights. The matrix is made anew in each round, from the models of the round alone. The scores
    are one of three:

    - by weights: the cosine of the two clients' models. The server mixes.
    - by validation: minus the loss of the other's model on the client's validation examples.
    - by predictions: minus the distance of the two models' predictions, the sum of the absolute
      differences of their outputs, as a share of the client's distances from all others.

    In the last two the server sends all models to all clients, which mix them themselves; a client
    without validation examples keeps the model that it trained.

    State: memory = each client's model; server = the initial model if differences from it are
    compared, otherwise nothing. Weights: one matrix, or one for each layer.

    Args:
      task: the model and its training.
      by: of what the scores are made.
      temperature: by which the scores are divided. None: 1, and .1 by predictions, as in the
        authors' code.
      similarity: by weights, "raw" compares the models, as the authors' code does with adapters;
        "delta" the differences from the initial model, which all clients share.
      parts: by weights, each layer, such as each adapter of `jaxfl.lora`, has cosines and weights
        of its own, not the paper's.

    Raises:
      InputError: an option of the comparison of weights is given, and something else is compared.

    Differs: the paper was not at hand, and the formulas are those of its authors' code. The cosine
    is that of all parameters of a model or of a layer; the code has the mean of the cosines of all
    rows of the adapters' matrices. By validation, the code has the perplexity, the exponential of
    the loss, in the place of the loss. By predictions, the code compares all models on batches of a
    reference set that all clients share, of which it takes the 100 largest logits at each place;
    there is no such set here, so each client compares all outputs on its own validation inputs,
    and the matrix need not be symmetric. Mixing begins in the first round; in the authors'
    experiments after a fifth of the training. Their variants with the k largest weights of a row
    are those of `top_edges`.

    Example:
      >>> _, info = one_round(trust(task, parts=True))
      >>> sorted(info.weights)
      ['Dense_0', 'Dense_1']
      >>> one_round(trust(task, by="validation"))[1].weights.shape
      (4, 4)
    """
    check(
        by == "weights" or (similarity == "raw" and not parts),
        f"by={by} compares whole models by what they predict, and similarity and parts are options "
        "of the comparison of weights: leave them out, or choose by=weights",
    )
    default = 0.1 if by == "predictions" else 1.0
    scale = default if temperature is None else temperature

    def rows(scores: Float[Array, "m n"], reported: Bool[Array, "n"]) -> Float[Array, "m n"]:
        """The softmax of the scores; who has not reported is trusted by nobody."""
        scores = jnp.where(reported[None], scores, -LARGEST_SQUARE)
        return jax.nn.softmax((scores - scores.max(axis=1, keepdims=True)) / scale, axis=1)

    def edges_of(stacked: Params, reported: Bool[Array, "m"]) -> Edges:
        return task.keep_edges(isolate(rows(cosine(stacked), reported), reported))

    fit = task.trainer(data_loss(task.problem))

    def init(key: PRNGKey, train: Dataset) -> tuple[Params, ServerState]:
        model = task.problem.init(key)
        memory = tree.broadcast(model, len(train.mask))
        return memory, ServerState(model if similarity == "delta" else ())

    def client(key: PRNGKey, memory: Params, down: Down, cohort: Cohort) -> Turn[Params]:
        return steps.train_and_send(fit, key, memory, None, cohort)

    def server(key: PRNGKey, state: ServerState, uploads: Uploads) -> Outcome:
        received, reported = uploads.received, uploads.reported
        delta = similarity == "delta"
        features = tree.subtract(received, state.server) if delta else received
        if not parts:
            edges = edges_of(features, reported)
            return Outcome(state, Down(each=mix(edges, received)), edges.weights)
        layers = {name: edges_of(part, reported) for name, part in steps.by_layer(features).items()}
        mixtures = steps.mix_layers(layers, received)
        weights = {name: edges.weights for name, edges in layers.items()}
        return Outcome(state, Down(each=mixtures), weights)

    if by == "weights":
        exchanges = (Exchange(client, server), Exchange(steps.take_offered(task)))
        return steps.compose(task, Wire(init, exchanges, steps.deploy_memory))

    losses_of = deployed_losses(task)
    distances_of = prediction_distances(task)

    def choose(key: PRNGKey, offer: steps.Offer, cohort: Cohort) -> tuple[Params, Report]:
        def compare(model: Params) -> Float[Array, "m"]:
            """What each client finds of one model; less is better."""
            stacked = tree.broadcast(model, cohort.ids.size)
            if by == "validation":
                return losses_of(stacked, cohort.val, cohort)
            return distances_of(offer.trained, stacked, cohort)

        values = lax.map(compare, offer.models).T  # [M, N] (receiver, sender)
        values = jnp.where(jnp.isnan(values), LARGEST_SQUARE, values)
        values = jnp.minimum(values, LARGEST_SQUARE)
        if by == "predictions":
            total = jnp.where(offer.reported[None], values, 0.0).sum(axis=1, keepdims=True)
            values = values / jnp.where(total > 0, total, 1.0)
        # A client without validation data keeps its own model.
        validates = cohort.val.weights.any(axis=1)[:, None]
        weights = steps.isolate_rows(rows(-values, offer.reported), offer)
        weights = jnp.where(validates, weights, offer.own.astype(weights.dtype))
        edges = steps.keep_rows(task, weights, offer)
        mixtures = mix(edges, offer.models)
        model, accepted = task.accept(offer.trained, mixtures, cohort)
        return model, Report(weights=edges.weights, accepted=accepted)

    return steps.choose_from_all(task, choose)
