"""What happens to messages on the edges of a network of clients: loss, delay and a part of them."""

from collections.abc import Callable
from typing import Annotated, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Bool, Int, Shaped

from jaxfl.core.errors import InputError, check
from jaxfl.core.npy import read_npy
from jaxfl.core.options import FRACTION, Range
from jaxfl.core.types import Scalar

# The longest delay: as many models of each client are kept.
LONGEST = 100
SQUARE = "expected a number, or a square matrix of numbers, a row and a column for each client"

# The options of methods: a number for all edges, the path of a NumPy file, or an array [C, C]
# (receiver, sender).
FileOfEach = Annotated[
    str, Range(words="an array [clients, clients] or the path of a .npy file with one")
]
EdgeLoss = Annotated[Scalar, FRACTION] | FileOfEach | Shaped[ArrayLike, "_ _"]
EdgeDelay = Annotated[int, Range(low=0, high=LONGEST)] | FileOfEach | Shaped[ArrayLike, "_ _"]
EdgePart = (
    Annotated[Scalar, Range(low=0, low_included=False, high=1)]
    | FileOfEach
    | Shaped[ArrayLike, "_ _"]
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
    # whether a message may be lost
    is_lossy: bool
    # whether a message may have less than the whole model
    is_partial: bool
    # the longest delay
    longest: int
    # C of given arrays; None if all are numbers
    clients: int | None
    # (receiver, sender) [C, C] whose messages are all lost; None if one probability is for all
    dead: Bool[np.ndarray, "c c"] | None = None

    def check(self, clients: int) -> None:
        """Raises an `InputError` unless given arrays are of that many clients."""
        check(
            self.clients in (None, clients),
            f"the conditions of the edges are of {self.clients} clients, and there are {clients}: "
            "expected a row and a column for each",
        )


def links_of(loss: EdgeLoss = 0.0, delay: EdgeDelay = 0, part: EdgePart = 1.0) -> Links:
    """The conditions of the edges, from the options of a method.

    Each is a number for all edges, the path of a NumPy file (.npy), or an array [C, C] (receiver,
    sender), whose diagonal does not matter.

    Args:
      loss: `edge_loss`, the probability that a message is lost, for each edge and round anew.
      delay: `edge_delay`, how many rounds a message takes, a whole number up to 100.
      part: `edge_part`, which part of the model a message has, above 0.

    Raises:
      InputError: one has another form or is out of its range, the delay is traced, or the arrays
        are of different numbers of clients.

    Example:
      >>> links = links_of(loss=0.5, delay=np.array([[0, 2], [1, 0]]))
      >>> links.longest, links.clients, links.is_lossy, links.is_partial
      (2, 2, True, False)
    """
    check(
        not isinstance(delay, Tracer),
        "edge_delay is traced by jit, grad or vmap: expected a number or an array that is known "
        "before, since it says how many models are kept",
    )
    tiny = float(np.finfo(np.float32).tiny)
    losses = _given("edge_loss", loss, 0.0, 0.0, 1.0, "a probability in [0, 1]")
    words = f"a whole number of rounds from 0 to {LONGEST}"
    delays = _given("edge_delay", delay, 0.0, 0.0, float(LONGEST), words, whole=True)
    parts = _given("edge_part", part, 1.0, tiny, 1.0, "a fraction in (0, 1]")
    sizes = sorted({len(array) for array in (losses, delays, parts) if array.ndim})
    check(
        len(sizes) <= 1,
        f"the conditions of the edges are of {' and '.join(map(str, sizes))} clients: expected "
        "arrays of the same size",
    )
    return Links(
        _of_edges(losses, float),
        _of_edges(delays, int),
        _of_edges(parts, float),
        is_lossy=_differs(losses, 0.0),
        is_partial=_differs(parts, 1.0),
        longest=int(np.max(delays)),
        clients=sizes[0] if sizes else None,
        dead=losses >= 1 if isinstance(losses, np.ndarray) and losses.ndim else None,
    )


def _given(
    name: str,
    value: EdgeLoss | EdgeDelay | EdgePart,
    neutral: float,
    low: float,
    high: float,
    expected: str,
    *,
    whole: bool = False,
) -> np.ndarray | Array:
    """A number, or a matrix [C, C] whose diagonal has the number without effect.

    Args:
      name: of the option.
      value: what was given.
      neutral: the number without effect.
      low: the smallest number.
      high: the largest one.
      expected: the range in words.
      whole: whether only whole numbers are.
    """
    if isinstance(value, Tracer):
        return value
    if isinstance(value, str):
        value = read_npy(value, name)
    try:
        array = np.array(value)
    except ValueError as error:
        raise InputError(f"{name} has rows of different lengths: {SQUARE}") from error
    square = array.ndim == 2 and array.shape[0] == array.shape[1] and array.size > 0
    check(
        array.dtype.kind in "biuf" and (array.ndim == 0 or square),
        f"{name} has shape {array.shape} and type {array.dtype}: {SQUARE}",
    )
    if array.ndim:
        np.fill_diagonal(array, neutral)
    fits = (array >= low) & (array <= high) & (not whole or np.mod(array, 1) == 0)
    if np.all(fits):
        return array
    if array.ndim == 0:
        raise InputError(f"{name} is {array}: expected {expected}")
    receiver, sender = np.argwhere(~fits)[0]
    raise InputError(
        f"{name} has {array[receiver, sender]} for the edge from client {sender} to client "
        f"{receiver}: expected {expected}"
    )


def _differs(array: np.ndarray | Array, number: float) -> bool:
    """Whether an edge may have another number."""
    return isinstance(array, Tracer) or bool(np.any(np.asarray(array) != number))


def _of_edges(array: np.ndarray | Array, kind: type) -> OfEdges:
    if not np.ndim(array):
        return lambda receivers, senders: jnp.full(senders.shape, array, kind)
    return lambda receivers, senders: jnp.asarray(array, kind)[receivers, senders]
