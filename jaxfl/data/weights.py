"""What examples weigh in losses and scores: weights of one's own, and balanced classes."""

from typing import Literal

import jax.numpy as jnp
import numpy as np

from jaxfl.core.errors import check
from jaxfl.core.plain_array import plain_array
from jaxfl.core.types import Dataset, Federation
from jaxfl.data.source import Source

ClassWeight = Literal["balanced"]
# A weight, or a sum of weights, that float32 still holds when losses are multiplied by it.
LARGEST = 1e30


def check_weights(
    kind: str, weights: np.ndarray | None, examples: int, name: str
) -> np.ndarray | None:
    """The weights as float32 [N], or None.

    Args:
      kind: what the array is called.
      weights: as they were given.
      examples: N, how many there must be.
      name: of the data in messages.

    Raises:
      InputError: they are something else than numbers of at least 0 that are not all 0.

    Example:
      >>> check_weights("weights", [1, -2], 2, "the data")
      Traceback (most recent call last):
      jaxfl.core.errors.InputError: weights of the data hold -2: expected numbers from 0 to 1e+30...
    """
    if weights is None:
        return None
    values = plain_array(weights, f"{kind} of {name}")
    check(
        values.shape == (examples,) and values.dtype.kind in "uif",
        f"{kind} of {name} have shape {values.shape} and type {values.dtype}: expected numbers "
        f"({examples},), one an example",
    )
    # Their sums and quotients must be numbers, too.
    possible = (values == 0) | ((values >= 1 / LARGEST) & (values <= LARGEST))
    wrong = values[~possible]
    check(
        not wrong.size,
        f"{kind} of {name} hold {wrong[0] if wrong.size else 0:g}: expected numbers from 0 to "
        f"{LARGEST:g}, none missing or below {1 / LARGEST:g} but 0",
    )
    narrow = values.astype(np.float32)
    check(
        not examples or bool((narrow > 0).any()),
        f"{kind} of {name} are all 0: expected at least one example that counts",
    )
    return narrow


def weights_of_all(source: Source) -> np.ndarray | None:
    """The weights of the training examples and the test examples behind them; None without any.

    Example:
      >>> source = jaxfl.data.from_arrays(np.eye(2), np.arange(2), np.eye(2), np.arange(2))
      >>> weights_of_all(source._replace(weights_test=np.array([3.0, 0.0]))).tolist()
      [1.0, 1.0, 3.0, 0.0]
    """
    if source.weights is None and source.weights_test is None:
        return None
    pairs = ((source.weights, source.y_train), (source.weights_test, source.y_test))
    return np.concatenate([np.ones(len(y), np.float32) if w is None else w for w, y in pairs])


def weigh_groups(
    groups: np.ndarray, weights: np.ndarray, own: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Groups of examples that have weights of their own: those that weigh the same are a group.

    Args:
      groups: of each example [N].
      weights: of each group for each client [C, K].
      own: of each example [N].

    Returns:
      The new groups [N], and their weights [C, K'].

    Example:
      >>> groups, weights = weigh_groups(np.array([0, 0, 1]), np.eye(2), np.array([3.0, 1.0, 3.0]))
      >>> weights[:, groups].tolist()
      [[3.0, 1.0, 0.0], [0.0, 0.0, 3.0]]
    """
    pairs = np.stack([groups.astype(np.float64), own])
    (group, weight), places = np.unique(pairs, axis=1, return_inverse=True)
    return places.reshape(-1), weights[:, group.astype(int)] * weight


def balance_classes(federation: Federation) -> Federation:
    """The federation in which all labels of a client weigh the same in its training.

    An example of a client with n training examples and k labels among them has the weight
    n / (k n_label), as `class_weight="balanced"` of scikit-learn has it, times its own weight if it
    has one. Validation and test examples stay as they are.

    Args:
      federation: of one seed, or of several [S, C, ...]; its targets are labels, one an example.

    Raises:
      InputError: the targets are no labels.

    Example:
      >>> x, y = np.zeros((4, 3)), np.array([0, 0, 0, 1])
      >>> source = jaxfl.data.from_arrays(x, y, x, y)
      >>> federation = jaxfl.data.federate(source, [np.arange(4)], val=0.0)
      >>> np.asarray(balance_classes(federation).train.weights).round(2)
      array([[0.67, 0.67, 0.67, 2.  ]], dtype=float32)
    """
    train = federation.train
    mask = np.asarray(train.mask) > 0
    y = np.asarray(jnp.asarray(train.y))
    check(
        y.dtype.kind in "ui" and y.shape == mask.shape,
        "the targets are not one label an example, so that there are no classes to balance: leave "
        "out class weights",
    )
    weights = np.zeros(mask.shape, np.float32)
    for place in np.ndindex(mask.shape[:-1]):
        labels = y[place][mask[place]]
        _, inverse, counts = np.unique(labels, return_inverse=True, return_counts=True)
        weights[place][mask[place]] = (labels.size / (max(counts.size, 1) * counts))[inverse]
    if train.weight is not None:
        weights *= np.asarray(train.weight)
    return federation._replace(train=_weighted(train, weights))


def _weighted(data: Dataset, weights: np.ndarray) -> Dataset:
    return data._replace(weight=jnp.asarray(weights))
