"""From records to what is written: lines, arrays and one summary a run."""

import json
import platform
from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from importlib import metadata
from pathlib import Path

import jax
import numpy as np
from jaxtyping import Array

from jaxfl.algorithms import ALGORITHMS
from jaxfl.core import tree
from jaxfl.core.edges import is_sparse
from jaxfl.core.errors import check, warn
from jaxfl.core.facts import facts_of
from jaxfl.core.types import Federation
from jaxfl.core.version import VERSION
from jaxfl.experiment.privacy.guarantee import claim
from jaxfl.experiment.session.build import Built
from jaxfl.experiment.session.graph_numbers import (
    graph_measures,
    weights_by_name,
)
from jaxfl.experiment.session.lines import (
    ByMetric,
    make_line,
    number_or_null,
    scores_by_metric,
    share_with_one_label,
    statistics_by_metric,
)
from jaxfl.experiment.session.make_model import layers_by_depth
from jaxfl.experiment.session.run_program import Record
from jaxfl.experiment.session.source_record import inputs_of
from jaxfl.experiment.session.stopping import find_stop
from jaxfl.experiment.store import npz
from jaxfl.experiment.store.archive import IDS, LINES, Archive
from jaxfl.experiment.store.npz import Member
from jaxfl.experiment.store.records import (
    FurtherScores,
    FurtherSummary,
    Line,
    RunName,
    Summary,
    Traffic,
)
from jaxfl.graphs.measures import spectral_gap
from jaxfl.simulation import mesh, processes
from jaxfl.simulation.evaluation import Evaluation, Stage
from jaxfl.simulation.statistics import (
    SeedStatistics,
    StageStatistics,
    Stopped,
    each_seed,
    over_seeds,
    select_on_val,
    summarise,
    timed_summary,
)


