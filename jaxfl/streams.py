"""Random streams of a round, by name.

The key of a round is split into one key for each stream before any client's id is folded in, and a
client's key is its stream's key with the id folded in. So two streams share a key for no client.
"""

from typing import Literal, get_args

import jax
from jaxtyping import Array, Int, Key

Stream = Literal[
    "fit",  # the local training that every method does: all methods see the same batches
    "upload",  # noise of the clients' upload
    "server",  # what the server draws: seeds of clusters, its networks
    "evaluate",  # losses and gradients of given models
    "second_fit",  # a second local training of the round
    "third_fit",
    "second_upload",
    "disturb",  # disturbances of mixing weights
]


def stream(key: Key[Array, ""], name: Stream) -> Key[Array, ""]:
    """The key of a stream.

    Args:
      key: of the round, or of the initial state.
      name: of the stream.
    """
    return jax.random.fold_in(key, get_args(Stream).index(name))


def client_keys(key: Key[Array, ""], ids: Int[Array, "m"]) -> Key[Array, "m"]:
    """The key of each client in a stream [M]: it depends on the stream and the client's id alone."""
    return jax.vmap(jax.random.fold_in, (None, 0))(key, ids)
