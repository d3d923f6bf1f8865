"""Texts as ids, -1 where a shorter one has ended."""

import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int

from jaxfl.core.errors import check

Ids = Int[Array, "b n"]


def check_ids(x: Array, model: str) -> None:
    """Raises an `InputError` unless x holds ids [B, n].

    Args:
      x: the inputs.
      model: its name, for the message.

    Example:
      >>> check_ids(jnp.zeros((2, 80), int), "bert")
    """
    check(
        x.ndim == 2 and jnp.issubdtype(x.dtype, jnp.integer),
        f"{model} takes integer ids [length], not {x.dtype} of shape {x.shape[1:]}: "
        "choose another model",
    )


def check_one_kind(vocabulary: tuple[int, ...], model: str) -> None:
    """Raises an `InputError` unless all ids are of one kind.

    Args:
      vocabulary: how many ids there are of each kind.
      model: its name, for the message.

    Example:
      >>> check_one_kind((30_522,), "bert")
    """
    check(
        len(vocabulary) == 1,
        f"{model} takes ids of one kind, not of {len(vocabulary)}: choose model mf, for users and "
        "items",
    )


def check_tied(tied: bool, outputs: int, words: int) -> None:
    """Raises an `InputError` if a head that is the embedding of the ids has other outputs.

    Args:
      tied: whether it is the embedding.
      outputs: of the head.
      words: how many ids there are.

    Example:
      >>> check_tied(True, 65, 65)
    """
    check(
        not tied or outputs == words,
        f"a tied head has an output for each of {words} ids, and the targets have {outputs}: if "
        f"these are ids, give the data classes={words}, else leave out tied",
    )


def has_id(x: Ids) -> Bool[Array, "b n"]:
    """Whether a place has an id.

    Example:
      >>> has_id(jnp.array([[5, 0, -1]])).tolist()
      [[True, True, False]]
    """
    return x >= 0


def embed(table: nn.Embed, x: Ids) -> Float[Array, "b n width"]:
    """The row of each id, and zeros where there is none.

    Example:
      >>> table = nn.Embed(2, 1).bind({"params": {"embedding": jnp.array([[3.0], [5.0]])}})
      >>> embed(table, jnp.array([[1, 0, -1]])).tolist()
      [[[5.0], [3.0], [0.0]]]
    """
    rows = table(jnp.maximum(x, 0))
    return jnp.where(has_id(x)[..., None], rows, jnp.zeros((), rows.dtype))


def at_last_id(x: Ids, states: Float[Array, "b n width"]) -> Float[Array, "b width"]:
    """What the last place with an id has; the first place, where there is none.

    Example:
      >>> at_last_id(jnp.array([[4, 2, -1]]), jnp.array([[[1.0], [2.0], [3.0]]])).tolist()
      [[2.0]]
    """
    last = jnp.where(has_id(x), jnp.arange(x.shape[1])[None], 0).max(axis=1)
    return states[jnp.arange(len(x)), last]