class History:
    """Collects the records of a run, client by client; a malicious one has no scores."""

    def __init__(self, built: Built, rounds: Path):
        """Of a run before its first record.

        Args:
          built: the run.
          rounds: the folder of the pieces of its rounds.
        """
        self.method = built.method
        self.options = built.options
        keep_weights = built.options.keeping.keep_weights
        self.archive = Archive(rounds, keep_weights, built.options.run.rounds)
        self.seeds = built.seeds
        self.excess = built.excess
        self.exposure = built.exposure
        self.timing = built.timing
        self.elapsed = np.zeros(self.seeds.count)  # virtual time of each seed
        self.source = built.data.source
        self.inputs = inputs_of(self.source)
        self.names = built.client_names
        self.malicious, self.unseen = built.malicious, built.unseen
        self.groups = built.groups
        self.devices = built.devices
        self.metrics = built.metrics
        self.measure = self.metrics[0]
        sizes, validates = self.seeds.with_axis(mesh.fetch(_sizes(built.data.federation)))
        self.sizes: np.ndarray = sizes  # [S, C]
        self.validates: np.ndarray = validates  # which clients have validation examples [S, C]
        self.lines: list[Line] = []
        self.stopped: Stopped | None = None  # by `--stop-after`, after the last line
        after = built.options.scores.score_after
        self.stages: tuple[Stage, ...] = ("deployed",) if after == "none" else ("deployed", after)
        self.scores: dict[str, list[np.ndarray]] = {
            self._array(stage, part, name): []
            for name in self.metrics
            for stage in self.stages
            for part in ("val", "test")
        }
        self.ids: list[np.ndarray] = []
        self.sent = {"up": 0, "down": 0, "batches": 0}  # of all seeds
        if built.lost is not None:
            self.sent |= {"reported": 0, "lost": 0}
        # client -> rounds that it was left out of, over all seeds
        self.diverged: Counter[int] = Counter()
        # by metric, the statistics of the constant predictors
        self.constant: dict[str, FurtherScores] = {}
        self.told_sparse = False  # whether it was said that sparse rows are not kept
        self.recent: set[int] = set()  # clients that were left out since the last line

    @cached_property
    def layers(self) -> list[str]:
        """The layers of the model in the order in which an example passes them."""
        return layers_by_depth(self.options.model, self.source)

    def by_name(self, record: Record) -> dict[str, np.ndarray]:
        """The mixing weights of a record by name in `graph.npz`, layers by their depth."""
        weights = record.info.weights
        if is_sparse(weights):
            if not self.told_sparse:
                warn(
                    f"the weights of {weights.columns.shape[-2]:,} clients are sparse rows, of "
                    "which neither graph.npz nor a picture is made; from Python make_rounds gives "
                    "them"
                )
            self.told_sparse = True
            return {}
        has_parts = len(jax.tree.leaves(weights)) > 1
        return weights_by_name(weights, self.layers if has_parts else ())

    def _array(self, stage: Stage, part: str, metric: str) -> str:
        """The name of the scores of a stage in clients.npz; those of the first metric are plain."""
        return f"{stage}_{part}" if metric == self.measure else f"{stage}_{part}_{metric}"

    def add(self, record: Record) -> Line | None:
        """Takes in a record and returns its line of `metrics.jsonl`, None without an evaluation.

        Of several processes that run together, the first one keeps the weights.
        """
        for way in self.sent:
            self.sent[way] += int(getattr(record.info, way).sum(dtype=np.int64))
        lost = False if record.info.lost is None else record.info.lost
        clients = record.ids[~(record.info.reported | lost)].tolist()
        self.diverged.update(clients)
        self.recent |= set(clients)
        self.ids.append(record.ids)
        if self.timing is not None:
            self.elapsed = self.timing.after(record.ids, self.elapsed, record.round)
        line, scores = self._evaluate(record)
        self._look_for_stop()
        if processes.is_main_process():
            arrays = {IDS: record.ids} | {name: row[:, None] for name, row in scores.items()}
            if line is not None:
                arrays[LINES] = np.array([json.dumps(line)], bytes)
            self.archive.add(record.round, arrays, self.by_name(record))
        return line

    @property
    def validation(self) -> np.ndarray:
        """The validation scores of the deployed models of the clients that count [E, S, C]."""
        scores = np.stack(self.scores[self._array("deployed", "val", self.measure)])
        return scores[..., ~self.unseen]

    def _look_for_stop(self) -> None:
        """Says in `stopped` whether the run ends with its last line."""
        if self.options.scores.stop_after is None or not self.lines:
            return
        rounds = [line["round"] for line in self.lines]
        self.stopped = find_stop(self.validation, rounds, self.options.scores.stop_after)
        if self.stopped is not None:
            # The weights of the last round are always kept.
            self.archive.rounds = self.stopped["round"]

    def _evaluate(self, record: Record) -> tuple[Line | None, dict[str, np.ndarray]]:
        """The line of a record, None without an evaluation, and its scores [S, C] by name."""
        if record.evaluation is None:
            return None, {}
        malicious = self.malicious[record.evaluated]
        by_name = scores_by_metric(record.evaluation, self.metrics, malicious)
        rows = {}
        for metric, stages in by_name.items():
            for stage, scores in stages.items():
                for part, values in (("val", scores.val), ("test", scores.test)):
                    row = np.full(self.sizes.shape, np.nan, np.float32)
                    np.put_along_axis(row, record.evaluated, values, axis=1)
                    name = self._array(stage, part, metric)
                    self.scores[name].append(row)
                    rows[name] = row
        line = make_line(record, self._statistics(record.evaluated, by_name), self._totals())
        if self.timing is not None:
            line["time"] = float(self.elapsed.mean())
            if self.elapsed.size > 1:
                line["times"] = self.elapsed.tolist()
        counted = ~self.malicious & ~self.unseen
        share = share_with_one_label(record.evaluation, record.evaluated, counted)
        if share is not None:
            line["one_label"] = share
        if facts_of(ALGORITHMS[self.method.algorithm]).reports_gap:
            # Of each seed, in the last round.
            last = jax.tree.map(lambda x: x[:, -1], record.info.weights)
            gap = np.mean([spectral_gap(tree.at(last, s)) for s in range(self.seeds.count)])
            line["metrics"] = line.get("metrics", {}) | {"spectral_gap": number_or_null(gap)}
        weights = self.by_name(record)
        if graph := graph_measures(weights, record.ids, self.groups, self.malicious):
            line["graph"] = graph
        if self.recent:
            line["diverged"] = sorted(self.recent)
        self.recent = set()
        self.lines.append(line)
        return line, rows

    def _statistics(self, evaluated: np.ndarray, scores: ByMetric) -> dict[str, FurtherScores]:
        return statistics_by_metric(
            evaluated,
            scores,
            self.sizes,
            self.unseen,
            self.malicious,
            tells_undefined=bool(self.options.scores.metric),
        )

    def add_constant(self, evaluation: Evaluation, evaluated: np.ndarray) -> None:
        """Takes in the scores of the constant predictors, of the clients evaluated [S, E]."""
        malicious = self.malicious[evaluated]
        scores = scores_by_metric(evaluation, self.metrics, malicious)
        self.constant = self._statistics(evaluated, scores)

    def without_validation_score(self, evaluated: np.ndarray) -> np.ndarray:
        """Ids of clients with validation examples and without a score on them.

        Args:
          evaluated: ids of the clients that were evaluated last [S, E].
        """
        if not self.lines:
            return np.zeros(0, int)
        val = self.scores[self._array("deployed", "val", self.measure)][-1]
        lacking = np.isnan(val) & self.validates & ~self.malicious & ~self.unseen
        return np.unique(evaluated[np.take_along_axis(lacking, evaluated, axis=1)])

    def arrays(self) -> dict[str, np.ndarray]:
        """What a checkpoint keeps beside the pieces of the archive; see `restore`."""
        arrays = {f"total_{way}": np.array(number) for way, number in self.sent.items()}
        clients = sorted(self.diverged)
        arrays["diverged"] = np.array(clients, np.int64)
        arrays["diverged_rounds"] = np.array([self.diverged[one] for one in clients], np.int64)
        arrays["recent"] = np.array(sorted(self.recent), np.int64)
        if self.timing is not None:
            arrays |= {"elapsed": self.elapsed, "durations": self.timing.durations}
        return arrays

    def restore(self, number: int, arrays: dict[str, np.ndarray]) -> None:
        """Goes back to a checkpoint.

        Args:
          number: of its round.
          arrays: what `arrays` were.
        """
        self.sent = {way: int(arrays[f"total_{way}"]) for way in self.sent}
        counts = zip(arrays["diverged"].tolist(), arrays["diverged_rounds"].tolist(), strict=True)
        self.diverged = Counter(dict(counts))
        self.recent = set(arrays["recent"].tolist())
        if self.timing is not None:
            same = np.array_equal(arrays["durations"], self.timing.durations)
            check(same, "the durations of the clients have changed since")
            self.elapsed = arrays["elapsed"]
        for piece in self.archive.restore(number):
            self.ids.append(piece[IDS])
            if LINES in piece:
                self.lines += [json.loads(line) for line in piece[LINES]]
                for name, rows in self.scores.items():
                    rows += [*piece[name].swapaxes(0, 1)]
        self._look_for_stop()

    def clients(self) -> dict[str, np.ndarray]:
        """Arrays of `clients.npz`: scores [E, C], with several seeds [S, E, C]."""
        scores = {name: np.stack(rows, axis=1) for name, rows in self.scores.items()}
        arrays = self.seeds.without_axis({"sizes": self.sizes} | scores)
        rounds = np.array([row["round"] for row in self.lines])
        return {"round": rounds, "malicious": self.malicious, "unseen": self.unseen} | arrays

    def graph(self) -> dict[str, Member] | None:
        """Arrays of `graph.npz`, if any: weights [T, M, M] and ids [T, M], or [S, T, ...].

        Where parts of the model have their own weights, these are `weights_PART`. Where not all
        rounds are kept, `rounds` [T] has their numbers.
        """
        archive, seeds = self.archive, self.seeds
        if not archive.matrices:
            return None

        def matrices(name: str) -> Iterator[np.ndarray]:
            for seed in range(seeds.count):
                yield from archive.read(name, seed)

        numbers = np.array(archive.numbers())
        members = {}
        for name, (shape, dtype) in archive.matrices.items():
            members[name] = Member(seeds.shape(numbers.size, *shape), dtype, matrices(name))
        ids = np.concatenate(self.ids, axis=1)[:, numbers - 1]
        members[IDS] = npz.whole(seeds.without_axis(ids))
        if numbers.size < self.lines[-1]["round"]:
            members["rounds"] = npz.whole(numbers)
        return members

    def summary(self, compile_seconds: float) -> Summary:
        """The content of `summary.json`."""
        last = self.lines[-1]
        name: RunName = {"algorithm": self.method.algorithm}
        if self.method.label:
            name["label"] = self.method.label
        summary: Summary = {
            **name,
            "measure": self.measure,
            "final": over_seeds(each_seed(last)),
            "selected_on_val": self._selected_on_val(self.measure),
            "rounds": last["round"],
            **timed_summary(self.options.scores.target, self.lines, self.measure),
            "seconds": last["seconds"],
            "compile_seconds": round(compile_seconds, 3),
            **self._totals(),
            "diverged": {str(client): rounds for client, rounds in sorted(self.diverged.items())},
            "inputs": self.inputs,
            "devices": self.devices,
            "versions": versions(),
        }
        if self.stopped is not None:
            summary["stopped"] = self.stopped
        if self.names:
            summary["clients"] = list(self.names)
        if "unseen" in last:
            summary["unseen"] = last["unseen"]
        if "one_label" in last:
            summary["one_label"] = last["one_label"]
        if self.constant:
            summary["constant"] = self.constant[self.measure]
        if "scores" in last:
            summary["scores"] = {}
            for metric, scores in last["scores"].items():
                further: FurtherSummary = {
                    "final": over_seeds(each_seed(scores)),
                    "selected_on_val": self._selected_on_val(metric),
                }
                if "unseen" in scores:
                    further["unseen"] = scores["unseen"]
                if metric in self.constant:
                    further["constant"] = self.constant[metric]
                summary["scores"][metric] = further
        if "graph" in last:
            summary["graph"] = last["graph"]
        if self.exposure is not None:
            summary["privacy"] = claim(
                self.exposure,
                self.ids,
                self.malicious.size,
                stops=self.options.scores.stop_after is not None,
            )
        return summary

    def _selected_on_val(self, metric: str) -> SeedStatistics:
        """The statistics where each client takes the evaluation of its best validation score.

        This is the score by the first metric, whatever the metric of the statistics.
        """
        seeds = []
        for seed, sizes in enumerate(self.sizes):
            statistics = {}
            for stage in self.stages:
                val = np.stack(self.scores[self._array(stage, "val", self.measure)])[:, seed]
                test = np.stack(self.scores[self._array(stage, "test", metric)])[:, seed]
                scores = np.where(self.unseen, np.nan, select_on_val(val, test))
                statistics[stage] = summarise(scores, sizes)
            seeds.append(StageStatistics(**statistics))
        return over_seeds(seeds)

    def _totals(self) -> Traffic:
        """What all clients have sent and computed, the mean over the seeds.

        Bytes are 4 a float, and the excess of each round's uploads; of clients that send a part of
        them, such as those with narrower models, in proportion.
        """
        means = {way: round(total / len(self.sizes)) for way, total in self.sent.items()}
        uploads = sum(ids[0].size for ids in self.ids)
        floats, excess = (uploads * each for each in self.excess)
        if means["up"] < floats:
            excess = round(excess * means["up"] / floats)
        return Traffic(**means, up_bytes=4 * means["up"] + excess)


@jax.jit
def _sizes(federation: Federation) -> tuple[Array, Array]:
    """Examples of each client, and whether it has validation examples, in one program."""
    return federation.sizes, (federation.val.mask > 0).any(axis=-1)


def versions() -> dict[str, str]:
    """Versions of what computes, and the device that did."""
    names = ("jax", "jaxlib", "flax", "optax", "numpy")
    packages = {"jaxfl": VERSION} | {name: metadata.version(name) for name in names}
    return {"python": platform.python_version(), **packages, "device": jax.devices()[0].device_kind}
