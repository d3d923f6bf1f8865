"""Arrays of published data whose examples belong to persons, roles or domains."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxfl.core.errors import InputError, check
from jaxfl.data.published.originals import Arrays, existing
from jaxfl.data.table.fit import in_order


def by_owner(
    parts: Mapping[str, Sequence[tuple[np.ndarray, np.ndarray]]], classes: Sequence[str]
) -> Arrays:
    """The examples of all owners one after the other, with the names of owners and of classes.

    Owners are in the order of their names. Labels that no example has are left out, and the others
    are numbered without gaps; `class_names` says what they are.

    Args:
      parts: x [n, *feature] and y [n], or labels of positions [n, *positions], of each owner, in
        pieces.
      classes: names of the labels 0, 1, ...

    Returns:
      `x_train`, `y_train`, `owners`, `owner_names` and `class_names`.

    Raises:
      InputError: there are no examples, or all of them have one label.

    Example:
      >>> parts = {"bob": [(np.ones((1, 2)), np.array([2]))], "ann": [(np.zeros((2, 2)), [0, 2])]}
      >>> arrays = by_owner(parts, ["cat", "cow", "dog"])
      >>> arrays["y_train"].tolist(), arrays["owners"].tolist(), arrays["class_names"].tolist()
      ([0, 1, 1], [0, 0, 1], ['cat', 'dog'])
    """
    parts = {name: pieces for name, pieces in parts.items() if sum(len(y) for _, y in pieces)}
    check(bool(parts), "the files hold no examples: download them again")
    names = in_order(dict.fromkeys(parts, 0))
    sizes = [sum(len(y) for _, y in parts[name]) for name in names]
    labels = np.concatenate([y for name in names for _, y in parts[name]])
    present, y = np.unique(labels, return_inverse=True)
    check(
        len(present) > 1,
        f"all examples have the label {classes[int(present[0])]!r:.40}: expected two or more",
    )
    return {
        "x_train": np.concatenate([x for name in names for x, _ in parts[name]]),
        "y_train": y.reshape(labels.shape).astype(np.int32),
        "owners": np.repeat(np.arange(len(names), dtype=np.int32), sizes),
        "owner_names": np.array(names, str),
        "class_names": np.array([classes[int(label)] for label in present], str),
    }


def read_json(file: Path) -> Any:
    """A JSON value.

    Raises:
      InputError: the file is missing, cut off or no JSON.
    """

    def refuse(word: str) -> None:
        raise ValueError(f"{word} is no JSON")

    text = existing(file).read_bytes()
    try:
        return json.loads(text, parse_constant=refuse)
    except (ValueError, RecursionError) as error:  # Python refuses integers of 4,300 digits too
        raise InputError(
            f"{file} is no JSON ({error!r:.100}): it may be cut off, make or download it again"
        ) from error
