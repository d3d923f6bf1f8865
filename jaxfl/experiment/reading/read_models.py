"""The models that a finished run has kept, see `session.models`."""

from pathlib import Path
from typing import Any, Literal

import jax

from jaxfl.core import tree
from jaxfl.core.errors import check
from jaxfl.core.options import checked
from jaxfl.core.types import Params
from jaxfl.experiment.config.paths import MODELS
from jaxfl.experiment.session.models import snapshot, snapshots
from jaxfl.experiment.store.files import SNAPSHOTS, read_arrays

# Those of the last round, or of each client those of the evaluation with its best validation score.
Which = Literal["last", "best"]
Models = Which | int  # or those after a round that `--keep models=ROUNDS` has kept


@checked
def read_models(directory: Path, which: Models) -> Params:
    """The models of all clients [C, ...], with several seeds [S, C, ...].

    Args:
      directory: of the run.
      which: those of the last round, the best, or those of a round that was kept (`--keep
        models=ROUNDS`).

    Raises:
      InputError: the run has kept none, or the file is damaged.
    """
    if isinstance(which, int):
        numbers = snapshots(directory)
        has = f"those of {', '.join(map(str, numbers[:20]))}" if numbers else "none"
        check(
            which in numbers,
            f"{directory} holds no models of round {which} in {SNAPSHOTS}, and {has}: "
            "--keep models=ROUNDS keeps them",
        )
        return _read(snapshot(directory, which), "last")
    file = directory / MODELS
    check(
        file.is_file(),
        f"{directory} holds no {MODELS}: run again without --keep models=none",
    )
    return _read(file, which)


def in_form(model: Params, like: Params) -> Params:
    """A model of nested dictionaries, as files have it, in the form of another with the same paths.

    Such a form may have lists, or None in the place of frozen parameters. A model with other paths
    stays as it is.

    Args:
      model: one model.
      like: of the form, with the shapes of its leaves.

    Example:
      >>> in_form({"0": {"w": 1.0}, "1": {"w": 2.0}}, [{"w": 0.0, "b": None}, {"w": 0.0}])
      [{'w': 1.0, 'b': None}, {'w': 2.0}]
    """
    arrays = {tree.path(keys): leaf for keys, leaf in jax.tree_util.tree_leaves_with_path(model)}
    leaves, structure = jax.tree_util.tree_flatten_with_path(like)
    paths = [tree.path(keys) for keys, _ in leaves]
    if set(paths) != set(arrays):
        return model
    return jax.tree_util.tree_unflatten(structure, [arrays[path] for path in paths])


def _read(file: Path, which: str) -> Params:
    """The models under a name in a file.

    Raises:
      InputError: the file is damaged.
    """
    models: dict[str, Any] = {}
    for key, value in read_arrays(file, f"{which}/").items():
        _, *above, name = key.split("/")
        place = models
        for part in above:
            place = place.setdefault(part, {})
        place[name] = value
    return models
