"""From records to the numbers that are written and shown: one line an evaluation, one summary a run."""

import dataclasses
import math
from collections import Counter
from typing import Any

import jax
import numpy as np

from jaxfl.evaluate import select_on_val, summarise
from jaxfl.experiment.config import Config
from jaxfl.experiment.privacy import Exposure, claim
from jaxfl.experiment.run import Record, versions

STAGES = ("before", "after")  # fine-tuning


def line(record: Record, sizes: np.ndarray, sent: dict[str, int]) -> dict[str, Any]:
    """One line of `metrics.jsonl`.

    Args:
      record: an evaluation, NaN for who does not count.
      sizes: examples of each client [S, C].
      sent: floats `up` and `down`, bytes `up_bytes`, and gradient `batches`, by all clients since
        round 0.
    """
    stages = {stage: getattr(record.evaluation, stage).test for stage in STAGES}
    seeds = [
        {
            stage: summarise(scores[s], sizes[s][record.evaluated[s]])
            for stage, scores in stages.items()
        }
        for s in range(len(sizes))
    ]
    own = {
        name: _finite(float(values[:, -1].mean())) for name, values in record.info.metrics.items()
    }
    return (
        {
            "round": record.round,
            "seconds": round(record.seconds, 3),
            "loss": _mean_of_finite(record.info.loss[:, -1]),
        }
        | over_seeds(seeds)
        | sent
        | ({"metrics": own} if own else {})
    )


def over_seeds(seeds: list[dict[str, dict]]) -> dict[str, Any]:
    """Summaries of one evaluation by seed -> their mean; with several seeds also `seeds`, the list itself."""
    mean = {
        stage: {name: _mean([seed[stage][name] for seed in seeds]) for name in seeds[0][stage]}
        for stage in seeds[0]
    }
    return mean | ({"seeds": seeds} if len(seeds) > 1 else {})


