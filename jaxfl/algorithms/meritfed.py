"""MeritFed: weights found by mirror descent on the validation loss of the mixture."""

from typing import Annotated

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from jaxfl.algorithms.steps.personal import own_models
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
from jaxfl.kernels.merit import exponentiated
from jaxfl.kernels.mixing import isolate, mix, size_weights
from jaxfl.training.batch_statistics import trainable
from jaxfl.training.objectives import data_loss


@method(
    title="MeritFed",
    paper=Paper(
        authors="Tupitsa, Nazarii and Horváth, Samuel and Takáč, Martin and Gorbunov, Eduard",
        title="Federated Learning Can Find Friends That Are Advantageous",
        venue="",
        year=2024,
        link="https://arxiv.org/abs/2402.05050",
    ),
    personal="the mixture of models",
    sends="its model",
    takes_top_edges=True,
    starts_from_server=False,
    defaults="ours",
    turn_first="raise steps or rate, so that the weights go further from equal ones; then --val",
)
def meritfed(
    task: Task,
    *,
    rate: Annotated[Scalar, POSITIVE] = 1.0,
    steps: Annotated[int, COUNT] = 10,
) -> Algorithm:
    """Each client lowers its validation loss by the weights of the models that it mixes.

    A client trains from its own model. The row w_i of its weights starts at 1 / M and takes steps
    of mirror descent on the simplex: w_ij is multiplied by exp(-rate <y_j, grad F_i(x)>), and the
    row is scaled to 1. Here x is the mixture sum_j w_ij y_j of the trained models, and F_i the loss
    on the client's validation examples. The client receives the last mixture. A client without
    validation data keeps the model that it trained.

    State: clients = the model of each client; server = nothing.

    Args:
      task: the model and its training.
      rate: of the steps on the weights.
      steps: the number of these steps in a round; each is a gradient on all validation examples.

    Differs: the paper has one client with a goal of its own: all clients compute stochastic
    gradients at its model, which moves along their mixture. Here every client has this goal; since
    each would have to train from the models of all others, the clients' models take the place of
    steps from a common one. The weights start anew in each round, and the gradient of the loss is
    that of all validation examples, where the authors' code takes a batch.

    Example:
      >>> _, info = one_round(meritfed(task, steps=2))
      >>> info.weights.shape
      (4, 4)
    """
    loss = data_loss(task.problem)
    fit = task.trainer(loss)
    gradient = task.gradient(loss)

    def init(key: PRNGKey, train: Dataset) -> State:
        return State(tree.broadcast(task.problem.init(key), train.mask.shape[0]), ())

    def round(key: PRNGKey, state: State, cohort: Cohort) -> tuple[State, Info]:
        clients = cohort.ids.size
        _, received, info = train_and_upload(task, fit, key, state.clients, None, cohort)
        evaluate_key = stream(key, "evaluate")
        senders = trainable(received)

        def inner(grads: Params) -> Float[Array, "m m"]:
            """<y_j, grad of client i> [M, M]."""
            products = jax.tree.map(
                lambda g, y: jnp.matmul(
                    g.reshape(clients, -1), y.reshape(clients, -1).T, precision="highest"
                ),
                trainable(grads),
                senders,
            )
            return sum(jax.tree.leaves(products), jnp.zeros((clients, clients)))

        def step(carry: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], None]:
            weights, batches = carry
            answer = gradient(evaluate_key, mix(weights, received), cohort.val, cohort.ids)
            by_weights = inner(answer.grads)
            mask = jnp.isfinite(by_weights).all(axis=1, keepdims=True)
            after = exponentiated(weights, jnp.where(mask, by_weights, 0.0), rate)
            return (after, batches + answer.batches), None

        equal = tree.broadcast(size_weights(info.reported), clients)
        begin = (equal, jnp.zeros_like(info.batches))
        (weights, batches), _ = lax.scan(step, begin, None, length=steps)
        # A client without validation data keeps its own model.
        validates = cohort.val.mask.any(axis=1)[:, None]
        weights = jnp.where(validates, isolate(weights, info.reported), jnp.eye(clients))
        edges = task.keep_edges(weights)
        info = info._replace(
            weights=edges.weights,
            down=(clients - 1) * info.down,
            batches=info.batches + batches,
        )
        return State(mix(edges.rows, received), ()), info

    return Algorithm(init, round, own_models, task.problem.apply, validates=True)
