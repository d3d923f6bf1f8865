"""Saving and restoring arrays between rounds with orbax; nothing is ever pickled."""

import errno
import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from jaxfl.simulation.processes import is_main_process


def save(path: Path, round: int, state: PyTree) -> None:
    """Writes the state after `round` rounds to the new directory `path`, completely or not at all.

    Of several processes that run together, each may call it, and the first one writes.

    Raises:
      OSError: the state cannot be written, for example because the disk is full.

    Example:
      >>> save(Path("3"), 3, {"model": jnp.array([1.0, 2.0])})
      >>> Path("3").is_dir()
      True
    """
    if not is_main_process():
        return
    # A full disk is detected here, because orbax's own message has many lines.
    room = 2 * sum(np.dtype(x.dtype).itemsize * np.size(x) for x in jax.tree.leaves(state))
    if shutil.disk_usage(Path(path).absolute().parent).free < room:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    try:
        with _checkpointer() as checkpointer:
            checkpointer.save(
                Path(path).absolute(),
                {"round": np.asarray(round, np.int32), "state": _leaves(state)},
            )
    except (ValueError, RuntimeError) as error:  # orbax turns an OSError into these
        raise OSError(str(error).splitlines()[0][:200]) from error


def restore(path: Path, like: PyTree) -> tuple[int, PyTree]:
    """The round and the state in `path`, bit for bit as they were saved.

    Args:
      path: a directory written by `save`.
      like: a state of the same algorithm and model, or its `jax.eval_shape`; its values are not
        read.

    Returns:
      The round, and the state as NumPy arrays (`mesh.place` puts them on devices).

    Raises:
      ValueError: the saved arrays have other shapes or types.

    Example:
      >>> save(Path("3"), 3, {"model": jnp.array([1.0, 2.0])})
      >>> round, state = restore(Path("3"), like={"model": jnp.zeros(2)})
      >>> round, state["model"].tolist()
      (3, [1.0, 2.0])
    """
    template = _leaves(
        jax.tree.map(lambda x: np.broadcast_to(np.zeros((), x.dtype), np.shape(x)), like)
    )
    with _checkpointer() as checkpointer:
        content = checkpointer.restore(
            Path(path).absolute(), {"round": np.zeros((), np.int32), "state": template}
        )
    expected = {name: (leaf.shape, leaf.dtype) for name, leaf in template.items()}
    shapes = {name: (leaf.shape, leaf.dtype) for name, leaf in content["state"].items()}
    if expected != shapes:
        raise ValueError("its arrays have other shapes or types")
    leaves = [content["state"][name] for name in template]
    return int(content["round"]), jax.tree.unflatten(jax.tree.structure(like), leaves)


@contextmanager
def _checkpointer() -> Iterator[Any]:
    """Orbax's checkpointer, of this process alone: others may not see the same disk."""
    import orbax.checkpoint as ocp

    options = ocp.options.MultiprocessingOptions()
    if jax.process_count() > 1:
        process = jax.process_index()
        options = ocp.options.MultiprocessingOptions(
            primary_host=process,
            active_processes={process},
            barrier_sync_key_prefix=f"process{process}",
        )
    with (
        _without_log(),
        ocp.StandardCheckpointer(multiprocessing_options=options) as checkpointer,
    ):
        yield checkpointer


@contextmanager
def _without_log() -> Iterator[None]:
    """Within, orbax logs nothing: it logs a traceback of each error that it raises."""
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)


def _leaves(state: PyTree) -> dict:
    """The leaves by number: a state may hold any pytree type, a checkpoint only built-in ones."""
    return {f"{i:04}": leaf for i, leaf in enumerate(jax.tree.leaves(state))}
