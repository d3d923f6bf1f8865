"""FedAH: personal heads that take what they need of the global head."""

from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from jaxfl import tree
from jaxfl.kernels.mixing import mix, size_weights
from jaxfl.objectives import data_loss, of_part
from jaxfl.options import COUNT, POSITIVE
from jaxfl.registry import method
from jaxfl.skeleton import head_of, upload
from jaxfl.streams import stream
from jaxfl.types import Algorithm, Cohort, Dataset, Info, Params, PRNGKey, Scalar, State, Task


class Client(NamedTuple):
    """What is kept of each client."""

    # [C, ...] the head as the client last trained it
    head: Params
    # A [C, ...] of the shape of the head, between 0 and 1: what the client takes of the global head
    blend: Params


@method(
    title="FedAH",
    paper='Zhou et al., "FedAH: Aggregated Head for Personalized Federated Learning", 2024',
    link="https://arxiv.org/abs/2412.01295",
    personal="the head",
    sends="its model",
)
def fedah(
    task: Task,
    *,
    rate: Annotated[Scalar, POSITIVE] = 1.0,
    blend_epochs: Annotated[int, COUNT] = 1,
    head_epochs: Annotated[int, COUNT] = 1,
    head: tree.Layers | None = None,
) -> Algorithm:
    """FedRep whose heads start from a mixture of the client's and the global one, learned per entry.

    A round of a client: on the global body it lowers its loss in A, of the head
    h + A (global - h); from that head it trains the head, then the body. The server averages both.
    A client deploys the global body under h + A (global - h).

    State: clients = `Client`, A first 1; server = the global model. Weights: "body", and "head" with
    the mean over its parameters of A.

    Args:
      task: the model and its training, which is that of the body.
      rate: learning rate of A, 1 in the authors' code.
      blend_epochs: passes over the data to learn A.
      head_epochs: passes to train the head.
      head: a regular expression to find in the paths of its layers, or a predicate; None: the
        model's head.

    Raises:
      InputError: the model names no head and none is given, or no layer matches.

    Differs: a client deploys with the A of its last round; the authors' code learns A anew before it
    evaluates.
    """
    head = head_of(task.problem, head)
    loss = of_part(data_loss(task.problem))

    def blended(own: Params, other: Params, blend: Params) -> Params:
        return jax.tree.map(lambda h, g, a: h + (g - h) * a, own, other, blend)

    def blend_loss(blend: Params, batch: Dataset, fixed: tuple, key: PRNGKey):
        own, other, body = fixed
        return loss(blended(own, other, blend), batch, body, key)

    clip = optax.stateless(
        lambda updates, blend: jax.tree.map(lambda u, a: jnp.clip(a + u, 0, 1) - a, updates, blend)
    )
    fit_blend = task.trainer(
        blend_loss, epochs=blend_epochs, optimizer=optax.chain(optax.sgd(rate), clip)
    )
    fit_head = task.trainer(loss, epochs=head_epochs)
    fit_body = task.trainer(loss)

    def init(key: PRNGKey, train: Dataset) -> State:
        model = task.problem.init(key)
        own = tree.broadcast(tree.split(model, head)[0], train.mask.shape[0])
        return State(Client(own, jax.tree.map(jnp.ones_like, own)), model)

    def round(key: PRNGKey, state: State, cohort: Cohort) -> tuple[State, Info]:
        own = state.clients.head
        start = tree.broadcast(state.server, cohort.ids.size)
        other, body = tree.split(start, head)
        blend = fit_blend(stream(key, "third_fit"), state.clients.blend, (own, other, body), cohort)
        begin = blended(own, other, blend.params)
        trained_head = fit_head(stream(key, "second_fit"), begin, body, cohort)
        trained_body = fit_body(stream(key, "fit"), body, trained_head.params, cohort)
        trained = tree.join(trained_head.params, trained_body.params)
        received, info = upload(task, key, trained_body, start, trained, cohort)
        weights = size_weights(cohort.sizes * info.reported)
        info = info._replace(
            weights=matrices(weights, blend.params),
            batches=info.batches + trained_head.batches + blend.batches,
        )
        client = Client(trained_head.params, blend.params)
        return State(client, mix(weights, received)), info

    def matrices(weights: Float[Array, "m"], blend: Params) -> dict[str, Float[Array, "m m"]]:
        body = tree.broadcast(weights, weights.size)
        taken = tree.ravel(blend).mean(axis=1, keepdims=True)  # [M, 1]
        return {"body": body, "head": (1 - taken) * jnp.eye(weights.size) + taken * body}

    def models(state: State, ids: Array) -> Params:
        client = tree.take(state.clients, ids)
        other, body = tree.split(tree.broadcast(state.server, ids.size), head)
        return tree.join(blended(client.head, other, client.blend), body)

    return Algorithm(init, round, models, task.problem.apply)
