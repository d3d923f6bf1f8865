"""A data set as arrays: which arrays are valid, and how they are read from a file."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from jaxfl.core import tree
from jaxfl.core.errors import InputError, check
from jaxfl.core.plain_array import plain_array
from jaxfl.core.text import composed
from jaxfl.data.data_warnings import warn_improbable
from jaxfl.data.inputs import X, check_finite, check_inputs, is_tree
from jaxfl.data.source import Source
from jaxfl.data.superclasses import SUPERCLASSES
from jaxfl.data.table.schema import from_json
from jaxfl.data.targets import check_pairs, check_targets, weights_of_labelled
from jaxfl.data.weights import check_weights, weights_of_all

# Arrays of a file in whose place there may be several.
NESTED = (*X, "vocabulary")
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
    groups vocabulary classes owner_names class_names feature_names superclasses weights
    weights_test own_test`. `jaxfl prepare csv` adds `schema`, and `survival` where targets are
    times. Arrays
    `x_train/NAME`, `x_test/NAME` and `vocabulary/NAME` are those of a dict. CIFAR-100 has its
    superclasses by its name (`SUPERCLASSES`). Images of a set with known channel means (`CHANNELS`)
    are normalised by them.

    Raises:
      InputError: the file is damaged or hostile, or does not hold examples with targets.
    """
    names = ("owner_names", "class_names", "feature_names")
    test = ("x_test", "y_test", "weights_test")
    numbers = ("owners", "groups", "vocabulary", "classes", "superclasses")
    optional = (*test, "weights", "own_test", *numbers, *names, "schema", "survival")
    arrays: dict[str, Any] = read_npz(file, ("x_train", "y_train"), optional, NESTED)
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
    images = not is_tree(source.x_train) and source.x_train.dtype == np.uint8
    if images and source.x_train.shape[-1] == len(mean):
        source = source._replace(
            shift=tuple(255 * m for m in mean), scale=tuple(255 * d for d in deviation)
        )
    return source


def read_npz(
    file: Path,
    required: tuple[str, ...],
    optional: tuple[str, ...] = (),
    nested: tuple[str, ...] = (),
) -> dict[str, Any]:
    """The named arrays of a file.

    Args:
      file: to read.
      required: names of arrays that have to be there.
      optional: of arrays that may be.
      nested: of arrays in whose place there may be a dict of arrays, whose names NAME/KEY are.

    Raises:
      InputError: the file cannot be read without unpickling, or lacks a required array.
    """
    parts: dict[str, dict[str, np.ndarray]] = {}
    try:
        with file.open("rb") as handle, np.load(handle, allow_pickle=False) as npz:
            arrays = {key: npz[key] for key in (*required, *optional) if key in npz}
            for name in nested:
                keys = [key for key in npz if key.startswith(f"{name}/")]
                parts[name] = {key.removeprefix(f"{name}/"): npz[key] for key in keys}
    except Exception as error:  # NumPy raises a dozen types for a damaged or hostile file
        raise InputError(
            f"cannot read {file} as plain npz arrays ({error!r:.200}): write it with numpy.savez"
        ) from error
    for name, inputs in parts.items():
        check(
            not (inputs and name in arrays),
            f"{file} has {name} and {name}/...: expected one array, or one for each input",
        )
        wrong = [key for key in inputs if not key.isprintable() or len(key) > LONGEST]
        check(
            not wrong,
            f"{file} has the array {name}/{wrong[:1]!r:.60}: expected names of at most {LONGEST} "
            "letters that can be printed",
        )
        arrays |= {name: inputs} if inputs else {}
    missing = [key for key in required if key not in arrays]
    check(not missing, f"{file} lacks {', '.join(missing)}: expected arrays {', '.join(required)}")
    return arrays


