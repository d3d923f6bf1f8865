"""The random streams of a round, by name.

The key of a round is split into one key for each stream, before any client id is folded in. The key
of a client is the key of its stream with the client's id folded in. Therefore no client gets the
same key from two streams.

The number of a stream is its place in `Stream`, and it is folded into the key, so the order of the
names decides the bits of all results. The list is append only: a new stream goes to the end, and no
name is moved or removed.
"""

from typing import Literal, get_args

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key

from jaxfl.core.errors import check
from jaxfl.core.options import checked

# Append only: the place of a name decides the bits of results.
Stream = Literal[
    "fit",  # the first local training of a round, so that all methods see the same batches
    "upload",  # the noise on the clients' uploads
    "server",  # random numbers of the server: first centres of clusters, its own networks
    "evaluate",  # losses and gradients of given models
    "second_fit",  # a second local training in the same round
    "third_fit",  # a third one
    "second_upload",  # a second upload in the same round
    "disturb",  # disturbances of mixing weights
    "work",  # how much of its local training each client does
    "lost",  # whose uploads are lost
    "edge_loss",  # which messages on the edges of a network are lost
    "edge_part",  # which numbers of a model a message on an edge has
]


@checked
def stream(key: Key[Array, ""], name: Stream) -> Key[Array, ""]:
    """The key of a stream.

    Args:
      key: of the round, or of the initial state.
      name: of the stream.

    Example:
      >>> key = jax.random.key(0)
      >>> bool(stream(key, "fit") == stream(key, "upload"))
      False
    """
    return jax.random.fold_in(key, get_args(Stream).index(name))


def check_key(key: object) -> None:
    """Raises an `InputError` if something else stands in the place of a key.

    Example:
      >>> check_key(0)
      Traceback (most recent call last):
      jaxfl.core.errors.InputError: the key has type int: expected a key such as jax.random.key(0)
    """
    dtype = getattr(key, "dtype", None)
    kind = type(key).__name__ if dtype is None else dtype
    check(
        dtype is not None and (jnp.issubdtype(dtype, jax.dtypes.prng_key) or dtype == jnp.uint32),
        f"the key has type {kind}: expected a key such as jax.random.key(0)",
    )
    # An old key is two or four numbers.
    axes = getattr(key, "ndim", 0) - (dtype == jnp.uint32)
    check(axes == 0, "there are several keys: expected one, or jax.vmap over them")


def client_keys(key: Key[Array, ""], ids: Int[Array, "m"]) -> Key[Array, "m"]:
    """The key of each client [M], which depends on the key of the stream and the client's id.

    Example:
      >>> keys = client_keys(jax.random.key(0), jnp.array([3, 5]))
      >>> bool(keys[1] == client_keys(jax.random.key(0), jnp.array([5]))[0])
      True
    """
    return jax.vmap(jax.random.fold_in, (None, 0))(key, ids)
