"""What a client keeps between messages: its memory before and after the last upload.

An upload may be lost. So a client keeps both memories, and takes over the second one when the
server says that the upload counted. A message that says nothing of it, or of another round, means
that it did not.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from flwr.app import Array, ArrayRecord, Context
from jaxtyping import PyTree

from jaxfl.serve.named_arrays import from_named, named
from jaxfl.serve.state import read_arrays, write_arrays

RECORD = "jaxfl-memory"


class Memories(NamedTuple):
    """What a client keeps between messages."""

    # [1, ...] what counts
    before: PyTree
    # [1, ...] after the last upload
    after: PyTree
    # the round of that upload; -1: no upload is open
    sent: np.ndarray
    # how many exchanges of that round are done
    exchanges: np.ndarray
    # of the run of the server, see `server.Progress`
    run: np.ndarray


class Shelf(NamedTuple):
    """Where a client keeps its memories."""

    # (first, forms) -> the memories of a run: `first` if there are none; `forms` has the form of
    # `after`, by the number of exchanges that are done
    read: Callable[[Memories, Sequence[PyTree]], Memories]
    write: Callable[[Memories], None]


def first_memories(memory: PyTree, run: int) -> Memories:
    """What a client keeps that has not taken part yet.

    Example:
      >>> first_memories(jnp.zeros((1, 2)), run=7).sent.item()
      -1
    """
    return Memories(memory, memory, np.asarray(-1), np.asarray(0), np.asarray(run))


def decide(memories: Memories, counted: int, exchanges: int) -> tuple[Memories, bool]:
    """The memories when the server has said what counted last, and whether the open upload did.

    A round of which the client's last work was an exchange before the last one does not count for
    it: an old message was delivered again, and the memory after it is not that of the round.

    Args:
      memories: with an open upload, or without one.
      counted: the last round in which the client's upload counted; -1: none.
      exchanges: in which clients send something, of each round.

    Example:
      >>> first = first_memories(np.zeros(1), run=7)
      >>> memories = first._replace(after=np.ones(1), sent=np.asarray(3), exchanges=np.asarray(1))
      >>> [decide(memories, counted, 1)[0].before.tolist() for counted in (3, 2)]
      [[1.0], [0.0]]
    """
    counts = int(memories.sent) == counted >= 0 and int(memories.exchanges) == exchanges
    memory = memories.after if counts else memories.before
    return first_memories(memory, int(memories.run)), counts


def shelf_in_context(context: Context) -> Shelf:
    """A client's memories in the state of its node, which Flower keeps for one of its runs."""

    def read(first: Memories, forms: Sequence[PyTree]) -> Memories:
        record = context.state.array_records.get(RECORD)
        if record is None:
            return first
        return _of_run({name: array.numpy() for name, array in record.items()}, first, forms)

    def write(memories: Memories) -> None:
        arrays = {name: Array(np.asarray(x, order="C")) for name, x in named(memories).items()}
        context.state[RECORD] = ArrayRecord(arrays)

    return Shelf(read, write)


def shelf_in_file(file: Path) -> Shelf:
    """A client's memories in a file, which outlives its process and a run of the server.

    Example:
      >>> shelf = shelf_in_file(Path("client.npz"))
      >>> first = first_memories(np.zeros((1, 2)), run=7)
      >>> shelf.write(first._replace(after=np.ones((1, 2))))
      >>> shelf.read(first, [first.after]).after.tolist()
      [[1.0, 1.0]]
    """

    def read(first: Memories, forms: Sequence[PyTree]) -> Memories:
        return _of_run(read_arrays(file), first, forms) if file.exists() else first

    return Shelf(read, lambda memories: write_arrays(file, named(memories)))


def _of_run(arrays: dict[str, np.ndarray], first: Memories, forms: Sequence[PyTree]) -> Memories:
    """The memories if they are of the same run; those of another run are forgotten."""
    if "run" not in arrays or arrays["run"].tolist() != first.run.tolist():
        return first
    done = arrays["exchanges"].tolist() if "exchanges" in arrays else 0
    after = forms[done] if done in range(len(forms)) else first.after
    return from_named(arrays, first._replace(after=after))