def from_arrays(
    x_train: PyTree,
    y_train: np.ndarray | None,
    x_test: PyTree | None = None,
    y_test: np.ndarray | None = None,
    *,
    owners: np.ndarray | None = None,
    groups: np.ndarray | None = None,
    vocabulary: np.ndarray | Sequence[int] | Mapping[str, Any] = (),
    classes: np.ndarray | int | None = None,
    owner_names: np.ndarray | Sequence[str] = (),
    class_names: np.ndarray | Sequence[str] = (),
    feature_names: np.ndarray | Sequence[str] = (),
    superclasses: np.ndarray | Sequence[int] = (),
    weights: np.ndarray | None = None,
    weights_test: np.ndarray | None = None,
    own_test: np.ndarray | None = None,
    survival: bool | np.ndarray = False,
    name: str = "the data",
) -> Source:
    """A data set from arrays in memory.

    Args:
      x_train: [N, *feature], uint8 (divided by 255 when used), real numbers, or integer ids if
        `vocabulary` is given. Or a dict or tuple of such arrays, with the same examples in each,
        which models, losses and scores take as it is; an array of booleans, such as a mask, stays
        as it is.
      y_train: [N] integers from 0, or a label for each position (pixel, token) [N, *positions],
        where -1 is a position without a label; or booleans [N, classes], the labels that an example
        has; or real numbers to predict, [N] or several of an example [N, k, ...]. An example
        without any labelled position weighs 0. None: the data have no targets, for a model that
        learns from inputs alone, as those of `jaxfl.reconstruction` do; partitions by labels are
        then made of labels of your own.
      x_test: [N', *feature]. If None there is no test set, and clients are tested on parts of their
        own data.
      y_test: [N', ...] as in training.
      owners: integers [N], the natural client of each training example: the clients of the
        partition `natural`.
      groups: integers [N], the group of each training example, such as its patient: of a client's
        examples those of a group come all to training, all to validation or all to the test, and
        all to one fold.
      vocabulary: number of ids in x, where it holds ids: (words,), or one number for each column.
        Where x is a dict, a dict with these numbers of the arrays that hold ids.
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
      own_test: booleans [N], which training examples test the client that holds them, under
        `federate(test="own")`. None: a part that is drawn does.
      survival: whether the targets are times to an event, of which some are censored: pairs [N, 2]
        of a time of at least 0, and 1 where the event happened then, 0 where it had not until then.
      name: of the data in messages.

    Raises:
      InputError: values are NaN or infinite, labels are not integers in range, or shapes do not
        match.

    Example:
      >>> x = np.random.default_rng(0).normal(size=(60, 4))
      >>> source = from_arrays(x, np.arange(60) % 3, owners=np.arange(60) // 20)
      >>> source.classes, source.x_train.dtype.name, len(source.x_test)
      (3, 'float32', 0)
      >>> both = from_arrays({"series": x, "mask": x > 0}, None)
      >>> both.scale, both.targets
      ({'mask': None, 'series': 1.0}, False)
    """
    inputs = check_inputs(x_train, x_test, vocabulary, name)
    count = tree.rows(inputs.x_train)
    count_test = tree.rows(inputs.x_test)
    check(
        y_train is not None or y_test is None,
        f"{name} has y_test and no y_train: expected targets of both or of none",
    )
    # Of data without targets there is no number to predict.
    none = np.zeros((count, 0), np.float32)
    y_train = none if y_train is None else plain_array(y_train, f"y_train of {name}")
    nothing = np.atleast_1d(y_train)[:0]
    y_test = nothing if y_test is None else plain_array(y_test, f"y_test of {name}")
    if y_train is none:
        y_test = np.zeros((count_test, 0), np.float32)
    for split, rows, y in (("train", count, y_train), ("test", count_test, y_test)):
        check(
            y.ndim > 0 and len(y) == rows and (0 not in y.shape[1:] or y_train is none),
            f"y_{split} of {name} has shape {y.shape}: expected ({rows},), "
            f"one target an example, or ({rows}, ...) for several",
        )
        check_finite(f"y_{split} of {name}", y)
    owners = _numbers("owners", owners, count, name)
    ids = jax.tree.leaves(inputs.vocabulary)
    given = _number_of_classes(classes, name)
    labels = check_targets(y_train, y_test, name, given, max(ids, default=0))
    flag = plain_array(survival, f"survival of {name}")
    check(flag.ndim == 0, f"survival of {name} has shape {flag.shape}: expected true or false")
    if flag:
        check_pairs("train", y_train, name)
        check_pairs("test", y_test, name)
    target = bool if y_train.dtype == bool else np.int32 if labels else np.float32
    check(
        not np.size(owner_names) or (owners is not None and owners.min() >= 0),
        f"{name} has names of owners: expected owners too, with numbers from 0",
    )
    owners_count = int(owners.max()) + 1 if owners is not None else 0
    named = _names("owner_names", owner_names, owners_count, name)
    x = inputs.x_train
    features = x.shape[-1] if not is_tree(x) and x.ndim in (2, 3) else 0
    one_label = labels > 0 and y_train.ndim == 1
    if own_test is not None:
        own_test = plain_array(own_test, f"own_test of {name}")
        check(
            own_test.shape == (count,) and own_test.dtype == bool and not len(y_test),
            f"own_test of {name} has shape {own_test.shape} and type {own_test.dtype}, beside "
            f"{len(y_test)} test examples apart: expected booleans ({count},), and no y_test",
        )
        check(
            bool(own_test.any() and not own_test.all()),
            f"own_test of {name} is {own_test[:1].all()} for all examples: expected some that "
            "train and some that test",
        )
    own_weights = check_weights("weights", weights, count, name)
    own_weights_test = check_weights("weights_test", weights_test, count_test, name)
    source = Source(
        inputs.x_train,
        y_train.astype(target),
        inputs.x_test,
        y_test.astype(target),
        labels,
        inputs.scale,
        vocabulary=inputs.vocabulary,
        owners=owners,
        groups=_numbers("groups", groups, count, name),
        owner_names=named,
        class_names=_names("class_names", class_names, labels, name),
        feature_names=_names("feature_names", feature_names, features, name),
        superclasses=_superclasses(superclasses, labels, name),
        split="stratified" if named and (one_label or flag) else "random",
        weights=weights_of_labelled(own_weights, y_train),
        weights_test=weights_of_labelled(own_weights_test, y_test),
        own_test=own_test,
        survival=bool(flag),
    )
    warn_improbable(source)
    return source


