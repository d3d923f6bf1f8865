"""What a served round leaves behind: who took part, who learned from whom, and the scores."""

from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import PyTree

from jaxfl.core.messages import Outcome
from jaxfl.serve.arrays import named
from jaxfl.serve.state import write_arrays


class RoundLog(NamedTuple):
    """A round as the server saw it; the arrays are those of `Info`, as NumPy arrays."""

    number: int
    # [M]
    ids: np.ndarray
    # [M] whose upload arrived, was well-formed and finite, and therefore counts
    reported: np.ndarray
    # [M] the training loss that each client told; NaN for a client that told none
    loss: np.ndarray
    # [M, M], or one such matrix for each part of the model. Where clients may refuse a mixture,
    # these are the weights that they were offered
    weights: PyTree
    # numbers of the method, by name
    metrics: dict[str, np.ndarray]

    def add(self, outcome: Outcome, loss: np.ndarray) -> "RoundLog":
        """The log with what an exchange adds, and the losses that clients told in it [M]."""
        weights = self.weights if outcome.weights is None else outcome.weights
        return self._replace(
            loss=np.where(np.isfinite(loss), loss, self.loss),
            weights=jax.tree.map(np.asarray, weights),
            metrics=jax.tree.map(np.asarray, self.metrics | outcome.metrics),
        )


class ScoreLog(NamedTuple):
    """The scores of the models that clients deploy after a round."""

    number: int
    # the clients that answered [K]
    ids: np.ndarray
    # [K] of the validation data; NaN for a client without any
    val: np.ndarray
    # [K] of the test data, likewise
    test: np.ndarray


def write_log(directory: Path, log: RoundLog | ScoreLog) -> None:
    """Writes a log to `NUMBER.npz` of the folder `rounds` or `scores`; the file has its fields.

    Raises:
      OSError: the file cannot be written.

    Example:
      >>> write_log(Path("."), ScoreLog(3, np.arange(2), np.zeros(2), np.ones(2)))
      >>> np.load("scores/000003.npz")["test"].tolist()
      [1.0, 1.0]
    """
    folder = "rounds" if isinstance(log, RoundLog) else "scores"
    fields: dict[str, Any] = log._asdict()
    write_arrays(directory / folder / f"{log.number:06}.npz", named(fields))
