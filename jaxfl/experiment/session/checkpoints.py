"""Checkpoints of a run in `checkpoints/ROUND`: all that its remaining rounds need, or nothing."""

import dataclasses
import os
import shutil
from functools import partial
from pathlib import Path

import jax
import numpy as np

from jaxfl.core.errors import InputError, check, warn
from jaxfl.experiment.config import Config, differences
from jaxfl.experiment.session.build import Built
from jaxfl.experiment.session.history import History
from jaxfl.experiment.session.models import Best
from jaxfl.experiment.session.run_program import Program, Record
from jaxfl.experiment.store import files
from jaxfl.experiment.store.digests import check_inputs
from jaxfl.experiment.store.manifest import check_pieces, read_manifest, write_manifest
from jaxfl.experiment.store.read_records import read_digests
from jaxfl.experiment.store.records import Digests
from jaxfl.simulation import checkpoint, mesh, processes


def write_checkpoint(
    out: Path, config: Config, record: Record, history: History, best: Best | None, built: Built
) -> Path:
    """Writes the checkpoint after a record, then removes old ones beyond the newest ones.

    What earlier checkpoints have of the rounds is not written again: it is in pieces, which all
    checkpoints share.

    Where several processes run together, each calls it and the first one writes.

    Args:
      out: the directory of the run.
      config: of the run.
      record: has the state.
      history: of the run, up to the record.
      best: the best models so far, if the run keeps them.
      built: the run.

    Returns:
      The folder of the checkpoint.
    """
    folder = out / files.CHECKPOINTS
    draft, whole = folder / ".part", folder / f"{record.round:06}"
    data = built.data.digest  # which all processes compute together
    with files.writing(folder):
        if processes.is_main_process():
            shutil.rmtree(draft, ignore_errors=True)
            draft.mkdir(parents=True)
        # Without the padding, which belongs to the devices of now.
        axis = history.seeds.client_axis
        state = mesh.unpad(mesh.fetch(record.state), built.clients, axis=axis)
        best = mesh.fetch(best)
        if processes.is_main_process():
            history.archive.write()
            checkpoint.save(draft / "state", record.round, (state, best))
            files.write_npz(
                draft / "history.npz", history.arrays() | {"seconds": np.array(record.seconds)}
            )
            options = dataclasses.asdict(config)
            pieces = history.archive.digest.hexdigest()
            write_manifest(draft, record.round, options, data, built.inputs, pieces)
            shutil.rmtree(whole, ignore_errors=True)
            os.replace(draft, whole)
            for old in files.checkpoints(out)[: -built.options.keeping.keep_checkpoints]:
                shutil.rmtree(old)
    return whole


def find_checkpoint(directory: Path, config: Config, digests: Digests) -> Path | None:
    """The newest checkpoint whose files are as they were written; None if the run has none.

    A damaged checkpoint is skipped with a warning.

    Args:
      directory: of the run.
      config: of the run now, resolved.
      digests: of what the run reads now.

    Raises:
      InputError: all checkpoints are damaged, the options have changed since, or the data or a file
        that the run reads have changed since then, or since the run began if it has no checkpoint.
    """
    reasons = []
    for path in reversed(files.checkpoints(directory)):
        try:
            manifest = read_manifest(path)
            check_pieces(directory / files.ROUNDS, manifest)
        except ValueError as error:
            reasons.append(f"{path} cannot be used ({error})")
            continue
        changes = differences(manifest["options"], config, manifest["round"])
        check(
            not changes,
            f"the options of the run have changed since {path} was written ({'; '.join(changes)}): "
            "restore them, or run anew with --overwrite",
        )
        check_inputs(path, {"data": [manifest["data"]], "files": manifest["inputs"]}, digests)
        for reason in reasons:
            warn(f"{reason}: the run goes on from {path}")
        return path
    check(
        not reasons,
        f"{'; '.join(reasons)}: remove {directory / files.CHECKPOINTS} to begin from round 0, or "
        "run anew with --overwrite",
    )
    place = directory / files.INPUTS
    check_inputs(place, read_digests(place), digests)
    return None


def read_checkpoint(
    path: Path, program: Program, best: Best | None, history: History, padded: bool
) -> tuple[Program, Best | None]:
    """The program as it stood at a checkpoint, on the devices of now, and the best models then.

    Args:
      path: of the checkpoint.
      program: before its first round.
      best: of which only the shapes are read.
      history: to fill.
      padded: whether the clients are divided among the devices, and so may need padding.

    Raises:
      InputError: the checkpoint is not of this program.
    """
    axis = program.seeds.client_axis
    try:
        like = jax.eval_shape(
            partial(mesh.unpad, clients=program.clients, axis=axis), program.state
        )
        number, (state, best) = checkpoint.restore(path / "state", (like, best))
        with (path / "history.npz").open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            history.restore(number, dict(arrays))
            seconds = float(arrays["seconds"])
    except Exception as error:  # NumPy and orbax raise a dozen types
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(
            f"{path} is no checkpoint of this run ({reason}): remove it to resume from the one "
            "before, or run anew"
        ) from error
    with jax.set_mesh(mesh.make_mesh(program.devices)):
        state = jax.device_get(state)
        state = mesh.place(mesh.pad(state, axis=axis) if padded else state, axis=axis)
        best = mesh.place(jax.device_get(best), axis=axis)
    return dataclasses.replace(program, state=state, done=number, before=seconds), best