def _numbers(kind: str, given: np.ndarray | None, count: int, name: str) -> np.ndarray | None:
    """Which owner or group each training example belongs to [N], if it is given."""
    if given is None:
        return None
    array = plain_array(given, f"{kind} of {name}")
    check(
        array.shape == (count,) and array.dtype.kind in "ui",
        f"{kind} of {name} have shape {array.shape} and type {array.dtype}: "
        f"expected integers ({count},), one per training example",
    )
    return array.astype(np.int64)


def _number_of_classes(given: np.ndarray | int | None, name: str) -> int | None:
    """The number of classes, if it is given: a number, or an array of one number."""
    if given is None:
        return None
    array = plain_array(given, f"classes of {name}")
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
    array = plain_array(names, f"{kind} of {name}")
    if not array.size:
        return ()
    words = tuple(composed(str(word)) for word in array.reshape(-1).tolist())
    expected = f"expected {count} different names of at most {LONGEST} letters that can be printed"
    check(
        array.ndim == 1
        and all(isinstance(word, str) for word in array.tolist())
        and len(words) == count,
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
    array = plain_array(groups, f"superclasses of {name}")
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


def merge_test_set(source: Source) -> Source:
    """The data set whose test examples follow the training examples; it has no test set then.

    Raises:
      InputError: it has no test set before either, or names the owners or the groups of the
        training examples.

    Example:
      >>> source = merge_test_set(jaxfl.data.load("digits"))
      >>> len(source.y_train), len(source.y_test)
      (1797, 0)
    """
    check(len(source.y_test) > 0, "these data have no test set to merge: leave out --merge-test")
    for kind in ("owners", "groups"):
        check(
            getattr(source, kind) is None,
            f"these data name the {kind} of their training examples alone, so that the test set "
            "cannot be merged with them: leave out --merge-test",
        )
    return source._replace(
        x_train=jax.tree.map(lambda *x: np.concatenate(x), source.x_train, source.x_test),
        y_train=np.concatenate([source.y_train, source.y_test]),
        x_test=tree.at(source.x_test, slice(0)),
        y_test=source.y_test[:0],
        weights=weights_of_all(source),
        weights_test=None,
    )
