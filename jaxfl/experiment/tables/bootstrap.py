"""Bootstrap of scores: what they would be on other test examples of the same client."""

from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxfl.simulation.metrics import Score

RESAMPLES = 2048
NUMBERS = 2**21  # weights at most, of the resamples that are scored at once


def bootstrap(
    score: Score,
    predictions: Sequence[np.ndarray],
    y: np.ndarray,
    weight: np.ndarray,
    strata: np.ndarray,
    seed: int,
) -> np.ndarray:
    """Scores of several models on resamples of test examples, the same ones for all of them.

    A resample draws from each stratum as many examples as this has, with replacement. It is a
    weight of each example, so that any score that takes weights can be used. Efron and Tibshirani,
    An Introduction to the Bootstrap, 1993, chapters 6 and 8.

    Args:
      score: see `simulation.metrics.Metric.score`.
      predictions: of each of R models [n, ...].
      y: targets [n, ...].
      weight: of the examples [n].
      strata: the stratum of each example [n], such as its label.
      seed: of the draws.

    Returns:
      Scores [R, RESAMPLES], NaN where the score is not defined.

    Example:
      >>> from jaxfl.simulation.metrics import METRICS
      >>> logits, y = np.array([[0.0, 1.0]] * 4), np.array([0, 0, 1, 1])
      >>> scores = bootstrap(METRICS["accuracy"].score, [logits], y, np.ones(4), np.arange(4), 0)
      >>> scores.shape, np.unique(scores).tolist()
      ((1, 2048), [0.5])
    """
    size = padded_size(len(y))
    room = 1 << (NUMBERS // size).bit_length() - 1
    chunk = min(RESAMPLES, max(1, room))
    generator = np.random.default_rng(seed)
    padded_y = pad_rows(y, size)
    padded = [pad_rows(one, size) for one in predictions]
    parts = []
    for _ in range(RESAMPLES // chunk):
        weights = np.zeros((chunk, size), np.float32)
        weights[:, : len(y)] = draw(strata, chunk, generator) * weight
        parts.append([np.asarray(_scores(score, one, padded_y, weights)) for one in padded])
    return np.concatenate(parts, axis=1)


def draw(strata: np.ndarray, resamples: int, generator: np.random.Generator) -> np.ndarray:
    """How often each example is in each resample [resamples, n].

    Args:
      strata: as in `bootstrap`.
      resamples: their number.
      generator: of the draws.

    Example:
      >>> counts = draw(np.array([0, 0, 0, 1]), 5, np.random.default_rng(0))
      >>> counts[:, :3].sum(axis=1).tolist(), counts[:, 3].tolist()
      ([3, 3, 3, 3, 3], [1, 1, 1, 1, 1])
    """
    counts = np.zeros((resamples, len(strata)), np.int64)
    for stratum in np.unique(strata):
        places = np.flatnonzero(strata == stratum)
        size = len(places)
        draws = generator.integers(size, size=(resamples, size))
        bins = draws + size * np.arange(resamples)[:, None]
        times = np.bincount(bins.ravel(), minlength=resamples * size)
        counts[:, places] = times.reshape(resamples, size)
    return counts


def padded_size(rows: int) -> int:
    """A number of rows that clients of similar sizes share, so that they share programs.

    Example:
      >>> padded_size(14), padded_size(16), padded_size(3000)
      (16, 16, 3072)
    """
    return 1 << (rows - 1).bit_length() if rows <= 1024 else -(-rows // 1024) * 1024


def pad_rows(array: np.ndarray, size: int) -> np.ndarray:
    """The array with rows of zeros behind it [size, ...].

    Example:
      >>> pad_rows(np.ones(2), 4).tolist()
      [1.0, 1.0, 0.0, 0.0]
    """
    return np.pad(array, [(0, size - len(array)), *[(0, 0)] * (array.ndim - 1)])


@partial(jax.jit, static_argnums=0)
def _scores(score: Score, predictions: Array, y: Array, weights: Array) -> Array:
    """The score by each row of weights."""
    return jax.vmap(score, in_axes=(None, None, 0))(
        jnp.asarray(predictions), jnp.asarray(y), weights
    )
