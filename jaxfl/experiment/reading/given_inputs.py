"""What is given to the models of a finished run, held against what they take."""

from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import PyTree

from jaxfl.core.errors import InputError, check
from jaxfl.core.plain_array import plain_array
from jaxfl.data.inputs import is_tree
from jaxfl.data.table.schema import Schema, from_json
from jaxfl.experiment.config import Config
from jaxfl.experiment.store.digests import digest_file
from jaxfl.experiment.store.files import INPUTS
from jaxfl.experiment.store.read_records import read_digests
from jaxfl.experiment.store.records import InputArray, Inputs


def check_weights(directory: Path, config: Config) -> None:
    """Checks that the frozen weights of a run are those with which it ran.

    Args:
      directory: of the run.
      config: of the run.

    Raises:
      InputError: the file has changed, or is gone.
    """
    if config.pretrained is None:
        return
    was = read_digests(directory / INPUTS)["files"].get("--pretrained")
    try:
        now = digest_file(Path(config.pretrained))
    except OSError as error:
        raise InputError(
            f"the weights of the run in {directory} cannot be read ({error.strerror}): restore "
            f"{config.pretrained}"
        ) from error
    check(
        was == now,
        f"{config.pretrained} is not what it was in the run of {directory}, whose models stand on "
        "it: restore it",
    )


def check_inputs(x: PyTree, inputs: Inputs) -> PyTree:
    """The inputs [B, *shape] in the type of the data of the run, or a dict of them.

    Raises:
      InputError: there is none, or they have another shape, numbers that this type does not hold,
        or ids that are not in the vocabulary; or they are other arrays than those of the data.
    """
    arrays = inputs.get("arrays")
    if arrays is None:
        check(
            not is_tree(x),
            f"the inputs are a {type(x).__name__}, and those of the data one array: give one",
        )
        return _check_array("the inputs", x, inputs)
    names = ", ".join(arrays)
    check(
        isinstance(x, dict) and set(x) == set(arrays),
        f"the inputs are {', '.join(x) if isinstance(x, dict) else 'one array'!s:.80}: expected a "
        f"dict of the arrays {names}",
    )
    checked = {name: _check_array(f"the inputs {name}", x[name], arrays[name]) for name in arrays}
    counts = {name: len(array) for name, array in checked.items()}
    check(
        len(set(counts.values())) == 1,
        f"the inputs {names} have different numbers of examples, {list(counts.values())}: expected "
        "a row for each example in every array",
    )
    return checked


def _check_array(what: str, x: Any, inputs: Inputs | InputArray) -> np.ndarray:
    """One array of inputs in the type of the data; `what` is its name in messages."""
    x = plain_array(x, what)
    shape = tuple(inputs["shape"])
    form = ", ".join(map(str, ("B", *shape)))
    check(
        x.ndim == len(shape) + 1 and x.shape[1:] == shape,
        f"{what} have shape {x.shape}: expected ({form})",
    )
    check(len(x) > 0, f"{what} hold no example: give one or more")
    dtype = np.dtype(inputs["dtype"])
    whole = np.issubdtype(dtype, np.integer)
    check(
        x.dtype.kind in "uifb" or x.dtype == dtype,
        f"{what} are {x.dtype}: expected {dtype}",
    )
    with np.errstate(invalid="ignore"):
        array = x.astype(dtype)
    check(
        not whole or bool((array == x).all()),
        f"{what} do not fit into {dtype}: give them as in the data of the run, before any scaling",
    )
    values = np.array(inputs["vocabulary"])
    # A shorter text ends with -1: no id.
    lowest = -1 if values.size == 1 else 0
    check(
        not values.size or bool(((array >= lowest) & (array < values)).all()),
        f"{what} hold ids outside {lowest} to {values - 1}: give the ids of the run's own data set",
    )
    return array


def schema_of(inputs: Inputs, directory: Path) -> Schema:
    """What the columns of a CSV file become for the models of a run.

    Args:
      inputs: of the run.
      directory: of the run, which errors name.

    Raises:
      InputError: the data of the run are not of `jaxfl prepare csv`.
    """
    text = inputs.get("schema")
    if text is None:
        raise InputError(
            f"the data of {directory} are not of jaxfl prepare csv, so that the run does not know "
            "what the columns of a CSV file mean: give an npz file with x"
        )
    file = directory / "summary.json"
    schema = from_json(text, file)
    check(
        len(schema.target.classes) == inputs["classes"],
        f"the columns of {file} have other classes than its models: write the run anew",
    )
    return schema
