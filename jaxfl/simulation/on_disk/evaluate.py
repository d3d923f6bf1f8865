"""Evaluation of clients whose data and states lie on disk, some of them at a time."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Literal, Protocol, cast, overload, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PyTree, Shaped

from jaxfl.core.options import checked
from jaxfl.core.types import Algorithm, Chunk, Cohort, Federation, Params, PRNGKey, State, Task
from jaxfl.simulation import mesh
from jaxfl.simulation.evaluate import make_evaluate_cohort
from jaxfl.simulation.evaluation import After, Evaluation
from jaxfl.simulation.metrics import Metric
from jaxfl.simulation.on_disk.clients import ClientStates, check_places
from jaxfl.simulation.on_disk.federation import StoredFederation

# Clients that are evaluated together, by default.
TOGETHER = 128


class Rows:
    """The rows of some clients, which are taken by the clients' ids as rows of all clients are.

    `Algorithm.models` takes the rows of its cohort out of the state of all clients. This stands in
    the place of an array of that state. It is a leaf of a pytree.
    """

    def __init__(self, ids: Int[Array, "m"], rows: Shaped[Array, "m ..."]):
        self._ids = ids
        self._rows = rows

    def __getitem__(self, ids: Int[Array, "k"]) -> Shaped[Array, "k ..."]:
        if ids is self._ids:
            return self._rows
        return self._rows[jnp.argmax(jnp.asarray(ids)[:, None] == self._ids[None], axis=1)]


def deployed_models(algorithm: Algorithm, state: State, cohort: Cohort) -> Params:
    """The models [M, ...] that the clients of a cohort deploy.

    Args:
      algorithm: says which.
      state: with the clients of the cohort only [M, ...].
      cohort: the clients with their data.
    """
    rows = jax.tree.map(lambda x: Rows(cohort.ids, x), state.clients)
    return algorithm.models(State(rows, state.server), cohort)


@runtime_checkable
class EvaluateStored(Protocol):
    """(key, state, ids [E], trained=None, round=None) -> Evaluation."""

    @overload
    def __call__(
        self,
        key: PRNGKey,
        state: State,
        ids: Int[np.ndarray, "e"],
        trained: Params | None = None,
        round: int | np.integer | None = None,
        *,
        compile_only: Literal[False] = False,
    ) -> Evaluation: ...

    @overload
    def __call__(
        self,
        key: PRNGKey,
        state: State,
        ids: Int[np.ndarray, "e"],
        trained: Params | None = None,
        round: int | np.integer | None = None,
        *,
        compile_only: Literal[True],
    ) -> None: ...


@checked
def make_stored_evaluate(
    algorithm: Algorithm,
    task: Task,
    federation: StoredFederation,
    clients: ClientStates,
    *,
    batch_size: int | None = None,
    chunk: Chunk = "auto",
    after: After = "fine_tuned",
    together: int = TOGETHER,
    metrics: Sequence[str] | Mapping[str, Metric] = (),
) -> EvaluateStored:
    """As `jaxfl.make_evaluate`, for clients on disk, of which some are in memory at a time.

    Args:
      algorithm: says which model a client deploys and how the client predicts.
      task: has the loss of fine-tuning and the score.
      federation: the data of all clients.
      clients: the states of all clients.
      batch_size: number of examples predicted at a time.
      chunk: clients computed side by side.
      after: the models after local training that are scored.
      together: how many clients are read together.
      metrics: what the models are scored by. There is no score of the predictions of all clients
        together, which are never in memory together.

    Returns:
      evaluate(key, state, ids [E], trained=None, round=None) -> Evaluation with scores [E], NumPy
      arrays. With `after="trained"` the ids are those of one round. With `compile_only=True` it
      compiles its program and returns None.

    Example:
      >>> federation = jaxfl.data.ridge(0, dim=3).federation  # of 150 clients
      >>> stored = jaxfl.on_disk.write_federation("scored-data", federation)
      >>> task = jaxfl.regression(jaxfl.models.linear(), np.zeros(3))
      >>> algorithm = jaxfl.algorithms.fedavg(task)
      >>> key = jax.random.key(0)
      >>> clients, state = jaxfl.on_disk.open_clients("scored-states", algorithm, key, stored)
      >>> evaluate = make_stored_evaluate(algorithm, task, stored, clients, after="none")
      >>> evaluate(key, state, np.arange(150)).deployed.test.shape
      (150,)
    """
    of_models = make_evaluate_cohort(
        algorithm, task, batch_size=batch_size, chunk=chunk, after=after, metrics=metrics
    )

    @jax.jit
    def assess(
        key: PRNGKey,
        ids: Int[Array, "m"],
        data: Federation,
        state: State,
        trained: Params | None,
        round: Array | None,
    ) -> Evaluation:
        cohort = Cohort(ids, data.train, data.val, round)
        deployed = deployed_models(algorithm, state, cohort)
        return of_models(key, cohort, data.test, deployed, trained)

    def evaluate(
        key: PRNGKey,
        state: State,
        ids: Int[np.ndarray, "e"],
        trained: Params | None = None,
        round: int | np.integer | None = None,
        *,
        compile_only: bool = False,
    ) -> Evaluation | None:
        check_places(state.clients, federation.clients)
        ids = np.asarray(ids)
        places = np.asarray(state.clients)
        size = ids.size if after == "trained" else together

        def read(some: np.ndarray) -> tuple[np.ndarray, Federation, PyTree]:
            return some, federation.read(some), clients.read(places, some)

        number = None if round is None else np.int32(round)
        scores = []
        for some, data, rows in read_ahead(read, in_parts(ids, size)):
            states = mesh.place(State(rows, state.server))
            arguments = (key, some, mesh.place(data), states, trained, number)
            if compile_only:
                assess.lower(*arguments).compile()
                return None
            with jax.debug_nans(False):  # NaN is no score
                scores.append(mesh.fetch(assess(*arguments)))
        return jax.tree.map(lambda *x: np.concatenate(x)[: ids.size], *scores)

    # A checker cannot see that the result depends on `compile_only`.
    return cast(EvaluateStored, evaluate)


def in_parts(ids: Int[np.ndarray, "e"], size: int) -> list[Int[np.ndarray, "m"]]:
    """The ids in parts of one size; the last id fills the last part.

    Example:
      >>> [part.tolist() for part in in_parts(np.arange(5), 2)]
      [[0, 1], [2, 3], [4, 4]]
    """
    if ids.size <= size:
        return [ids]
    padded = np.pad(ids, (0, -ids.size % size), mode="edge")
    return list(padded.reshape(-1, size))


def read_ahead(read: Callable, items: list) -> Iterator:
    """`read(item)` for each item; a thread reads the next one while the caller uses this one."""
    with ThreadPoolExecutor(max_workers=1) as thread:
        future = thread.submit(read, items[0])
        for item in [*items[1:], None]:
            value = future.result()
            if item is not None:
                future = thread.submit(read, item)
            yield value
