"""Scores of examples that may have several labels: the mean over the labels, each for itself."""

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import jax.numpy as jnp
from jaxtyping import Array

from jaxfl.core.errors import check

Scored = TypeVar("Scored", bound=Callable[..., Any])


def each_label(score: Scored) -> Scored:
    """The score, which takes several labels an example too: predictions and bool y [n, labels].

    The score of one label is that of two classes, of which the label's logit is that of class 1,
    and 0 that of class 0. The mean is over the labels whose score is defined.

    Args:
      score: (predictions [n, 2], y [n], weight [n]) -> a number, perhaps with an option `label`.

    Example:
      >>> from jaxfl.simulation.score_functions import accuracy
      >>> logits, y = jnp.array([[1.0, -1.0]]), jnp.array([[True, True]])
      >>> each_label(accuracy)(logits, y, jnp.ones(1)).item()
      0.5
    """

    @wraps(score)
    def of_examples(predictions: Array, y: Array, weight: Array, **options: Any) -> Array:
        if y.dtype != bool:
            return score(predictions, y, weight, **options)
        check(
            predictions.shape == y.shape and y.ndim == 2,
            f"the predictions have shape {predictions.shape} and the labels {y.shape}: expected "
            "a logit for each label, and booleans (N, labels)",
        )
        label = options.get("label")
        check(
            label is None or 0 <= label < y.shape[1],
            f"label is {label}: expected one from 0 to {y.shape[1] - 1}",
        )
        columns = range(y.shape[1]) if label is None else [label]
        of_present = {} if label is None else {"label": 1}
        scores = []
        for column in columns:
            logit = predictions[:, column]
            logits = jnp.stack([jnp.zeros_like(logit), logit], axis=1)
            scores.append(score(logits, y[:, column].astype(int), weight, **of_present))
        defined = ~jnp.isnan(jnp.stack(scores))
        total = jnp.where(defined, jnp.stack(scores), 0.0).sum()
        return jnp.where(defined.any(), total / jnp.maximum(defined.sum(), 1), jnp.nan)

    return of_examples  # pyright: ignore[reportReturnType]
