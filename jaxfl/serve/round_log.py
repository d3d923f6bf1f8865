"""What a served round leaves behind: who took part, who learned from whom, and the scores."""

from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import PyTree

from jaxfl.core.messages import Outcome
from jaxfl.serve.named_arrays import named
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
    # [M, M], or one such matrix for each part of the model; None if clients choose the weights
    # themselves. Where they may refuse a mixture, or take a part of it (FedAH, FedALA), these are
    # the weights that they were offered
    weights: PyTree
    # numbers of the method, by name
    metrics: dict[str, np.ndarray]
    # [M] how many numbers the arrays had that went to each client in this round, with the reply to
    # its last upload. All K models of a method that sends several are sent, also where a client
    # needs some of them only
    down: np.ndarray
    # [M] how many numbers of the arrays came from it, where an upload was well-formed
    up: np.ndarray

    def add(
        self, outcome: Outcome, loss: np.ndarray, down: np.ndarray, up: np.ndarray
    ) -> "RoundLog":
        """The log with what an exchange adds, see the fields."""
        weights = self.weights if outcome.weights is None else outcome.weights
        return self._replace(
            loss=np.where(np.isfinite(loss), loss, self.loss),
            weights=jax.tree.map(np.asarray, weights),
            metrics=jax.tree.map(np.asarray, self.metrics | outcome.metrics),
            down=self.down + down,
            up=self.up + up,
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
