"""Pooled data: what one model learns where all examples lie in one place.

each round t:
  w = training from w on the examples of all clients of the round, with as many gradients
client i deploys w.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from jaxfl.core import tree
from jaxfl.core.facts import method
from jaxfl.core.over_clients import over_clients
from jaxfl.core.ragged import Ragged, is_ragged
from jaxfl.core.streams import stream
from jaxfl.core.types import Algorithm, Cohort, Dataset, Info, Params, PRNGKey, State, Task
from jaxfl.training import data_loss


@method(
    title="Pooled data",
    paper="what one place with all examples would learn",
    personal="",
    sends="",
    pools=True,
    advice="one model cannot fit clients that differ, even with all of their examples",
)
def pooled(task: Task) -> Algorithm:
    """One model trained on the examples of all clients together, which no federated method sees.

    In a round the examples of the cohort are one data set, on which one model takes as many
    gradients as the clients of `fedavg` do together: M times the local steps, or the local epochs.
    All clients deploy this model. The examples that a client gives away are not counted as sent.
    Attacks on uploads, lost uploads, compression and clients that do a part of their work have no
    effect, as nothing is uploaded and the clients do not compute.

    A client with an example that is not finite is left out. The method is not written as messages:
    there is no server that could not see the examples.

    State: clients = nothing; server = the model.

    Example:
      >>> state, info = one_round(pooled(task))
      >>> state.clients, info.weights
      ((), None)
    """

    def init(key: PRNGKey, train: Dataset) -> State:
        return State((), task.problem.init(key))

    def round(key: PRNGKey, state: State, cohort: Cohort) -> tuple[State, Info]:
        clients = cohort.ids.size
        fit = task.trainer(data_loss(task.problem), times=clients)
        reported = over_clients(_is_finite, "auto")(cohort.train)
        data = pool(cohort.train, cohort.ids, reported)
        one = Cohort(jnp.zeros(1, cohort.ids.dtype), data, data, cohort.round)
        fitted = fit(stream(key, "fit"), tree.broadcast(state.server, 1), None, one)
        model = jax.tree.map(lambda x: x[0], fitted.params)
        none = jnp.zeros(clients, jnp.int32)
        # The gradients of all, divided among the clients, so that their sum is right.
        batches = (fitted.batches[0] + jnp.arange(clients)) // clients
        return State((), model), Info(
            loss=jnp.broadcast_to(fitted.loss, (clients,)),
            weights=None,
            up=none,
            down=none,
            batches=batches.astype(jnp.int32),
            reported=reported,
            trained=tree.broadcast(model, clients),
        )

    def models(state: State, cohort: Cohort) -> Params:
        return tree.broadcast(state.server, cohort.ids.size)

    return Algorithm(init, round, models, task.problem.apply)


def pool(train: Dataset, ids: Int[Array, "m"], reported: Bool[Array, "m"]) -> Dataset:
    """The examples of clients as those of one client [1, M n, ...]; no example is copied.

    Args:
      train: the examples [M, n, ...].
      ids: of the clients, by which their examples are ordered.
      reported: the clients whose examples count.

    Example:
      >>> x, mask = jnp.array([[1.0, 2.0], [3.0, 0.0]]), jnp.ones((2, 2), bool)
      >>> one = pool(Dataset(x, x, mask), jnp.array([7, 4]), jnp.ones(2, bool))
      >>> jnp.asarray(one.x[:, jnp.arange(4)]).tolist(), one.mask.shape
      ([[3.0, 0.0, 1.0, 2.0]], (1, 4))
    """
    order = jnp.argsort(ids)
    clients, n = train.mask.shape
    position = jnp.arange(n)[None]

    def together(x: Array | np.ndarray | Ragged) -> Ragged:
        if isinstance(x, Ragged):
            inside = jnp.minimum(position, jnp.maximum(x.size[order, None] - 1, 0))
            values, rows = x.values, jnp.asarray(x.rows)[x.start[order, None] + inside]
        else:
            values, rows = x.reshape(clients * n, *x.shape[2:]), order[:, None] * n + position
        start = jnp.zeros(1, rows.dtype)
        return Ragged(values, rows.reshape(-1), start, start + clients * n, clients * n)

    x, y = jax.tree.map(together, (train.x, train.y), is_leaf=is_ragged)
    mask = (train.mask & reported[:, None])[order].reshape(1, -1)
    weight = None if train.weight is None else train.weight[order].reshape(1, -1)
    return Dataset(x, y, mask, weight)


def _is_finite(data: Dataset) -> Bool[Array, ""]:
    """Whether all examples of a client are finite."""
    position = jnp.arange(data.mask.size)
    whole = jnp.ones((), bool)
    for leaf in jax.tree.leaves((data.x, data.y), is_leaf=is_ragged):
        values = jnp.asarray(leaf[position])
        if jnp.issubdtype(values.dtype, jnp.floating):
            each = jnp.isfinite(values).reshape(position.size, -1).all(axis=1)
            whole &= (each | ~data.mask).all()
    return whole
