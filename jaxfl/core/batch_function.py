"""Errors and scores of the examples of a batch, of which some need the whole batch."""

import inspect
from collections.abc import Callable
from typing import Any

from jaxtyping import Array


def takes_weights(function: Callable) -> bool:
    """Whether a function of predictions and targets has a further argument called `weights`.

    What it says of an example depends on the others of the batch, of which those count that have a
    weight.

    Example:
      >>> takes_weights(lambda prediction, y: y), takes_weights(lambda prediction, y, weights: y)
      (False, True)
    """
    try:
        return "weights" in inspect.signature(function).parameters
    except (TypeError, ValueError):  # some builtin functions have none
        return False


def of_batch(function: Callable, predictions: Any, y: Any, weights: Array | None) -> Array:
    """What a function says of the examples of a batch [B], with their weights if it takes them.

    Example:
      >>> of_batch(lambda prediction, y: y - prediction, 1.0, 3.0, jnp.ones(()))
      2.0
    """
    if takes_weights(function):
        return function(predictions, y, weights=weights)
    return function(predictions, y)
