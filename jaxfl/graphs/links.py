"""What happens to messages on the edges of a network of clients: loss, delay and a part of them."""

from collections.abc import Callable
from typing import Annotated, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Int, Shaped

from jaxfl.core.errors import InputError, check
from jaxfl.core.npy import read_npy
from jaxfl.core.options import FRACTION, File, Range
from jaxfl.core.types import Scalar

# The longest delay: as many models of each client are kept.
LONGEST = 100

# The options of methods: a number for all edges, the path of a NumPy file, or an array [C, C]
# (receiver, sender).
EdgeLoss = Annotated[Scalar, FRACTION] | File | Shaped[ArrayLike, "_ _"]
EdgeDelay = Annotated[int, Range(low=0, high=LONGEST)] | File | Shaped[ArrayLike, "_ _"]
EdgePart = (
    Annotated[Scalar, Range(low=0, low_included=False, high=1)] | File | Shaped[ArrayLike, "_ _"]
)
# (ids of the receivers [M, 1], ids of the senders [M, k]) -> a number for each edge [M, k]
OfEdges = Callable[[Int[Array, "m 1"], Int[Array, "m k"]], Array]


class Links(NamedTuple):
    """The conditions of the edges of a network."""

    # the probability that a message is lost
    loss: OfEdges
    # how many rounds a message takes
    delay: OfEdges
    # the probability that a number of the model is sent
    part: OfEdges
    # the longest delay
    longest: int
    # whether messages may have less than the whole model
    is_partial: bool
    # C of given arrays; None if all are numbers
    clients: int | None

    def check(self, clients: int) -> None:
        """Raises an `InputError` unless given arrays are of that many clients."""
        check(
            self.clients in (None, clients),
            f"the conditions of the edges are of {self.clients} clients, and there are {clients}: "
            "expected a row and a column for each",
        )


def links_of(loss: EdgeLoss = 0.0, delay: EdgeDelay = 0, part: EdgePart = 1.0) -> Links | None:
    """The conditions of the edges; None if every message arrives at once and as a whole.

    Args:
      loss: the probability that a message is lost, for each edge and round anew.
      delay: how many rounds a message takes, a whole number up to 100.
      part: which part of the model a message has, above 0.
      Each is a number for all edges, the path of a NumPy file (.npy), or an array [C, C] (receiver,
      sender), whose diagonal does not matter.

    Raises:
      InputError: one has another form or is out of its range, or the arrays are of different
        numbers of clients.

    Example:
      >>> links = links_of(loss=0.5, delay=np.array([[0, 2], [1, 0]]))
      >>> links.longest, links.clients, links.is_partial
      (2, 2, False)
      >>> links_of() is None
      True
    """
    given = {
        "edge_loss": _array(loss, "edge_loss"),
        "edge_delay": _array(delay, "edge_delay"),
        "edge_part": _array(part, "edge_part"),
    }
    tiny = float(np.finfo(np.float32).tiny)
    for name, (low, high, expected) in {
        "edge_loss": (0.0, 1.0, "probabilities in [0, 1]"),
        "edge_delay": (0.0, float(LONGEST), f"whole numbers of rounds from 0 to {LONGEST}"),
        "edge_part": (tiny, 1.0, "fractions in (0, 1]"),
    }.items():
        _check_range(given[name], name, low, high, expected)
    delays = given["edge_delay"]
    check(
        not isinstance(delays, Tracer) and bool(np.all(np.mod(delays, 1) == 0)),
        "edge_delay has numbers that are not whole: expected numbers of rounds",
    )
    sizes = {len(array) for array in given.values() if array.ndim}
    check(
        len(sizes) <= 1,
        f"the conditions of the edges are of {' and '.join(map(str, sorted(sizes)))} clients: "
        "expected arrays of the same size",
    )
    is_partial = not _is(given["edge_part"], 1.0)
    longest = int(np.max(delays))
    if _is(given["edge_loss"], 0.0) and longest == 0 and not is_partial:
        return None
    return Links(
        _of_edges(given["edge_loss"], float),
        _of_edges(delays, int),
        _of_edges(given["edge_part"], float),
        longest,
        is_partial,
        next(iter(sizes), None),
    )


def _array(value: EdgeLoss | EdgeDelay | EdgePart, name: str) -> np.ndarray | Array:
    """A number, or a matrix [C, C]."""
    if isinstance(value, Tracer):
        return value
    if isinstance(value, str):
        value = read_npy(value, name)
    array = np.asarray(value)
    check(
        array.dtype.kind in "biuf" and (array.ndim == 0 or _is_square(array)),
        f"{name} has shape {array.shape} and type {array.dtype}: expected a number, or a square "
        "matrix of numbers, a row and a column for each client",
    )
    return array


def _is_square(array: np.ndarray) -> bool:
    return array.ndim == 2 and array.shape[0] == array.shape[1]


def _check_range(
    array: np.ndarray | Array, name: str, low: float, high: float, expected: str
) -> None:
    if isinstance(array, Tracer):
        return
    wrong = ~((array >= low) & (array <= high))
    if np.ndim(array):
        wrong = wrong & ~np.eye(len(array), dtype=bool)
    if not np.any(wrong):
        return
    if not np.ndim(array):
        raise InputError(f"{name} is {array}: expected {expected}")
    receiver, sender = np.argwhere(wrong)[0]
    raise InputError(
        f"{name} has {array[receiver, sender]} for the edge from client {sender} to client "
        f"{receiver}: expected {expected}"
    )


def _is(array: np.ndarray | Array, number: float) -> bool:
    """Whether all edges have this number."""
    if isinstance(array, Tracer):
        return False
    same = np.asarray(array) == number
    return bool(np.all(same | np.eye(len(array), dtype=bool) if np.ndim(array) else same))


def _of_edges(array: np.ndarray | Array, kind: type) -> OfEdges:
    if not np.ndim(array):
        return lambda receivers, senders: jnp.full(senders.shape, array, kind)
    return lambda receivers, senders: jnp.asarray(array, kind)[receivers, senders]
