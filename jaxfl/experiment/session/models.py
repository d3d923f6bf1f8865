"""The models that a run keeps; `reading.read_models` reads them again.

`models.npz` holds the arrays of the models by name, such as `last/params/Dense_0/kernel` [C, ...],
with several seeds [S, C, ...]. A snapshot, `snapshots/ROUND.npz`, holds those of another round than
the last one in the same way. Nothing of it is pickled.
"""

from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxfl.core import tree
from jaxfl.core.errors import warn
from jaxfl.core.types import Params
from jaxfl.experiment.config.paths import MODELS
from jaxfl.experiment.session.run_program import Program, Record
from jaxfl.experiment.session.seeds import Seeds
from jaxfl.experiment.store.files import SNAPSHOTS, make_directory, remove, write_npz
from jaxfl.simulation import mesh, processes

LARGE = 10**9  # bytes of the file beyond which a run says so before it begins


class Best(NamedTuple):
    """The models with which the clients scored best on their validation data so far.

    With several seeds [S, C].
    """

    val: Float[Array, "*c"]  # [C] that score; -inf before the first
    models: Params  # [C, ...]; of a client without validation data the last one


def no_best(program: Program) -> Best:
    """Before the first evaluation: what the clients would deploy."""
    val = np.full(program.seeds.shape(program.clients), -np.inf, np.float32)
    return Best(_place(val, program), program.deploy(program.state))


def better(best: Best, program: Program, record: Record) -> Best:
    """The best models after an evaluation of some of the clients; as they were without one."""
    if record.evaluation is None:
        return best
    seeds = program.seeds
    val = np.full((seeds.count, program.clients), -np.inf, np.float32)
    # An error that overflows is still the score of an evaluation.
    scores = np.nan_to_num(record.evaluation.deployed.val, nan=np.nan)
    np.put_along_axis(val, record.evaluated, scores, axis=1)
    score = _place(seeds.without_axis(val), program)
    return _keep_better(seeds, best, score, program.deploy(record.state))


def _place(scores: np.ndarray, program: Program) -> Array:
    """Scores of all clients on the devices of the run."""
    with jax.set_mesh(mesh.make_mesh(program.devices)):
        return mesh.place(scores, axis=program.seeds.client_axis)


@partial(jax.jit, static_argnums=0)
def _keep_better(seeds: Seeds, best: Best, val: Array, models: Params) -> Best:
    def keep(best: Best, val: Array, models: Params) -> Best:
        # A client that was evaluated and has never had a score has its newest model.
        without = jnp.isnan(val) & ~jnp.isfinite(best.val)
        newer = (val > best.val) | without
        return Best(jnp.fmax(best.val, val), tree.choose(newer, models, best.models))

    return seeds.each(keep, (0, 0, 0))(best, val, models)


def write_models(models: dict[str, Params], file: Path) -> None:
    """Writes models by name. Of several processes each calls it and the first one writes."""
    leaves = jax.tree_util.tree_leaves_with_path(mesh.fetch(models))
    if processes.is_main_process():
        arrays = {tree.path(keys): leaf for keys, leaf in leaves}
        write_npz(file, arrays, compressed=False)


def write_snapshot(models: Params, number: int, out: Path) -> None:
    """Writes the models that all clients deploy after a round, as `write_models` does.

    Args:
      models: what `Program.deploy` gives.
      number: of the round.
      out: the directory of the run.
    """
    make_directory(out / SNAPSHOTS)
    write_models({"last": models}, snapshot(out, number))


def drop_snapshots(out: Path, done: int) -> None:
    """Removes the snapshots of rounds that are to come, which a stopped run has left."""
    for number in snapshots(out):
        if number > done:
            remove(snapshot(out, number))


def snapshots(directory: Path) -> list[int]:
    """The rounds whose models a run has kept beside those of the last one, in their order."""
    return sorted(int(p.stem) for p in (directory / SNAPSHOTS).glob("*.npz") if p.stem.isdecimal())


def lost_snapshots(out: Path, every: int | None, done: int) -> list[Path]:
    """The snapshots that a run has written up to a round and that are no longer there."""
    numbers = range(every, done + 1, every) if every else ()
    files = (snapshot(out, number) for number in numbers)
    return [file for file in files if not file.exists()]


def snapshot(directory: Path, number: int) -> Path:
    """The file of the models after a round."""
    return directory / SNAPSHOTS / f"{number:06}.npz"


def tell_size(best: Best, directory: Path, every: int | None, rounds: int) -> None:
    """Warns before the run if the files of its models will be large.

    Args:
      best: of the size of all models.
      directory: of the run.
      every: rounds between two snapshots.
      rounds: of the run.
    """
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(best.models))
    if 2 * size > LARGE:
        warn(
            f"{directory / MODELS} will take {2 * size / 1e9:.1f} GB: --keep models=none leaves it "
            "out"
        )
    count = rounds // every if every else 0
    if count * size > LARGE:
        warn(
            f"{directory / SNAPSHOTS} will take {count * size / 1e9:.1f} GB, {size / 1e9:.2g} GB "
            f"for each of {count} rounds: a larger number in --keep models keeps fewer"
        )
