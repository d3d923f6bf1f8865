"""What the models of a run take and predict, so that they can be used without its data."""

from pathlib import Path

import numpy as np

from jaxfl.core.errors import InputError, check
from jaxfl.data import Source
from jaxfl.data.table.schema import Schema, from_json
from jaxfl.experiment.config import Config
from jaxfl.experiment.store.files import INPUTS
from jaxfl.experiment.store.manifest import digest_file
from jaxfl.experiment.store.read_records import read_digests
from jaxfl.experiment.store.records import Inputs


def inputs_of(source: Source) -> Inputs:
    """What a model takes and predicts, as JSON."""
    examples = source.x_train
    inputs: Inputs = {
        "shape": list(examples.shape[1:]),
        "dtype": str(examples.dtype),
        "classes": int(source.classes),
        "scale": _json_value(source.scale),
        "shift": _json_value(source.shift),
        "vocabulary": list(source.vocabulary),
    }
    if source.y_train.ndim > 1:
        inputs["target"] = list(source.y_train.shape[1:])
    if source.several_labels:
        inputs["several"] = True
    if source.class_names:
        inputs["class_names"] = list(source.class_names)
    if source.schema:
        inputs["schema"] = source.schema
    return inputs


def _json_value(value: float | tuple[float, ...]) -> float | list[float]:
    """A number, or a number for each channel, as JSON has it."""
    return list(value) if isinstance(value, tuple) else value


def check_weights(directory: Path, config: Config) -> None:
    """Checks that the frozen weights of a run are those with which it ran.

    Args:
      directory: of the run.
      config: of the run.

    Raises:
      InputError: the file has changed, or is gone.
    """
    if config.weights is None:
        return
    was = read_digests(directory / INPUTS)["files"].get("--weights")
    try:
        now = digest_file(Path(config.weights))
    except OSError as error:
        raise InputError(
            f"the weights of the run in {directory} cannot be read ({error.strerror}): restore "
            f"{config.weights}"
        ) from error
    check(
        was == now,
        f"{config.weights} is not what it was in the run of {directory}, whose models stand on it: "
        "restore it",
    )


def source_of(inputs: Inputs) -> Source:
    """A data set without an example, for which the models of a run can be made again."""

    def numbers(value: float | list[float]) -> float | tuple[float, ...]:
        return tuple(value) if isinstance(value, list) else value

    x = np.zeros((1, *inputs["shape"]), inputs["dtype"])
    target = inputs.get("target", [])
    dtype = bool if inputs.get("several") else np.int32 if inputs["classes"] else np.float32
    y = np.zeros((1, *target), dtype)
    return Source(
        x,
        y,
        x[:0],
        y[:0],
        inputs["classes"],
        numbers(inputs["scale"]),
        numbers(inputs["shift"]),
        tuple(inputs["vocabulary"]),
    )


def check_inputs(x: np.ndarray, inputs: Inputs) -> np.ndarray:
    """The inputs [B, *shape] in the type of the data of the run.

    Raises:
      InputError: there is none, or they have another shape, numbers that this type does not hold,
        or ids that are not in the vocabulary.
    """
    x = np.asarray(x)
    shape = tuple(inputs["shape"])
    form = ", ".join(map(str, ("B", *shape)))
    check(
        x.ndim == len(shape) + 1 and x.shape[1:] == shape,
        f"the inputs have shape {x.shape}: expected ({form})",
    )
    check(len(x) > 0, "the inputs hold no example: give one or more")
    dtype = np.dtype(inputs["dtype"])
    whole = np.issubdtype(dtype, np.integer)
    check(
        np.issubdtype(x.dtype, np.number) or x.dtype == bool,
        f"the inputs are {x.dtype}: expected {dtype}",
    )
    with np.errstate(invalid="ignore"):
        array = x.astype(dtype)
    check(
        not whole or bool((array == x).all()),
        f"the inputs do not fit into {dtype}: give them as in the data of the run, before any "
        "scaling",
    )
    values = np.array(inputs["vocabulary"])
    check(
        not values.size or bool(((array >= 0) & (array < values)).all()),
        f"the inputs hold ids outside 0 to {values - 1}: give the ids of the run's own data set",
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
