"""A data set as it is before any client exists."""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from jaxfl.data.inputs import is_tree

Split = Literal["random", "stratified"]
Shift = float | tuple[float, ...]  # of all features, or of each channel (the last axis)


class Source(NamedTuple):
    """A data set with its targets as it is on disk, before any client exists."""

    # [N, *feature] uint8, float32, or int32 where features are ids (of words, users, items); or a
    # pytree of such arrays and of booleans, such as {"image": ..., "mask": ...}
    x_train: Any
    # [N] int32 in 0 .. classes - 1; or a label for each position [N, *positions], of which -1 is
    # none; or bool [N, classes], the labels that an example has; or float32 numbers [N] or
    # [N, k, ...], of which there are none [N, 0] where data have no targets; or with `survival`
    # pairs [N, 2] of a time, and 1 where the event happened then, 0 where it had not until then
    y_train: np.ndarray
    x_test: Any  # [N', *feature]; N' is 0 for a set without a test part
    y_test: np.ndarray  # [N', ...] as in training
    classes: int  # 0 if the targets are numbers
    # models see (x - shift) / scale; of a pytree of arrays the pytree of their scales, where None
    # leaves an array as it is
    scale: Any = 1.0
    shift: Shift = 0.0
    # number of ids in x: (words,) or (users, items); of a pytree by the paths of its arrays
    vocabulary: Any = ()
    mirrors: bool = False  # whether a mirrored image keeps its meaning: a cat does, a digit not
    owners: np.ndarray | None = None  # [N] the natural client of each training example
    owner_names: tuple[str, ...] = ()  # of the owners 0, 1, ...; empty if they have none
    class_names: tuple[str, ...] = ()  # of the classes
    feature_names: tuple[str, ...] = ()  # of the last axis of x [N, F] or [N, steps, F]
    # how a client's examples are divided into training, validation and test, if nobody says
    split: Split = "random"
    superclasses: tuple[int, ...] = ()  # of the classes, in 0 .. G - 1; empty if there are none
    schema: str = ""  # what the columns of a table became, as JSON: `table.schema.from_json`
    # [N] float32, what each training example weighs in losses and scores; None: all weigh 1
    weights: np.ndarray | None = None
    weights_test: np.ndarray | None = None  # [N'] the same of the test examples
    # [N] bool, the training examples that test their client where test is "own"; None: a part of
    # them that is drawn does
    own_test: np.ndarray | None = None
    survival: bool = False  # whether targets are times to an event, of which some are censored
    # [N] what belongs together, such as the rows of a patient: a client has each group whole in
    # training, validation or test; None: each example is a group of its own
    groups: np.ndarray | None = None
    # of the bins of time whose hazards a model predicts; empty if it predicts a log risk
    ends: tuple[float, ...] = ()

    @property
    def outputs(self) -> int:
        """How many outputs a model of the targets has: one for each class, or for each number."""
        if self.survival:
            return len(self.ends) or 1
        return self.classes or int(np.prod(self.y_train.shape[1:]))

    @property
    def predictions(self) -> int:
        """How many numbers a model predicts of an example: its outputs, for each position."""
        return self.outputs * (int(np.prod(self.y_train.shape[1:])) if self.each_position else 1)

    @property
    def several_inputs(self) -> bool:
        """Whether the inputs are several arrays, and not one."""
        return is_tree(self.x_train)

    @property
    def targets(self) -> bool:
        """Whether the data have targets."""
        return 0 not in self.y_train.shape[1:]

    @property
    def one_label(self) -> bool:
        """Whether the target of an example is one label."""
        return self.classes > 0 and self.y_train.ndim == 1

    @property
    def strata(self) -> np.ndarray:
        """What is divided in proportion between the parts of a client: labels, or events."""
        return self.y_train[:, 1].astype(int) if self.survival else self.y_train

    @property
    def each_position(self) -> bool:
        """Whether the target of an example is a label for each position: each pixel or token."""
        return self.classes > 0 and self.y_train.ndim > 1 and not self.several_labels

    @property
    def several_labels(self) -> bool:
        """Whether an example may have several labels, or none."""
        return self.y_train.dtype == bool

    @property
    def white(self) -> float:
        """The largest value of a pixel: 16 for digits, 255 for other bytes, 1 for real numbers."""
        return self.scale if isinstance(self.scale, float) else 255.0


def many_labels(y: np.ndarray) -> str:
    """How messages begin that refuse labels of which an example has more than one.

    Example:
      >>> many_labels(np.zeros((5, 3), bool))
      'an example may have several labels'
    """
    if y.dtype == bool:
        return "an example may have several labels"
    return "an example has a label for each position"


def client_names(source: Source, parts: Sequence[np.ndarray]) -> tuple[str, ...]:
    """The name of each client [C], where each holds examples of one owner that has a name.

    Args:
      source: the data set.
      parts: rows of its training set for each client.

    Returns:
      Nothing where owners have no names, or a client holds examples of several owners or of none.

    Example:
      >>> x, y, owners = np.eye(4), np.array([0, 1, 0, 1]), np.array([0, 0, 1, 1])
      >>> source = jaxfl.data.from_arrays(x, y, owners=owners, owner_names=["north", "south"])
      >>> client_names(source, jaxfl.data.natural(owners, smallest=1))
      ('north', 'south')
    """
    if source.owners is None or not source.owner_names:
        return ()
    owners = [np.unique(source.owners[rows]) for rows in parts]
    if any(len(one) != 1 for one in owners):
        return ()
    names = tuple(source.owner_names[int(one[0])] for one in owners)
    return names if len(set(names)) == len(names) else ()
