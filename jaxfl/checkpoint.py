"""Saving and restoring arrays between rounds, on orbax: nothing is ever pickled."""

from pathlib import Path

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp
from jaxtyping import PyTree


def save(path: Path, round: int, state: PyTree) -> None:
    """Writes the state after `round` rounds to the new directory `path`, whole or not at all.

    Where several processes run together, each calls it with the same arrays.
    """
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(Path(path).absolute(), {"round": jnp.asarray(round), "state": _leaves(state)})


def restore(path: Path, like: PyTree) -> tuple[int, PyTree]:
    """The round and the state in `path`, bit for bit as they were saved.

    Args:
      path: a directory written by `save`.
      like: a state of the same algorithm and model, or its `jax.eval_shape`; its values are not read.

    Raises:
      ValueError: other arrays are saved there.
    """
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(jnp.shape(x), x.dtype), like)
    with ocp.StandardCheckpointer() as checkpointer:
        saved = checkpointer.restore(
            Path(path).absolute(), {"round": jax.ShapeDtypeStruct((), jnp.int32), "state": _leaves(shapes)}
        )
    wanted, found = (
        {name: (x.shape, x.dtype) for name, x in leaves.items()} for leaves in (_leaves(shapes), saved["state"])
    )
    if wanted != found:
        raise ValueError("its arrays have other shapes or types")
    leaves = [saved["state"][name] for name in wanted]
    return int(saved["round"]), jax.tree.unflatten(jax.tree.structure(like), leaves)


def _leaves(state: PyTree) -> dict:
    """The leaves by number: a state may hold any type of pytree, a checkpoint only plain ones."""
    return {f"{i:04}": leaf for i, leaf in enumerate(jax.tree.leaves(state))}
