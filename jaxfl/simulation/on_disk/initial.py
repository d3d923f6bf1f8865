"""The states of clients before their first round, made for those that are asked for."""

from collections.abc import Callable
from typing import NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PyTree

from jaxfl.core import tree
from jaxfl.core.errors import check
from jaxfl.core.types import Algorithm, Dataset, PRNGKey, State
from jaxfl.simulation import mesh
from jaxfl.simulation.on_disk.federation import StoredFederation

# Bytes that data and states of all clients may take where the first states depend on all of them.
IN_MEMORY = 2**30


class First(NamedTuple):
    """The state before the first round."""

    # C
    clients: int
    # ids [M] -> the states of these clients [M, ...], NumPy arrays that may be changed
    rows: Callable[[Int[np.ndarray, "m"]], PyTree]
    # shapes and types of one client's state
    row: PyTree
    # the state of the server
    server: PyTree


def initial_state(
    algorithm: Algorithm, key: PRNGKey, federation: StoredFederation, *, in_memory: int = IN_MEMORY
) -> First:
    """The state of `algorithm.init`, whose clients are computed when they are asked for.

    Where `init` looks at the clients' data, it is computed for all clients at once, in memory.

    Args:
      algorithm: has `init`.
      key: for it.
      federation: of all clients.
      in_memory: bytes that the data and states of all clients may take.

    Raises:
      InputError: the clients' data or states are needed at once and do not fit into `in_memory`.
    """
    shapes = _train_shapes(federation)
    state = jax.eval_shape(algorithm.init, key, shapes)
    row = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), state.clients)

    def server(key: PRNGKey) -> PyTree:
        return algorithm.init(key, shapes).server

    def clients(key: PRNGKey, ids: Int[Array, "m"]) -> PyTree:
        return tree.take(algorithm.init(key, shapes).clients, ids)

    try:
        # Shapes in place of arrays: an init that looks at the data raises an error.
        jax.jit(server).lower(key)
        jax.jit(clients).lower(key, jnp.arange(1))
    except (TypeError, AttributeError):
        return _whole(algorithm, key, federation, state, row, in_memory)
    programs: dict[int, Callable] = {}

    def rows(ids: Int[np.ndarray, "m"]) -> PyTree:
        if ids.size not in programs:
            program = jax.jit(clients).lower(key, jnp.asarray(ids)).compile()
            # Of a broadcast model XLA makes only the rows that are taken.
            size = getattr(program.memory_analysis(), "temp_size_in_bytes", 0)
            _check_memory(size, in_memory)
            programs[ids.size] = program
        return jax.tree.map(np.array, programs[ids.size](key, jnp.asarray(ids)))

    return First(federation.clients, rows, row, jax.jit(server)(key))


def _whole(
    algorithm: Algorithm,
    key: PRNGKey,
    federation: StoredFederation,
    shapes: State,
    row: PyTree,
    in_memory: int,
) -> First:
    """The states of all clients, in memory."""
    arrays = jax.tree.leaves((_train_shapes(federation), shapes))
    _check_memory(sum(x.size * np.dtype(x.dtype).itemsize for x in arrays), in_memory)
    everybody = np.arange(federation.clients)
    train = jax.tree.map(jnp.asarray, federation.read_part("train", everybody))
    state = algorithm.init(key, mesh.place(train))
    clients = mesh.fetch(state.clients)
    return First(
        federation.clients,
        lambda ids: jax.tree.map(lambda x: x[ids], clients),
        row,
        state.server,
    )


def _check_memory(size: int, in_memory: int) -> None:
    check(
        size <= in_memory,
        "the first states of this method's clients depend on all clients at once, which takes "
        f"{size / 1e9:.1f} GB: choose another method or fewer clients",
    )


def _train_shapes(federation: StoredFederation) -> Dataset:
    """Shapes and types of the training data of all clients [C, n, ...]."""
    part = federation.parts["train"]
    shape = (federation.clients, part.longest)
    mask = jax.ShapeDtypeStruct(shape, np.float32 if part.weighted else bool)
    return Dataset(
        jax.ShapeDtypeStruct((*shape, *part.feature), part.types[0]),
        jax.ShapeDtypeStruct((*shape, *part.target), part.types[1]),
        cast(Array, mask),  # a shape stands for the array
        cast(Array, jax.ShapeDtypeStruct(shape, np.float32)) if part.example_weights else None,
    )
