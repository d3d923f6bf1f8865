"""The models that a finished run keeps: written by the run, and read again to predict.

`models.npz` holds the arrays of the models by name, such as `last/params/Dense_0/kernel` [C, ...],
with several seeds [S, C, ...]. Nothing of it is pickled.
"""

from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxfl.core import tree
from jaxfl.core.errors import check, warn
from jaxfl.core.options import checked
from jaxfl.core.types import Params, State
from jaxfl.experiment.config.paths import MODELS
from jaxfl.experiment.session.program import Program, Record
from jaxfl.experiment.session.seeds import Seeds
from jaxfl.experiment.store.files import read_arrays
from jaxfl.simulation import mesh

FILE = MODELS
LARGE = 10**9  # bytes of the file beyond which a run says so before it begins


# Those of the last round, or of each client those of the evaluation with its best validation score.
Which = Literal["last", "best"]


class Best(NamedTuple):
    """The models with which the clients scored best on their validation data so far.

    With several seeds [S, C].
    """

    val: Float[Array, "*c"]  # [C] that score; -inf before the first
    models: Params  # [C, ...]; of a client without validation data the last one


def no_best(program: Program) -> Best:
    """Before the first evaluation: what the clients would deploy."""
    models = program.deploy(program.state)
    built = program.built
    val = np.full(built.seeds.shape(built.clients), -np.inf, np.float32)
    return Best(_place(val, program), models)


def better(best: Best, program: Program, record: Record) -> Best:
    """The best models after an evaluation of some of the clients; as they were without one."""
    if record.evaluation is None:
        return best
    seeds = program.built.seeds
    val = np.full((seeds.count, program.built.clients), -np.inf, np.float32)
    # An error that overflows is still the score of an evaluation.
    scores = np.nan_to_num(record.evaluation.deployed.val, nan=np.nan)
    np.put_along_axis(val, record.evaluated, scores, axis=1)
    score = _place(seeds.without_axis(val), program)
    return _keep_better(seeds, best, score, program.deploy(record.state))


def _place(scores: np.ndarray, program: Program) -> Array:
    """Scores of all clients on the devices of the run."""
    with jax.set_mesh(mesh.make_mesh(program.built.devices)):
        return mesh.place(scores, axis=program.built.seeds.client_axis)


@partial(jax.jit, static_argnums=0)
def _keep_better(seeds: Seeds, best: Best, val: Array, models: Params) -> Best:
    def keep(best: Best, val: Array, models: Params) -> Best:
        # A client that was evaluated and has never had a score has its newest model.
        without = jnp.isnan(val) & ~jnp.isfinite(best.val)
        newer = (val > best.val) | without
        return Best(jnp.fmax(best.val, val), tree.choose(newer, models, best.models))

    return seeds.each(keep, (0, 0, 0))(best, val, models)


def models_of(program: Program, state: State, best: Best) -> dict[str, np.ndarray]:
    """The arrays of `models.npz`; if several processes run together, each must ask for them."""
    models = {"last": program.deploy(state), "best": best.models}
    leaves = jax.tree_util.tree_leaves_with_path(mesh.fetch(models))
    return {tree.path(keys): leaf for keys, leaf in leaves}


def tell_size(best: Best, directory: Path) -> None:
    """Warns before the run if the file of its models will be large."""
    size = 2 * sum(leaf.nbytes for leaf in jax.tree.leaves(best.models))
    if size > LARGE:
        warn(f"{directory / FILE} will take {size / 1e9:.1f} GB: --no-keep-models leaves it out")


@checked
def read_models(directory: Path, which: Which) -> Params:
    """The models of all clients [C, ...], with several seeds [S, C, ...].

    Raises:
      InputError: the run has kept none, or the file is damaged.
    """
    file = directory / FILE
    check(
        file.is_file(),
        f"{directory} holds no {FILE}: run again without --no-keep-models",
    )
    models: dict[str, Any] = {}
    for key, value in read_arrays(file, f"{which}/").items():
        _, *above, name = key.split("/")
        place = models
        for part in above:
            place = place.setdefault(part, {})
        place[name] = value
    return models
