"""Arrays [C, n, *feature] of clients with different numbers of examples, stored without padding."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from jaxfl.core import order

__all__ = ["Ragged", "is_ragged", "join_shared", "padded", "ragged", "split_shared", "stack"]

# The number of axes of several images.
IMAGES = 4


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Ragged:
    """An array [C, n, *feature] whose examples are stored once, and read by row number.

    Client c has the examples `values[rows[start[c] + j]]` for j = 0, ..., size[c] - 1. The others
    of its n examples are padding. A padded example that is read along with others is a copy of the
    client's last one; in the array as a whole it is 0.

    It is indexed as the padded array would be, and `jnp.asarray` and `np.asarray` make the padded
    array of it. An index of clients alone takes these clients and copies no example. There are no
    further operations: take examples first, or convert the array.

    `jax.tree.map` and `vmap` see its four arrays, of which `values` and `rows` belong to all
    clients: `tree.take`, `over_clients` and `on_every_device` leave them whole.

    Example:
      >>> x = ragged(np.array([[10.0], [11.0], [12.0]]), [np.array([2, 0]), np.array([1])])
      >>> x.shape, x[0, np.array([1])].tolist(), jnp.asarray(x)[..., 0].tolist()
      ((2, 2, 1), [[10.0]], [[12.0, 10.0], [11.0, 0.0]])
    """

    # the examples of all clients, in any order [N, *feature]
    values: Any
    # the rows of `values` that the clients hold, one client after the other [R]
    rows: Any
    # where the rows of each client begin in `rows` [C]; behind an axis of seeds [S, C]
    start: Any
    # how many examples each client holds [C] or [S, C]
    size: Any
    # n
    length: int = field(metadata={"static": True})

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the padded array."""
        return (*self.start.shape, self.length, *self.values.shape[1:])

    @property
    def ndim(self) -> int:
        """The number of axes of the padded array."""
        return len(self.shape)

    @property
    def dtype(self) -> np.dtype:
        """The type of the examples."""
        return self.values.dtype

    @property
    def nbytes(self) -> int:
        """The bytes that are held."""
        return sum(array.nbytes for array in (self.values, self.rows, self.start, self.size))

    def __getitem__(self, index: Any) -> Any:
        """Some clients, as a `Ragged` array, or some examples of clients, as an array."""
        index = index if isinstance(index, tuple) else (index,)
        axes = self.start.ndim
        clients = index[:axes]
        if len(index) <= axes and _is_plain(clients):
            return replace(self, start=self.start[clients], size=self.size[clients])
        if len(index) == axes + 1 and _is_plain(index):
            start = self.start[clients]
            size = self.size[clients]
            position = index[axes]
            if _are_arrays(index):
                return self._read(start, size, position)
            # Every position of every client.
            if isinstance(position, slice):
                position = np.arange(self.length)[position]
            position = position if hasattr(position, "ndim") else np.array(position)
            each = (..., *[None] * position.ndim)
            return self._read(start[each], size[each], position[(*[None] * start.ndim, ...)])
        return self.padded()[index]

    def padded(self) -> Array | np.ndarray:
        """The padded array, with zeros after the examples of each client."""
        values = self[(slice(None),) * (self.start.ndim + 1)]
        position = np.arange(self.length)[(*[None] * self.start.ndim, ...)]
        counts = position < self.size[..., None]
        counts = counts.reshape(*counts.shape, *[1] * (values.ndim - counts.ndim))
        where = np.where if isinstance(values, np.ndarray) else jnp.where
        return where(counts, values, np.zeros((), values.dtype))

    def _read(self, start: Any, size: Any, position: Any) -> Array | np.ndarray:
        # A padded example is one of the client's own, so that no client computes on the examples
        # of another one: NaN times 0 is NaN.
        on_host = not any(isinstance(x, Array) for x in (self.values, self.rows, start, position))
        numpy = np if on_host else jnp
        inside = numpy.minimum(position, numpy.maximum(size - 1, 0))
        rows = numpy.asarray(self.rows)[start + inside]
        if not on_host and rows.ndim == 1 and self.values.ndim == IMAGES:
            rows = order.not_fused(jnp.asarray(rows), self.values.shape[0])
        return numpy.asarray(self.values)[rows]

    def __len__(self) -> int:
        return self.shape[0]

    def __jax_array__(self) -> Array:
        return jnp.asarray(self.padded())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(jax.device_get(self).padded(), dtype)


def _is_plain(index: tuple) -> bool:
    """Whether the index is of whole numbers and slices, without masks, ... and None."""
    return all(
        isinstance(entry, slice | int | np.integer)
        or (hasattr(entry, "dtype") and jnp.issubdtype(entry.dtype, jnp.integer))
        for entry in index
    )


