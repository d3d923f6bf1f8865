"""The models that a finished run keeps: written by the run, and read again to predict.

`models.npz` holds the arrays of the models by name, such as `last/params/Dense_0/kernel` [C, ...],
with several seeds [S, C, ...]. Nothing of it is pickled.
"""

from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np

from jaxfl import mesh, tree
from jaxfl.errors import check, warn
from jaxfl.experiment.session.checkpoints import Best
from jaxfl.experiment.session.program import Program
from jaxfl.experiment.store.arrays import read_arrays
from jaxfl.types import Params, State

FILE = "models.npz"
LARGE = 10**9  # bytes of the file beyond which a run says so before it begins
# Those of the last round, or of each client those of the evaluation with its best validation score.
Which = Literal["last", "best"]


def models_of(program: Program, state: State, best: Best) -> dict[str, np.ndarray]:
    """The arrays of `models.npz`; if several processes run together, each must ask for them."""
    kept = {"last": program.deploy(state), "best": best.models}
    named = jax.tree_util.tree_leaves_with_path(mesh.fetch(kept))
    return {tree.path(keys): leaf for keys, leaf in named}


def tell_size(best: Best, directory: Path) -> None:
    """Warns before the run if the file of its models will be large."""
    size = 2 * sum(leaf.nbytes for leaf in jax.tree.leaves(best.models))
    if size > LARGE:
        warn(f"{directory / FILE} will take {size / 1e9:.1f} GB: --no-keep-models leaves it out")


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