class History:
    """Collects the records of a run, client by client; a malicious one has no scores."""

    def __init__(
        self,
        config: Config,
        sizes: np.ndarray,
        malicious: np.ndarray,
        measure: str = "accuracy",
        *,
        excess: int = 0,
        exposure: Exposure | None = None,
    ):
        self.config, self.sizes, self.malicious, self.measure = config, sizes, malicious, measure
        self.excess, self.exposure = excess, exposure
        self.lines: list[dict[str, Any]] = []
        self.scores: dict[str, list[np.ndarray]] = {
            f"{s}_{part}": [] for s in STAGES for part in ("val", "test")
        }
        self.weights: list[np.ndarray] = []
        self.ids: list[np.ndarray] = []
        self.sent = {"up": 0, "down": 0, "batches": 0}
        self.diverged: Counter[int] = (
            Counter()
        )  # rounds that a client was left out of, over all seeds
        self.recent: set[int] = set()  # who was since the last line

    def add(self, record: Record) -> dict[str, Any] | None:
        """Takes a record in and returns its line of `metrics.jsonl`; None if it has no evaluation."""
        for way in self.sent:
            self.sent[way] += round(getattr(record.info, way).sum(dtype=np.int64) / len(self.sizes))
        gone = record.ids[~record.info.heard].tolist()
        self.diverged.update(gone)
        self.recent |= set(gone)
        self.ids.append(record.ids)
        if record.info.weights is not None:
            self.weights.append(record.info.weights)
        if record.evaluation is None:
            return None
        benign = jax.tree.map(
            lambda s: np.where(self.malicious[record.evaluated], np.nan, s), record.evaluation
        )
        record = dataclasses.replace(record, evaluation=benign)
        for name, rows in self.scores.items():
            stage, part = name.split("_")
            row = np.full(self.sizes.shape, np.nan, np.float32)
            np.put_along_axis(
                row, record.evaluated, getattr(getattr(record.evaluation, stage), part), axis=1
            )
            rows.append(row)
        named = {"diverged": sorted(self.recent)} if self.recent else {}
        self.recent = set()
        self.lines.append(line(record, self.sizes, self.sent | {"up_bytes": self._bytes()}) | named)
        return self.lines[-1]

    def arrays(self) -> dict[str, np.ndarray]:
        """What a checkpoint keeps beside `lines`; see `restore`."""
        kept = {f"scores_{name}": np.array(rows, np.float32) for name, rows in self.scores.items()}
        kept |= {f"sent_{way}": np.array(number) for way, number in self.sent.items()}
        kept["diverged"] = np.array(sorted(self.diverged.elements()), np.int64)
        kept["recent"] = np.array(sorted(self.recent), np.int64)
        kept["ids"] = np.concatenate(self.ids, axis=1)
        return kept | ({"weights": np.concatenate(self.weights, axis=1)} if self.weights else {})

    def restore(self, arrays: dict[str, np.ndarray], lines: list[dict[str, Any]]) -> None:
        """Takes in what `arrays` and `lines` were."""
        self.lines = lines
        self.scores = {name: list(arrays[f"scores_{name}"]) for name in self.scores}
        self.sent = {way: int(arrays[f"sent_{way}"]) for way in self.sent}
        self.diverged, self.recent = (
            Counter(arrays["diverged"].tolist()),
            set(arrays["recent"].tolist()),
        )
        self.ids, self.weights = [arrays["ids"]], [arrays["weights"]] if "weights" in arrays else []

    def clients(self) -> dict[str, np.ndarray]:
        """Arrays of `clients.npz`: scores by evaluation and client [E, C], with several seeds [S, E, C]."""
        rounds = np.array([row["round"] for row in self.lines])
        stacked = {
            name: self._squeeze(np.stack(rows, axis=1)) for name, rows in self.scores.items()
        }
        return {
            "round": rounds,
            "sizes": self._squeeze(self.sizes),
            "malicious": self.malicious,
        } | stacked

    def graph(self) -> dict[str, np.ndarray] | None:
        """Arrays of `graph.npz`: weights [T, M, M] and ids [T, M], with several seeds [S, ...], or None."""
        if not self.weights:
            return None
        arrays = {
            "weights": np.concatenate(self.weights, axis=1),
            "ids": np.concatenate(self.ids, axis=1),
        }
        return {name: self._squeeze(array) for name, array in arrays.items()}

    def summary(self, compile_seconds: float) -> dict[str, Any]:
        """The content of `summary.json`."""
        chosen = []
        for s, sizes in enumerate(self.sizes):
            tests = {
                stage: select_on_val(
                    *(np.stack(self.scores[f"{stage}_{part}"])[:, s] for part in ("val", "test"))
                )
                for stage in STAGES
            }
            chosen.append({stage: summarise(test, sizes) for stage, test in tests.items()})
        last = self.lines[-1]
        return {
            "algorithm": self.config.algorithm,
            "measure": self.measure,
            "final": {key: last[key] for key in (*STAGES, "seeds") if key in last},
            "selected_on_val": over_seeds(chosen),
            "rounds": last["round"],
            "seconds": last["seconds"],
            "compile_seconds": round(compile_seconds, 3),
            "up": last["up"],
            "down": last["down"],
            "up_bytes": last["up_bytes"],
            "batches": last["batches"],
            "diverged": {str(client): rounds for client, rounds in sorted(self.diverged.items())},
            **(
                {}
                if self.exposure is None
                else {"privacy": claim(self.config, self.exposure, self.ids)}
            ),
            "versions": versions(),
        }

    def _bytes(self) -> int:
        """Bytes that all clients have sent: 4 a float, and what their uploads of each round take beyond that."""
        return 4 * self.sent["up"] + self.excess * sum(ids[0].size for ids in self.ids)

    def _squeeze(self, array: np.ndarray) -> np.ndarray:
        return array[0] if len(self.sizes) == 1 else array


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _mean_of_finite(values: np.ndarray) -> float | None:
    values = values[np.isfinite(values)]
    return float(values.mean()) if values.size else None


def _finite(value: float) -> float | None:
    """JSON has no NaN: a loss that is none is null."""
    return value if math.isfinite(value) else None
