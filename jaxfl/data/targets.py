"""Which targets are valid: labels, one or several or one for each position, and numbers."""

import numpy as np

from jaxfl.core.errors import check


def check_targets(
    y_train: np.ndarray,
    y_test: np.ndarray,
    name: str,
    classes: int | None = None,
    ids: int = 0,
) -> int:
    """The number of classes, 0 for numbers to predict.

    Args:
      y_train: [N], or [N, ...] as `from_arrays` takes them.
      y_test: [N', ...].
      name: of the data in messages.
      classes: how many there are; None: as many as the largest label of y_train says, and then all
        must occur.
      ids: how many ids (of words, characters) x may hold; 0: it holds none. Labels of positions of
        ids need not all occur up to this number, for they may be ids themselves.

    Raises:
      InputError: they are neither labels nor numbers, or labels are out of range.

    Example:
      >>> y = np.array([[0, 2, -1], [1, 1, -1]])
      >>> check_targets(y, y[:0], "the data")
      3
    """
    kind = "ui" if y_train.dtype.kind in "ui" else y_train.dtype.kind
    for split, y in (("train", y_train), ("test", y_test)):
        check(
            kind in ("f", "ui") or (kind == "b" and y.ndim == 2),
            f"y_{split} of {name} has type {y.dtype}: expected integer labels, or numbers to "
            "predict, or for several labels an example booleans (N, labels)",
        )
        check(
            y.dtype.kind in kind,
            f"y_{split} of {name} has type {y.dtype}: expected integer labels, "
            "or numbers to predict in train and test",
        )
        check(
            kind == "f" or y.shape[1:] != (1,),
            f"y_{split} of {name} has shape {y.shape}: expected ({len(y)},) for one label an "
            "example, as y[:, 0]",
        )
    check(
        y_train.shape[1:] == y_test.shape[1:],
        f"targets of {name} have shape {y_train.shape[1:]} in train and {y_test.shape[1:]} in "
        "test: expected the same",
    )
    if kind == "ui":
        return _count_classes(y_train, y_test, name, classes, ids)
    found = y_train.shape[1] if kind == "b" else 0
    check(
        classes is None or classes == found,
        f"{name} is given classes={classes}, and "
        + (f"y_train has {found} labels: leave it out" if found else "its targets are numbers"),
    )
    return found


def _count_classes(
    y_train: np.ndarray, y_test: np.ndarray, name: str, given: int | None, ids: int
) -> int:
    # Of labels for each position, -1 is none.
    lowest = -1 if y_train.ndim > 1 else 0
    classes = int(y_train.max()) + 1 if given is None else given
    what = "the largest label of y_train" if given is None else f"classes={given}"
    for split, y in (("train", y_train), ("test", y_test)):
        low = int(y.min(initial=0))
        high = int(y.max(initial=0))
        outside = low if low < lowest else high
        check(
            low >= lowest and high < max(classes, 1),
            f"y_{split} of {name} holds the label {outside}: "
            f"expected 0 to {classes - 1}, {what}"
            + (", or -1 for a position without a label" if lowest else ""),
        )
        check(
            not y.size or y.max() >= 0,
            f"no position of y_{split} of {name} has a label: all are -1",
        )
    count = len(np.unique(y_train[y_train >= 0]))
    check(
        given is not None or count == classes or (y_train.ndim > 1 and classes <= ids),
        f"y_train of {name} holds {count} of the labels 0 to {classes - 1}: "
        "number them without gaps, or give classes, how many there are",
    )
    return classes


def check_pairs(split: str, y: np.ndarray, name: str) -> None:
    """Raises an `InputError` unless targets are times to an event [N, 2].

    Args:
      split: "train" or "test", for messages.
      y: the targets; of a test set there may be none.
      name: of the data in messages.

    Example:
      >>> check_pairs("train", np.array([[3.5, 1.0], [7.0, 0.0]]), "the data")
    """
    what = f"y_{split} of {name}"
    expected = "expected pairs of a time of at least 0, and 1 (the event happened then) or 0"
    check(y.ndim == 2 and y.shape[1] == 2, f"{what} has shape {y.shape}: {expected}, (N, 2)")
    time, event = y[:, 0], y[:, 1]
    early = time[time < 0]
    check(not early.size, f"{what} has the time {early[:1].tolist()}: {expected}")
    others = event[(event != 0) & (event != 1)]
    check(not others.size, f"{what} has the event {others[:1].tolist()}: {expected}")
    check(
        not y.size or bool(event.any()) or split == "test",
        f"{what} has no event, all times are censored: nothing can be learned of it",
    )


def weights_of_labelled(weights: np.ndarray | None, y: np.ndarray) -> np.ndarray | None:
    """The weights of examples [N], 0 where none of an example's positions has a label.

    Args:
      weights: as they were given; None: all weigh 1.
      y: labels for each position [N, *positions], or other targets, which change nothing.

    Example:
      >>> weights_of_labelled(None, np.array([[0, -1], [-1, -1]])).tolist()
      [1.0, 0.0]
    """
    if y.dtype.kind not in "ui" or y.ndim == 1:
        return weights
    labelled = (y >= 0).any(axis=tuple(range(1, y.ndim)))
    if labelled.all():
        return weights
    own = np.ones(len(y), np.float32) if weights is None else weights
    return np.where(labelled, own, np.float32(0))
