"""A run that begins from weights of a file (`--init`)."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from jaxfl.algorithms import ALGORITHMS
from jaxfl.core import tree
from jaxfl.core.errors import InputError, check
from jaxfl.core.facts import facts_of
from jaxfl.core.types import Params, Task
from jaxfl.experiment.store.peft_files import WEIGHTS as ADAPTER
from jaxfl.experiment.store.peft_files import read_adapter
from jaxfl.experiment.store.weights_file import read_weights

# Before the names of the models of a run in `models.npz`, of which the last ones count.
LAST, BEST = "last/", "best/"


def begin_from(task: Task, algorithm: str, file: Path) -> Task:
    """The task whose first model is that of a file, whatever the seed.

    Args:
      task: of the run.
      algorithm: the name of the method.
      file: of weights, see `read_model`.

    Raises:
      InputError: the method does not begin from one model, or the weights do not fit.
    """
    check(
        facts_of(ALGORITHMS[algorithm]).takes_initial_model,
        f"--init: {algorithm} does not begin from one model of all clients: leave it out, or "
        "choose another method",
    )
    like = jax.eval_shape(task.problem.init, jax.random.key(0))
    model = jax.tree.map(jnp.asarray, read_model(file, like))
    return task._replace(problem=task.problem._replace(init=lambda key: model))


def read_model(file: Path, like: Params) -> Params:
    """A model from a file of weights by the paths of its parameters, such as "params/Dense_0/bias".

    Of the `models.npz` of a run it is the mean of the models that its clients deployed last.

    Args:
      file: see `store.weights_file.read_weights`; or the adapters that PEFT wrote, see
        `store.peft_files.read_adapter`.
      like: the shapes and types of the model.

    Raises:
      InputError: the file cannot be read, or its names or shapes are not those of the model; the
        message says the first that does not fit.
    """
    try:
        weights = read_adapter(file.parent) if file.name == ADAPTER else read_weights(file)
    except ValueError as error:
        raise InputError(
            f"--init {file} cannot be read ({error}): give the directory of a run with models.npz, "
            "a folder of PEFT, a safetensors or an npz file of weights"
        ) from error
    is_of_run = bool(weights) and all(name.startswith((LAST, BEST)) for name in weights)
    if is_of_run:
        named = {name: weights[name] for name in weights if name.startswith(LAST)}
        weights = {name.removeprefix(LAST): array for name, array in named.items()}
    leaves, structure = jax.tree_util.tree_flatten_with_path(like)
    shapes = {tree.path(keys): leaf for keys, leaf in leaves}
    model = []
    for name, leaf in shapes.items():
        check(
            name in weights, f"--init {file} has no {name}, which the model has: {_names(weights)}"
        )
        array = weights[name]
        if is_of_run:
            check(
                array.ndim < len(leaf.shape) + 2,
                f"--init {file} is of a run of several seeds, each of which has models of its own: "
                "give a run of one seed",
            )
            # In float64, the mean of equal models is that model.
            array = array.mean(axis=0, dtype=np.float64)
        check(
            array.shape == leaf.shape,
            f"--init {file}: {name} has shape {array.shape}, and in the model {leaf.shape}: give "
            "weights of the same model",
        )
        with np.errstate(over="ignore"):  # what the type cannot hold is not finite, and refused
            array = array.astype(leaf.dtype)
        check(bool(np.isfinite(array).all()), f"--init {file}: {name} is not finite: mend the file")
        model.append(array)
    further = [name for name in weights if name not in shapes]
    check(
        not further,
        f"--init {file} has {further[:1]}, which the model has not: give weights of the same model",
    )
    return jax.tree_util.tree_unflatten(structure, model)


def _names(weights: dict[str, np.ndarray]) -> str:
    names = ", ".join(f"{name:.60}" for name in list(weights)[:4])
    return f"it has {names or 'nothing'}; names are the paths of parameters"
