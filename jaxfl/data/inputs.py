"""Which inputs are valid: one array of examples, or a pytree of arrays with the same examples."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import PyTree

from jaxfl.core import tree
from jaxfl.core.errors import check
from jaxfl.core.plain_array import plain_array

# The two splits.
X = ("x_train", "x_test")
# Bytes: JAX shares the memory of NumPy arrays that begin at a multiple of it.
ALIGNMENT = 64


class Inputs(NamedTuple):
    """The inputs of a data set in the types in which they are kept."""

    x_train: PyTree  # [N, *feature]
    x_test: PyTree  # [N', *feature]
    scale: Any  # as `Source.scale`
    vocabulary: Any  # as `Source.vocabulary`


def check_inputs(x_train: PyTree, x_test: PyTree | None, vocabulary: Any, name: str) -> Inputs:
    """The inputs of a data set.

    Args:
      x_train: [N, *feature], as `from_arrays` takes them.
      x_test: [N', *feature]; None: there are none.
      vocabulary: number of ids, as `from_arrays` takes it.
      name: of the data in messages.

    Raises:
      InputError: an array is no array of real numbers, holds NaN or infinite values or ids outside
        its vocabulary, or train and test do not fit together. The message names the array.

    Example:
      >>> x = {"image": np.zeros((3, 8, 8), np.uint8), "words": np.zeros((3, 5), int)}
      >>> inputs = check_inputs(x, None, {"words": 100}, "the data")
      >>> inputs.scale, inputs.x_test["image"].shape, inputs.vocabulary
      ({'image': 255.0, 'words': None}, (0, 8, 8), {'words': (100,)})
    """
    if not is_tree(x_train):
        check(
            not is_tree(x_test),
            f"x_test of {name} is a {type(x_test).__name__} and x_train is not: expected the same",
        )
        return _one_array(x_train, x_test, vocabulary, name)
    trains = _leaves("x_train", x_train, name)
    tests = {} if x_test is None else _leaves("x_test", x_test, name)
    check(
        x_test is None or jax.tree.structure(x_train) == jax.tree.structure(x_test),
        f"x_train of {name} holds {', '.join(trains)} and x_test {', '.join(tests)}: expected the "
        "same arrays",
    )
    sizes = vocabulary if isinstance(vocabulary, Mapping) else {}
    none = not isinstance(vocabulary, Mapping) and not np.size(vocabulary)
    check(
        (none or bool(sizes)) and set(sizes) <= set(trains),
        f"vocabulary of {name} is {vocabulary!r:.80}: expected a dict with the number of ids of "
        f"some of the arrays {', '.join(trains)}",
    )
    each = {
        path: _one_array(x, tests.get(path), np.atleast_1d(sizes.get(path, ())), name, path)
        for path, x in trains.items()
    }
    examples = {split: {path: len(getattr(x, split)) for path, x in each.items()} for split in X}
    for split, counts in examples.items():
        check(
            len(set(counts.values())) == 1,
            f"the arrays of {split} of {name} have different numbers of examples "
            f"({', '.join(f'{path} {count}' for path, count in counts.items())}): expected a row "
            "for each example in every array",
        )
    structure = jax.tree.structure(x_train)
    x_train, x_test, scale = (
        structure.unflatten([getattr(x, field) for x in each.values()]) for field in (*X, "scale")
    )
    ids = {path: x.vocabulary for path, x in each.items() if x.vocabulary}
    return Inputs(x_train, x_test, scale, ids or ())


def is_tree(x: Any) -> bool:
    """Whether inputs are a pytree of arrays: a dict or a tuple. A list of numbers is one array.

    Example:
      >>> is_tree({"image": np.zeros((3, 8))}), is_tree([[1.0], [2.0]])
      (True, False)
    """
    return isinstance(x, dict | tuple)


def _leaves(kind: str, x: PyTree, name: str) -> dict[str, Any]:
    """The arrays of a pytree by their paths."""

    def stop(node: Any) -> bool:
        return not is_tree(node)

    leaves = {
        tree.path(keys): leaf for keys, leaf in jax.tree_util.tree_leaves_with_path(x, is_leaf=stop)
    }
    wrong = [path for path, leaf in leaves.items() if np.ndim(leaf) == 0]
    check(
        is_tree(x) and bool(leaves) and not wrong,
        f"{kind} of {name} is a {type(x).__name__} "
        + (f"whose {wrong[0]} is no array" if wrong else "without arrays")
        + ": expected arrays [examples, *feature], such as {'image': images, 'mask': masks}",
    )
    return leaves


def _one_array(x_train: Any, x_test: Any, vocabulary: Any, name: str, path: str = "") -> Inputs:
    """One array of inputs; `path` is where it stands in a pytree."""
    behind = f"/{path}" if path else ""
    x_train = plain_array(x_train, f"x_train{behind} of {name}")
    nothing = np.atleast_1d(x_train)[:0]
    x_test = nothing if x_test is None else plain_array(x_test, f"x_test{behind} of {name}")
    for split, x in (("train", x_train), ("test", x_test)):
        what = f"x_{split}{behind} of {name}"
        # In a pytree an array may have one number an example, or booleans: a mask.
        least = 1 if path else 2
        check(
            x.ndim >= least and (x.size > 0 or (split == "test" and x.shape[0] == 0)),
            f"{what} has shape {x.shape}: expected [examples, *feature]",
        )
        check(
            x.dtype.kind in ("uifb" if path else "uif"),
            f"{what} has type {x.dtype}: expected real numbers",
        )
        check_finite(what, x)
    examples = f"{path} of {name}" if path else f"examples of {name}"
    check(
        x_train.shape[1:] == x_test.shape[1:],
        f"{examples} have shape {x_train.shape[1:]} in train and {x_test.shape[1:]} in test: "
        "expected the same",
    )
    what = f"vocabulary{behind} of {name}"
    ids = plain_array(vocabulary, what)
    check(
        ids.ndim == 1 and (not ids.size or (ids.dtype.kind in "ui" and ids.min() > 0)),
        f"{what} is {ids.tolist()!r:.80}: expected positive integers, a list of them",
    )
    sizes = tuple(ids.tolist())
    scale: float | None = 1.0
    kind: type = np.float32
    if sizes:
        _check_ids(x_train, x_test, sizes, name, behind)
        kind = np.int32
        scale = None if path else 1.0
    elif x_train.dtype in (np.uint8, np.bool_):
        check(
            x_test.dtype == x_train.dtype,
            f"x_train{behind} of {name} has type {x_train.dtype} and x_test {x_test.dtype}: "
            "expected the same",
        )
        kind = np.uint8 if x_train.dtype == np.uint8 else np.bool_
        scale = 255.0 if x_train.dtype == np.uint8 else None
    return Inputs(aligned_copy(x_train, kind), aligned_copy(x_test, kind), scale, sizes)


def aligned_copy(x: np.ndarray, dtype: type) -> np.ndarray:
    """A copy whose memory JAX can share on a CPU, so that a federation needs no further copy.

    Example:
      >>> aligned_copy(np.ones((3, 2)), np.float32).ctypes.data % 64
      0
    """
    size = x.size * np.dtype(dtype).itemsize
    memory = np.empty(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    copy = memory[start : start + size].view(dtype).reshape(x.shape)
    copy[...] = x
    return copy


def check_finite(what: str, values: np.ndarray) -> None:
    """Raises an `InputError` if values are NaN, or infinite as float32.

    Args:
      what: the array, for the message.
      values: of it.

    Example:
      >>> check_finite("x_train of the data", np.array([1.0, np.nan]))
      Traceback (most recent call last):
      jaxfl.core.errors.InputError: x_train of the data holds 1 NaN or infinite values: remove or...
    """
    if values.dtype.kind != "f":
        return
    with np.errstate(over="ignore"):
        bad = int((~np.isfinite(values.astype(np.float32))).sum())
    check(bad == 0, f"{what} holds {bad} NaN or infinite values: remove or replace them")


def _check_ids(
    x_train: np.ndarray, x_test: np.ndarray, vocabulary: tuple[int, ...], name: str, behind: str
) -> None:
    columns = x_train.shape[-1]
    check(
        x_train.dtype.kind in "ui" and len(vocabulary) in (1, columns) and max(vocabulary) < 2**31,
        f"vocabulary{behind} of {name} is {vocabulary} for examples of shape {x_train.shape[1:]} "
        f"and type {x_train.dtype}: expected integers, and one number of values or one per column",
    )
    for split, x in (("train", x_train), ("test", x_test)):
        several = len(vocabulary) > 1
        high = x.max(axis=0, initial=0) if several else x.max(initial=0)
        # A shorter text ends with -1: no id.
        lowest = 0 if several else -1
        check(
            x.min(initial=0) >= lowest and bool(np.all(high < np.array(vocabulary))),
            f"x_{split}{behind} of {name} holds ids outside {lowest} to "
            f"{np.array(vocabulary) - 1}: correct them or the vocabulary",
        )
