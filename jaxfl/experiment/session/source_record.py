"""What `summary.json` says of a data set, so that the models of a run can be used without it."""

from typing import Any

import numpy as np

from jaxfl.core import tree
from jaxfl.data import Source
from jaxfl.experiment.store.records import InputArray, Inputs


def inputs_of(source: Source) -> Inputs:
    """What a model takes and predicts, as JSON."""
    examples = source.x_train
    several = source.several_inputs
    inputs: Inputs = {
        "shape": [] if several else list(examples.shape[1:]),
        "dtype": "" if several else str(examples.dtype),
        "classes": int(source.classes),
        "scale": 1.0 if several else _json_value(source.scale),
        "shift": _json_value(source.shift),
        "vocabulary": [] if several else list(source.vocabulary),
    }
    if several:
        inputs["arrays"] = {
            name: {
                "shape": list(array.shape[1:]),
                "dtype": str(array.dtype),
                "scale": source.scale[name],
                "vocabulary": list(dict(source.vocabulary).get(name, ())),
            }
            for name, array in examples.items()
        }
    if source.y_train.ndim > 1:
        inputs["target"] = list(source.y_train.shape[1:])
    if source.several_labels:
        inputs["several"] = True
    if source.survival:
        inputs["survival"] = True
    if source.ends:
        inputs["ends"] = list(source.ends)
    if source.class_names:
        inputs["class_names"] = list(source.class_names)
    if source.schema:
        inputs["schema"] = source.schema
    return inputs


def _json_value(value: float | tuple[float, ...]) -> float | list[float]:
    """A number, or a number for each channel, as JSON has it."""
    return list(value) if isinstance(value, tuple) else value


def source_of(inputs: Inputs) -> Source:
    """A data set without an example, for which the models of a run can be made again."""

    def numbers(value: float | list[float]) -> float | tuple[float, ...]:
        return tuple(value) if isinstance(value, list) else value

    def example(array: Inputs | InputArray) -> np.ndarray:
        return np.zeros((1, *array["shape"]), array["dtype"])

    arrays = inputs.get("arrays")
    scale: Any = numbers(inputs["scale"])
    vocabulary: Any = tuple(inputs["vocabulary"])
    if arrays is None:
        x = example(inputs)
    else:
        x = {name: example(array) for name, array in arrays.items()}
        scale = {name: array["scale"] for name, array in arrays.items()}
        ids = {name: tuple(a["vocabulary"]) for name, a in arrays.items() if a["vocabulary"]}
        vocabulary = ids or ()
    target = inputs.get("target", [])
    dtype = bool if inputs.get("several") else np.int32 if inputs["classes"] else np.float32
    y = np.zeros((1, *target), dtype)
    return Source(
        x,
        y,
        tree.at(x, slice(0)),
        y[:0],
        inputs["classes"],
        scale,
        numbers(inputs["shift"]),
        vocabulary,
        survival=inputs.get("survival", False),
        ends=tuple(inputs.get("ends", ())),
    )
