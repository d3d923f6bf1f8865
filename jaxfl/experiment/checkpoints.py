"""Checkpoints of a run: all that the rest of it needs, in `checkpoints/ROUND`, each whole or not there."""

import dataclasses
import os
import shutil
import zipfile
import zlib
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxfl import checkpoint, mesh, tree
from jaxfl.errors import InputError
from jaxfl.experiment import files
from jaxfl.experiment.metrics import History
from jaxfl.experiment.run import Program, Record
from jaxfl.types import Params


class Best(NamedTuple):
    """The models with which the clients scored best on their validation data so far; with several seeds [S, C]."""

    val: Float[Array, "*c"]  # [C] that score; -inf before the first
    models: Params  # [C, ...]; of a client without validation data the last one


def no_best(program: Program) -> Best:
    """Before the first evaluation: what the clients would deploy."""
    models = program.deploy(program.state)
    config = program.built.config
    shape = (config.seeds, config.clients) if config.seeds > 1 else (config.clients,)
    return Best(jnp.full(shape, -jnp.inf), models)


def better(best: Best, program: Program, record: Record) -> Best:
    """The best models after an evaluation of some of the clients."""
    config = program.built.config
    val = np.full((config.seeds, config.clients), -np.inf, np.float32)
    evaluated = np.nan_to_num(
        record.evaluation.before.val, nan=np.inf
    )  # without a score: always the newest
    np.put_along_axis(val, record.evaluated, evaluated, axis=1)
    return _keep_better(
        best, jnp.asarray(val.reshape(best.val.shape)), program.deploy(record.state)
    )


@jax.jit
def _keep_better(best: Best, val: Array, models: Params) -> Best:
    def one(best: Best, val: Array, models: Params) -> Best:
        newer = (val > best.val) | (val == jnp.inf)
        return Best(jnp.maximum(best.val, val), tree.choose(newer, models, best.models))

    return one(best, val, models) if val.ndim == 1 else jax.vmap(one)(best, val, models)


def write(out: Path, record: Record, history: History, best: Best | None) -> None:
    """Writes the checkpoint after a record, then removes old ones beyond the newest `--keep`.

    Where several processes run together, each calls it and the first one writes what is not a
    state.
    """
    folder = out / files.CHECKPOINTS
    part, whole = folder / ".part", folder / f"{record.round:06}"
    with files.writing(folder):
        if mesh.is_main_process():
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir(parents=True)
        checkpoint.save(part / "state", record.round, mesh.fetch((record.state, best)))
        if mesh.is_main_process():
            files.write_npz(
                part / "history.npz", history.arrays() | {"seconds": np.array(record.seconds)}
            )
            files.write(part / "metrics.jsonl", files.json_lines(history.lines))
            shutil.rmtree(whole, ignore_errors=True)
            os.replace(part, whole)
            for old in files.checkpoints(out)[: -history.config.keep]:
                shutil.rmtree(old)


def read(
    path: Path, program: Program, best: Best | None, history: History
) -> tuple[Program, Best | None]:
    """The program as it stood at a checkpoint, on the devices of now, and the best models then; fills the history.

    Of `best` only the shapes are read.

    Raises:
      InputError: the checkpoint is not of this program.
    """
    config = program.built.config
    try:
        number, (state, best) = checkpoint.restore(path / "state", (program.state, best))
        with (path / "history.npz").open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            history.restore(dict(arrays), files.read_json_lines(path / "metrics.jsonl"))
            seconds = float(arrays["seconds"])
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        reason = str(error).splitlines()[0]
        raise InputError(
            f"{path} is no checkpoint of this run ({reason}): remove it to resume from the one before, or run anew"
        ) from error
    with jax.set_mesh(mesh.make_mesh(config.devices)):
        state, best = (
            mesh.place(jax.device_get(x), axis=int(config.seeds > 1)) for x in (state, best)
        )
    return dataclasses.replace(program, state=state, done=number, before=seconds), best
