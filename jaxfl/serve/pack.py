"""Records of Flower's messages, from pytrees and back."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from jaxtyping import PyTree

from jaxfl.core.errors import InputError
from jaxfl.core.messages import Down, Up
from jaxfl.core.types import PRNGKey
from jaxfl.serve.named_arrays import from_named, named

# The names of records in a message. What each client gets of its own and what goes through its
# uplink are named as Flower's own strategies name a model, for clients that train without jaxfl.
OWN = "arrays"
COMMON = "common"
PLAIN = "plain"
START = "start"
ORDER = "jaxfl"
METRICS = "metrics"
# The reply to a client's last upload, which goes to it with the next message.
REPLY = "reply-"


def pack(values: PyTree) -> ArrayRecord:
    """A pytree as a record of its arrays, by path.

    Example:
      >>> list(pack({"bias": jnp.zeros(2)}))
      ['bias']
    """
    arrays = {name: Array(np.asarray(x, order="C")) for name, x in named(values).items()}
    return ArrayRecord(arrays)


def unpack(content: RecordDict, name: str, like: PyTree) -> PyTree:
    """The pytree of a record, whose form must be that of `like`; nothing is ever unpickled.

    Args:
      content: of a message.
      name: of the record. A pytree without arrays needs none.
      like: the pytree, or its shapes.

    Raises:
      InputError: the record is missing, cannot be read, or has other arrays.

    Example:
      >>> unpack(RecordDict({"arrays": pack(jnp.ones(2))}), "arrays", jnp.zeros(2)).tolist()
      [1.0, 1.0]
    """
    expected = jax.tree.leaves(like)
    record = content.array_records.get(name)
    if record is None:
        if expected:
            raise InputError(f"no record {name!r}: expected {len(expected)} arrays")
        return like
    arrays = {}
    for key, value in record.items():
        try:
            arrays[key] = value.numpy()
        except Exception as error:  # of bytes that anyone may have sent
            reason = str(error).splitlines()[0][:80] if str(error) else type(error).__name__
            raise InputError(f"{key[:40]!r} cannot be read ({reason!r})") from None
        # The bytes of an npz file are read as a file of several arrays.
        if not isinstance(arrays[key], np.ndarray):
            raise InputError(f"{key[:40]!r} cannot be read (several arrays): expected one")
    return from_named(arrays, like)


def floats_in(content: RecordDict) -> int:
    """How many numbers the arrays of a message have.

    Example:
      >>> floats_in(RecordDict({"common": pack(jnp.ones((2, 3))), "arrays": pack(jnp.ones(4))}))
      10
    """
    arrays = [array for record in content.array_records.values() for array in record.values()]
    return sum(math.prod(array.shape) for array in arrays)


def pack_down(down: Down, prefix: str = "") -> dict[str, ArrayRecord]:
    """The records of a message to one client; what has no arrays needs no record.

    Example:
      >>> list(pack_down(Down(common=jnp.zeros(3))))
      ['common']
    """
    parts = {COMMON: down.common, OWN: _without_axis(down.each)}
    return {f"{prefix}{name}": pack(part) for name, part in parts.items() if jax.tree.leaves(part)}


def unpack_down(content: RecordDict, like: Down, prefix: str = "") -> Down:
    """The inverse of `pack_down`; whether the last upload counted is in the order.

    Example:
      >>> content = RecordDict(pack_down(Down(common=jnp.ones(1))))
      >>> unpack_down(content, Down(common=jnp.zeros(1))).common.tolist()
      [1.0]
    """
    return Down(
        unpack(content, f"{prefix}{COMMON}", like.common),
        _unpack_row(content, f"{prefix}{OWN}", like.each),
    )


def pack_ups(ups: tuple[Up, ...]) -> dict[str, ArrayRecord]:
    """The records of what one client sends: "arrays", and "arrays-2" of a second message.

    Example:
      >>> list(pack_ups((Up(jnp.zeros((1, 3)), ()), Up(jnp.zeros((1, 3)), ()))))
      ['arrays', 'arrays-2']
    """
    return {
        name: pack(_without_axis(part))
        for number, up in enumerate(ups)
        for name, part in _parts(up, number)
        if jax.tree.leaves(part)
    }


def unpack_ups(content: RecordDict, like: tuple[Up, ...]) -> tuple[Up, ...]:
    """The inverse of `pack_ups`.

    Example:
      >>> up = Up(jnp.ones((1, 1)), ())
      >>> unpack_ups(RecordDict(pack_ups((up,))), (up,))[0].after.tolist()
      [[1.0]]
    """
    ups = []
    for number, up in enumerate(like):
        parts = [_unpack_row(content, name, part) for name, part in _parts(up, number)]
        after, plain, before = parts
        ups.append(Up(after, before, plain))
    return tuple(ups)


def _without_axis(rows: PyTree) -> PyTree:
    """Rows of one client [1, ...] as they are in a message [...]."""
    return jax.tree.map(lambda x: np.asarray(x)[0], rows)


def _unpack_row(content: RecordDict, name: str, like: PyTree) -> PyTree:
    """`unpack`, of what belongs to one client [...], with the client axis [1, ...]."""
    plain = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), like)
    return jax.tree.map(lambda x: x[None], unpack(content, name, plain))


def _parts(up: Up, number: int) -> list[tuple[str, PyTree]]:
    """The parts of a message and the names of their records."""
    end = f"-{number + 1}" if number else ""
    return [(f"{OWN}{end}", up.after), (f"{PLAIN}{end}", up.plain), (f"{START}{end}", up.before)]


def pack_key(key: PRNGKey) -> list[int]:
    """A key of random numbers as integers.

    Example:
      >>> pack_key(jax.random.key(7))
      [0, 7]
    """
    return [int(word) for word in np.asarray(jax.random.key_data(key)).ravel()]


def unpack_key(words: Any) -> PRNGKey:
    """The inverse of `pack_key`.

    Example:
      >>> bool(unpack_key([0, 7]) == jax.random.key(7))
      True
    """
    return jax.random.wrap_key_data(jnp.asarray(words, jnp.uint32))


def order_of(content: RecordDict) -> ConfigRecord:
    """What the server tells beside the arrays: the round, its key, whether the last upload counts.

    Raises:
      InputError: the message is not from a strategy of jaxfl.

    Example:
      >>> order_of(RecordDict({"jaxfl": ConfigRecord({"round": 3})}))["round"]
      3
    """
    order = content.config_records.get(ORDER)
    if order is None:
        raise InputError("a message without the record 'jaxfl': expected one of a FlowerStrategy")
    return order