def _are_arrays(index: tuple) -> bool:
    """Whether the index has no slice, so that its entries are broadcast against each other."""
    return not any(isinstance(entry, slice) for entry in index)


def is_ragged(node: Any) -> bool:
    """Whether it is a `Ragged` array.

    Example:
      >>> is_ragged(jnp.ones(3))
      False
    """
    return isinstance(node, Ragged)


def ragged(
    values: Array | np.ndarray, parts: Sequence[np.ndarray], *, length: int | None = None
) -> Ragged:
    """The array of the rows of `values` that each client holds.

    Args:
      values: the examples of all clients [N, *feature]. Rows that no client holds take memory, and
        have no effect.
      parts: the rows of each client, in its order. Clients may hold the same rows.
      length: n, the longest part if None.

    Example:
      >>> ragged(np.arange(3), [np.array([2, 0]), np.array([], int)]).shape
      (2, 2)
    """
    sizes = np.array([len(part) for part in parts])
    start = np.where(sizes > 0, np.cumsum(sizes) - sizes, 0)
    # Clients without examples read row 0, which counts for nobody.
    rows = np.concatenate([*parts, np.zeros(int(sizes.sum() == 0), int)])
    return Ragged(
        jnp.asarray(values),
        jnp.asarray(np.asarray(rows, np.int32)),
        jnp.asarray(np.asarray(start, np.int32)),
        jnp.asarray(np.asarray(sizes, np.int32)),
        int(sizes.max(initial=1)) if length is None else length,
    )


def stack(arrays: Sequence[Ragged]) -> Ragged:
    """The arrays of several seeds in one, [S, C, n, *feature], padded alike.

    Examples are copied only if the arrays do not have the same `values`.

    Example:
      >>> one = ragged(np.arange(3), [np.array([2, 0]), np.array([1])])
      >>> stack([one, one]).shape
      (2, 2, 2)
    """
    first = arrays[0]
    same = all(array.values is first.values for array in arrays)
    examples = [array.values.shape[0] for array in arrays]
    offsets = np.zeros(len(arrays), int) if same else np.cumsum(examples) - examples
    lengths = [array.rows.size for array in arrays]
    starts = np.cumsum(lengths) - lengths
    each = list(zip(arrays, offsets, starts, strict=True))
    return Ragged(
        first.values if same else jnp.concatenate([array.values for array in arrays]),
        jnp.concatenate([array.rows + int(offset) for array, offset, _ in each]),
        jnp.stack([array.start + int(start) for array, _, start in each]),
        jnp.stack([array.size for array in arrays]),
        max(array.length for array in arrays),
    )


def padded(tree: PyTree) -> PyTree:
    """The tree with padded arrays in place of `Ragged` ones.

    Example:
      >>> padded({"x": ragged(np.arange(3), [np.array([2, 0]), np.array([1])])})["x"].tolist()
      [[2, 0], [1, 0]]
    """
    return jax.tree.map(lambda x: x.padded() if is_ragged(x) else x, tree, is_leaf=is_ragged)


def split_shared(tree: PyTree) -> tuple[PyTree, PyTree]:
    """What has an axis of clients, and what `Ragged` arrays hold for all clients.

    In the first tree `Ragged` arrays lack the values and rows. The second has these alone, and None
    elsewhere. Since None is no leaf, either tree has only arrays of its own kind.

    Example:
      >>> whole = ragged(np.zeros((9, 4)), [np.array([2, 0]), np.array([1])])
      >>> by_client, shared = split_shared(whole)
      >>> [x.shape for x in jax.tree.leaves(by_client)], [x.shape for x in jax.tree.leaves(shared)]
      ([(2,), (2,)], [(9, 4), (3,)])
    """
    by_client = jax.tree.map(
        lambda x: replace(x, values=None, rows=None) if is_ragged(x) else x,
        tree,
        is_leaf=is_ragged,
    )
    shared = jax.tree.map(
        lambda x: replace(x, start=None, size=None) if is_ragged(x) else None,
        tree,
        is_leaf=is_ragged,
    )
    return by_client, shared


def join_shared(by_client: PyTree, shared: PyTree) -> PyTree:
    """The inverse of `split_shared`.

    Example:
      >>> whole = ragged(np.zeros((9, 4)), [np.array([2, 0]), np.array([1])])
      >>> join_shared(*split_shared(whole)).shape
      (2, 2, 4)
    """
    return jax.tree.map(
        lambda x, s: replace(x, values=s.values, rows=s.rows) if is_ragged(x) else x,
        by_client,
        shared,
        is_leaf=is_ragged,
    )
