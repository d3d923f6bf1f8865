"""FedAH (Zhou et al., "FedAH: Aggregated Head for Personalized Federated Learning", 2024, arXiv:2412.01295)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from jaxfl import tree
from jaxfl.errors import check_positive
from jaxfl.kernels.mixing import mix, size_weights
from jaxfl.types import Algorithm, Cohort, Dataset, Info, Params, PRNGKey, Scalar, State, Task


class Client(NamedTuple):
    """What is kept of each client."""

    head: Params  # [C, ...] as it last trained it
    # A [C, ...] of the shape of the head, between 0 and 1: what it takes of the global head
    share: Params


def fedah(
    task: Task,
    *,
    rate: Scalar = 1.0,
    share_epochs: int = 1,
    head_epochs: int = 1,
    head: tree.Layers | None = None,
) -> Algorithm:
    """FedRep whose heads start a round from a mixture of the client's and the global one, learned for each parameter.

    A round of a client: it goes down its loss in A, of the head h + A (global - h) on the global
    body; from that head it trains the head, then the body. The server averages both. Personal is
    the head; a client sends its whole model. It deploys the global body under h + A (global - h).

    State: clients = `Client`, A first 1; server = the global model.

    Args:
      task: the model and its training, which is that of the body.
      rate: learning rate of A, 1 in the authors' code.
      share_epochs: passes over the data to learn A.
      head_epochs: passes to train the head.
      head: a regular expression to find in the paths of its layers, or a predicate; None: the
        model's head.

    Differs: a client deploys with the A of its last round; the authors' code learns A anew before
    it evaluates.
    """
    check_positive(rate=rate)
    head = task.head if head is None else head

    def blend(own: Params, other: Params, share: Params) -> Params:
        return jax.tree.map(lambda h, g, a: h + (g - h) * a, own, other, share)

    def share_loss(share: Params, batch: Dataset, fixed: tuple, key: PRNGKey):
        own, other, body = fixed
        return task.loss(tree.join(blend(own, other, share), body), batch, None, key)

    def head_loss(own: Params, batch: Dataset, body: Params, key: PRNGKey):
        return task.loss(tree.join(own, body), batch, None, key)

    def body_loss(body: Params, batch: Dataset, own: Params, key: PRNGKey):
        return task.loss(tree.join(own, body), batch, None, key)

    clip = optax.stateless(
        lambda move, a: jax.tree.map(lambda m, a: jnp.clip(a + m, 0, 1) - a, move, a)
    )
    fit_share = task.trainer(
        share_loss, epochs=share_epochs, optimizer=optax.chain(optax.sgd(rate), clip)
    )
    fit_head, fit_body = task.trainer(head_loss, epochs=head_epochs), task.trainer(body_loss)

    def init(key: PRNGKey, train: Dataset) -> State:
        model = task.init(key)
        tree.select(model, head)  # raises where no layer matches
        own = tree.broadcast(tree.split(model, head)[0], train.mask.shape[0])
        return State(Client(own, jax.tree.map(jnp.ones_like, own)), model)

    def round(key: PRNGKey, state: State, cohort: Cohort) -> tuple[State, Info]:
        fit_key, uplink_key = jax.random.split(key)
        own, share = state.clients
        start = tree.broadcast(state.server, cohort.ids.size)
        other, body = tree.split(start, head)
        share, _ = fit_share(jax.random.fold_in(fit_key, 2), share, (own, other, body), cohort)
        own, _ = fit_head(jax.random.fold_in(fit_key, 1), blend(own, other, share), body, cohort)
        body, loss = fit_body(fit_key, body, own, cohort)
        received, heard = task.uplink(uplink_key, start, tree.join(own, body), cohort.ids)
        part = size_weights(cohort.sizes * heard)  # [M], the same for every receiver
        model = mix(part, received)
        floats = jnp.full_like(cohort.ids, tree.size(model))
        batches = task.batches(cohort, epochs=share_epochs + head_epochs) + task.batches(cohort)
        info = Info(
            loss,
            tree.broadcast(part, loss.size),
            up=floats,
            down=floats,
            batches=batches,
            heard=heard,
        )
        return State(Client(own, share), model), info

    def models(state: State, ids):
        own, share = tree.take(state.clients, ids)
        other, body = tree.split(tree.broadcast(state.server, ids.size), head)
        return tree.join(blend(own, other, share), body)

    return Algorithm(init, round, models, task.apply)
