"""Stacks of models with different structures, packed into arrays that have one row a client.

A state has the client axis first in every array, so that clients can be drawn, stored and divided
over devices. Models of different structures are rows of numbers, by type of number, padded with
zeros to the longest row.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, PyTree, Shaped

from jaxfl.core.messages import Report
from jaxfl.core.types import Params

# Rows of any architecture: by type of number an array [M, width], padded with zeros; of models that
# clients deploy also the architecture of each [M].
Packed = dict[str, Shaped[Array, "m *_"]]
# The entry of a packed model that says which architecture it is.
ARCHITECTURE = "architecture"


class Layout(NamedTuple):
    """How stacks of different structures are packed."""

    # the shapes of one row of each architecture
    rows: tuple[PyTree, ...]
    # the width of the widest row by type of number
    widths: dict[str, int]

    @classmethod
    def of(cls, rows: Sequence[PyTree]) -> "Layout":
        """The layout of rows of these shapes, one for each architecture."""
        widths: dict[str, int] = {}
        for one in rows:
            for kind, leaves in _by_type(one).items():
                widths[kind] = max(widths.get(kind, 0), sum(leaf.size for leaf in leaves))
        return cls(tuple(rows), widths)

    def pack(self, stack: PyTree, clients: int) -> Packed:
        """A stack of one architecture [K, ...] of so many clients, packed."""
        kinds = _by_type(stack)
        packed = {}
        for kind, width in self.widths.items():
            flat = [leaf.reshape(clients, -1) for leaf in kinds.get(kind, [])]
            joined = jnp.concatenate(flat, axis=1) if flat else jnp.zeros((clients, 0), kind)
            packed[kind] = jnp.pad(joined, ((0, 0), (0, width - joined.shape[1])))
        return packed

    def unpack(self, number: int, packed: Params) -> PyTree:
        """Rows of an architecture [K, ...]; what it was packed of, or one model of them."""
        places = dict.fromkeys(self.widths, 0)

        def leaf(shape: jax.ShapeDtypeStruct) -> Array:
            kind = str(shape.dtype)
            begin = places[kind]
            places[kind] += shape.size
            rows = packed[kind][..., begin : begin + shape.size]
            return rows.reshape(*rows.shape[:-1], *shape.shape)

        return jax.tree.map(leaf, self.rows[number])

    def one(self, number: int, params: Params) -> dict[str, Any]:
        """One model of an architecture that is known, as `apply` takes it."""
        stack = jax.tree.map(lambda x: x[None], params)
        return {kind: x[0] for kind, x in self.pack(stack, 1).items()} | {ARCHITECTURE: number}

    def apply(self, functions: Sequence[Callable], params: Params, *inputs: Any) -> Any:
        """What the function of a model's own architecture says of it and of inputs."""
        number = params[ARCHITECTURE]

        def of(place: int) -> Callable:
            return lambda params, *inputs: functions[place](self.unpack(place, params), *inputs)

        if isinstance(number, int):
            return of(number)(params, *inputs)
        return lax.switch(number, [of(place) for place in range(len(functions))], params, *inputs)


def _by_type(rows: PyTree) -> dict[str, list]:
    """The leaves by the type of their numbers."""
    kinds: dict[str, list] = {}
    for leaf in jax.tree.leaves(rows):
        kinds.setdefault(str(leaf.dtype), []).append(leaf)
    return kinds


def in_places(places: Sequence[Array], parts: Sequence[PyTree]) -> PyTree:
    """Rows of each architecture [K, ...] as those of the cohort [M, ...].

    Example:
      >>> places = [jnp.array([0, 2]), jnp.array([1])]
      >>> in_places(places, [jnp.array([5, 6]), jnp.array([7])]).tolist()
      [5, 7, 6]
    """
    order = jnp.argsort(jnp.concatenate(places))
    return jax.tree.map(lambda *rows: jnp.concatenate(rows)[order], *parts)


def packed_report(models: Layout, number: int, report: Report, clients: int) -> Report:
    """What clients of an architecture report, with their models packed and a row for each client.

    Args:
      models: how models are packed.
      number: of the architecture.
      report: of its method.
      clients: K.

    Example:
      >>> report = packed_report(Layout.of([()]), 0, Report(jnp.ones(2), batches=5), 2)
      >>> report.batches.tolist()
      [5, 5]
    """
    trained = report.trained
    if trained is not None:
        trained = models.pack(trained, clients) | {ARCHITECTURE: jnp.full(clients, number)}
    rows = jax.tree.map(
        lambda x: jnp.broadcast_to(jnp.asarray(x), (clients,)), report._replace(trained=None)
    )
    return rows._replace(trained=trained)
