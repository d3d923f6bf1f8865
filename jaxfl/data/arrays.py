"""A data set as arrays: which arrays are valid, and how they are read from a file."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxfl.core.errors import InputError, check
from jaxfl.data.improbable import warn_improbable
from jaxfl.data.source import Source
from jaxfl.data.superclasses import SUPERCLASSES
from jaxfl.data.table.schema import from_json
from jaxfl.data.targets import check_targets, weights_of_labelled
from jaxfl.data.weights import check_weights, weights_of_all

# Bytes: JAX shares the memory of NumPy arrays that begin at a multiple of it.
ALIGNMENT = 64
# Letters of the name of an owner, of a class or of a feature at most.
LONGEST = 200


# Means and standard deviations of each channel, for values in [0, 1]. CIFAR: from pFedGraph's code;
# the grey sets: of their training images; SVHN: the values in common use.
CHANNELS = {
    "mnist": ((0.1307,), (0.3081,)),
    "fashion_mnist": ((0.2860,), (0.3530,)),
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
    "cifar100": ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
    "svhn_cropped": ((0.4377, 0.4438, 0.4728), (0.1980, 0.2010, 0.1970)),
}
MIRRORS = ("cifar10", "cifar100")  # the sets whose images pFedGraph's code mirrors


def from_npz(file: Path) -> Source:
    """A data set from a file; nothing is ever unpickled.

    The arrays are those of `from_arrays`: `x_train y_train`, and optionally `x_test y_test owners
    vocabulary classes owner_names class_names feature_names superclasses weights weights_test`.
    `jaxfl prepare csv` adds `schema`. CIFAR-100 has its superclasses by its name (`SUPERCLASSES`).
    Images of a set with known channel means (`CHANNELS`) are normalised by them.

    Raises:
      InputError: the file is damaged or hostile, or does not hold examples with targets.
    """
    names = ("owner_names", "class_names", "feature_names")
    test = ("x_test", "y_test", "weights_test")
    numbers = ("owners", "vocabulary", "classes", "superclasses")
    optional = (*test, "weights", *numbers, *names, "schema")
    arrays: dict[str, Any] = read_npz(file, ("x_train", "y_train"), optional)
    schema = arrays.pop("schema", None)
    published = SUPERCLASSES.get(file.stem)
    if published and len(np.unique(arrays["y_train"])) == len(published):
        arrays.setdefault("superclasses", published)
    source = from_arrays(**arrays, name=str(file))
    if schema is not None:
        text = str(schema)
        table = from_json(text, file)
        check(
            table.features == list(source.feature_names)
            and table.target.classes == source.class_names,
            f"the features or classes of {file} are not those of its columns: make it anew with "
            "jaxfl prepare csv",
        )
        source = source._replace(schema=text)
    mean, deviation = CHANNELS.get(file.stem, ((), ()))
    source = source._replace(mirrors=file.stem in MIRRORS)
    if source.x_train.dtype == np.uint8 and source.x_train.shape[-1] == len(mean):
        source = source._replace(
            shift=tuple(255 * m for m in mean), scale=tuple(255 * d for d in deviation)
        )
    return source


def read_npz(
    file: Path, required: tuple[str, ...], optional: tuple[str, ...] = ()
) -> dict[str, np.ndarray]:
    """The named arrays of a file.

    Raises:
      InputError: the file cannot be read without unpickling, or lacks a required array.
    """
    try:
        with file.open("rb") as handle, np.load(handle, allow_pickle=False) as npz:
            arrays = {key: npz[key] for key in (*required, *optional) if key in npz}
    except Exception as error:  # NumPy raises a dozen types for a damaged or hostile file
        raise InputError(
            f"cannot read {file} as plain npz arrays ({error!r:.200}): write it with numpy.savez"
        ) from error
    missing = [key for key in required if key not in arrays]
    check(not missing, f"{file} lacks {', '.join(missing)}: expected arrays {', '.join(required)}")
    return arrays


def from_arrays(
    x_train: np.ndarray,
    y_train: np.ndarray,
    x_test: np.ndarray | None = None,
    y_test: np.ndarray | None = None,
    *,
    owners: np.ndarray | None = None,
    vocabulary: np.ndarray | Sequence[int] = (),
    classes: np.ndarray | int | None = None,
    owner_names: np.ndarray | Sequence[str] = (),
    class_names: np.ndarray | Sequence[str] = (),
    feature_names: np.ndarray | Sequence[str] = (),
    superclasses: np.ndarray | Sequence[int] = (),
    weights: np.ndarray | None = None,
    weights_test: np.ndarray | None = None,
    name: str = "the data",
) -> Source:
    """A data set from arrays in memory.

    Args:
      x_train: [N, *feature], uint8 (divided by 255 when used), real numbers, or integer ids if
        `vocabulary` is given.
      y_train: [N] integers from 0, or a label for each position (pixel, token) [N, *positions],
        where -1 is a position without a label; or booleans [N, classes], the labels that an example
        has; or real numbers to predict, [N] or several of an example [N, k, ...]. An example
        without any labelled position weighs 0.
      x_test: [N', *feature]. If None there is no test set, and clients are tested on parts of their
        own data.
      y_test: [N', ...] as in training.
      owners: integers [N], the natural client of each training example: the clients of the
        partition `natural`.
      vocabulary: number of ids in x, where it holds ids: (words,), or one number for each column.
      classes: how many labels there are, of which some may occur in no training example. None: as
        many as the largest label of y_train says, and all must occur, but for labels of positions
        of ids, which may be ids themselves.
      owner_names: of the owners 0, 1, ... Where labels of named owners are to be predicted, the
        examples of a client are divided into training, validation and test by label, unless
        `federate` is told otherwise.
      class_names: of the labels 0, 1, ...
      feature_names: of the columns of x [N, F], or of the channels of series [N, steps, F].
      superclasses: of the labels 0, 1, ..., numbers from 0 without gaps: the partition
        `superclasses` gives each client the labels of one.
      weights: [N] what each training example weighs, in losses and in validation and test scores;
        numbers of at least 0, of which only the ratios matter. None: all weigh 1. They do not
        change how many examples a client has, by which the server may weigh it.
      weights_test: [N'] the same of the test examples.
      name: of the data in messages.

    Raises:
      InputError: values are NaN or infinite, labels are not integers in range, or shapes do not
        match.

    Example:
      >>> x = np.random.default_rng(0).normal(size=(60, 4))
      >>> source = from_arrays(x, np.arange(60) % 3, owners=np.arange(60) // 20)
      >>> source.classes, source.x_train.dtype.name, len(source.x_test)
      (3, 'float32', 0)
    """
    x_train = np.asarray(x_train)
    y_train = np.asarray(y_train)
    x_test = np.atleast_1d(x_train)[:0] if x_test is None else np.asarray(x_test)
    y_test = np.atleast_1d(y_train)[:0] if y_test is None else np.asarray(y_test)
    for split, x, y in (("train", x_train, y_train), ("test", x_test, y_test)):
        check(
            x.ndim >= 2 and (x.size > 0 or (split == "test" and x.shape[0] == 0)),
            f"x_{split} of {name} has shape {x.shape}: expected [examples, *feature]",
        )
        check(
            y.ndim > 0 and len(y) == len(x) and 0 not in y.shape[1:],
            f"y_{split} of {name} has shape {y.shape}: expected ({len(x)},), "
            f"one target an example, or ({len(x)}, ...) for several",
        )
        check(
            x.dtype.kind in "uif", f"x_{split} of {name} has type {x.dtype}: expected real numbers"
        )
        for letter, values in (("x", x), ("y", y)):
            bad = _count_not_finite(values)
            check(
                bad == 0,
                f"{letter}_{split} of {name} holds {bad} NaN or infinite values: "
                "remove or replace them",
            )
    check(
        x_train.shape[1:] == x_test.shape[1:],
        f"examples of {name} have shape {x_train.shape[1:]} in train "
        f"and {x_test.shape[1:]} in test: expected the same",
    )
    if owners is not None:
        owners = np.asarray(owners)
        check(
            owners.shape == (len(x_train),) and owners.dtype.kind in "ui",
            f"owners of {name} have shape {owners.shape}: "
            f"expected integers ({len(x_train)},), one per training example",
        )
    ids = np.asarray(vocabulary)
    check(
        ids.ndim == 1 and (not ids.size or (ids.dtype.kind in "ui" and ids.min() > 0)),
        f"vocabulary of {name} is {ids.tolist()!r:.80}: expected positive integers, a list of them",
    )
    sizes = tuple(ids.tolist())
    count = _number_of_classes(classes, name)
    labels = check_targets(y_train, y_test, name, count, max(sizes, default=0))
    scale = 1.0
    if sizes:
        _check_ids(x_train, x_test, sizes, name)
        feature = np.int32
    elif x_train.dtype == np.uint8:
        check(
            x_test.dtype == np.uint8,
            f"x_train of {name} has type uint8 and x_test {x_test.dtype}: expected the same",
        )
        feature = np.uint8
        scale = 255.0
    else:
        feature = np.float32
    target = bool if y_train.dtype == bool else np.int32 if labels else np.float32
    check(
        not np.size(owner_names) or (owners is not None and owners.min() >= 0),
        f"{name} has names of owners: expected owners too, with numbers from 0",
    )
    clients = int(owners.max()) + 1 if owners is not None else 0
    named = _names("owner_names", owner_names, clients, name)
    features = x_train.shape[-1] if x_train.ndim in (2, 3) else 0
    own_weights = check_weights("weights", weights, len(x_train), name)
    own_weights_test = check_weights("weights_test", weights_test, len(x_test), name)
    source = Source(
        aligned_copy(x_train, feature),
        y_train.astype(target),
        aligned_copy(x_test, feature),
        y_test.astype(target),
        labels,
        scale,
        vocabulary=sizes,
        owners=None if owners is None else owners.astype(np.int64),
        owner_names=named,
        class_names=_names("class_names", class_names, labels, name),
        feature_names=_names("feature_names", feature_names, features, name),
        superclasses=_superclasses(superclasses, labels, name),
        split="stratified" if named and labels and y_train.ndim == 1 else "random",
        weights=weights_of_labelled(own_weights, y_train),
        weights_test=weights_of_labelled(own_weights_test, y_test),
    )
    warn_improbable(source)
    return source


def _number_of_classes(given: np.ndarray | int | None, name: str) -> int | None:
    """The number of classes, if it is given: a number, or an array of one number."""
    if given is None:
        return None
    array = np.asarray(given)
    check(
        array.ndim == 0 and array.dtype.kind in "ui" and 0 < int(array) < 2**31,
        f"classes of {name} is {array.tolist()!r:.60}: expected a positive integer, how many "
        "labels there are",
    )
    return int(array)


def _names(kind: str, names: np.ndarray | Sequence[str], count: int, name: str) -> tuple[str, ...]:
    """Names as text, or none.

    Args:
      kind: what they are, for the message.
      names: as they were given.
      count: how many there must be.
      name: of the data in messages.

    Raises:
      InputError: there are more or fewer, or some are no names or the same.
    """
    array = np.asarray(names)
    if not array.size:
        return ()
    words = tuple(map(str, array.reshape(-1).tolist()))
    expected = f"expected {count} different names of at most {LONGEST} letters that can be printed"
    check(
        array.ndim == 1 and array.dtype.kind in "UO" and len(words) == count,
        f"{kind} of {name} have shape {array.shape} and type {array.dtype}: {expected}",
    )
    wrong = [
        word
        for word, times in Counter(words).items()
        if times > 1 or not word.strip() or not word.isprintable() or len(word) > LONGEST
    ]
    check(not wrong, f"{kind} of {name} hold {', '.join(wrong[:1])!r:.60}: {expected}")
    return words


def _superclasses(groups: np.ndarray | Sequence[int], classes: int, name: str) -> tuple[int, ...]:
    """The superclass of each class, or none."""
    array = np.asarray(groups)
    if not array.size:
        return ()
    check(
        array.shape == (classes,)
        and array.dtype.kind in "ui"
        and array.min() == 0
        and len(np.unique(array)) == array.max() + 1,
        f"superclasses of {name} have shape {array.shape} and type {array.dtype}: expected one of "
        f"each of {classes} classes, integers from 0 without gaps",
    )
    return tuple(array.tolist())


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


def merge_test_set(source: Source) -> Source:
    """The data set whose test examples follow the training examples; it has no test set then.

    Raises:
      InputError: it has no test set before either, or names the owners of the training examples.

    Example:
      >>> source = merge_test_set(jaxfl.data.load("digits"))
      >>> len(source.y_train), len(source.y_test)
      (1797, 0)
    """
    check(len(source.y_test) > 0, "these data have no test set to merge: leave out --merge-test")
    check(
        source.owners is None,
        "these data name the owners of their training examples alone, so that the test set cannot "
        "be merged with them: leave out --merge-test",
    )
    return source._replace(
        x_train=np.concatenate([source.x_train, source.x_test]),
        y_train=np.concatenate([source.y_train, source.y_test]),
        x_test=source.x_test[:0],
        y_test=source.y_test[:0],
        weights=weights_of_all(source),
        weights_test=None,
    )


def _count_not_finite(values: np.ndarray) -> int:
    """Values that are NaN or infinite as float32."""
    if values.dtype.kind != "f":
        return 0
    with np.errstate(over="ignore"):
        return int((~np.isfinite(values.astype(np.float32))).sum())


def _check_ids(
    x_train: np.ndarray, x_test: np.ndarray, vocabulary: tuple[int, ...], name: str
) -> None:
    columns = x_train.shape[-1]
    check(
        x_train.dtype.kind in "ui" and len(vocabulary) in (1, columns) and max(vocabulary) < 2**31,
        f"vocabulary of {name} is {vocabulary} for examples of shape {x_train.shape[1:]} "
        f"and type {x_train.dtype}: expected integers, and one number of values or one per column",
    )
    for split, x in (("train", x_train), ("test", x_test)):
        high = x.max(axis=0, initial=0) if len(vocabulary) > 1 else x.max(initial=0)
        check(
            x.min(initial=0) >= 0 and bool(np.all(high < np.array(vocabulary))),
            f"x_{split} of {name} holds ids outside 0 to {np.array(vocabulary) - 1}: "
            "correct them or the vocabulary",
        )
