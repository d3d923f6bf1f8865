"""What each client gains by each run, from its scores, and whose models it is given."""

import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from jaxfl.core.errors import InputError, check, warn
from jaxfl.data.partition import OWNED
from jaxfl.experiment.reading.client_ids import id_or_name
from jaxfl.experiment.reading.gains import (
    FEW,
    Result,
    intervals_over_examples,
    mean,
    predict_all,
    result_over_seeds,
    undefined_notes,
)
from jaxfl.experiment.reading.load import FinishedRun, load
from jaxfl.experiment.store.files import INPUTS, read_arrays
from jaxfl.experiment.store.graph_file import WEIGHTS, open_graph
from jaxfl.experiment.store.read_records import read_digests
from jaxfl.experiment.store.records import RunRecord, Runs
from jaxfl.experiment.tables.differences import overlap, reference_of
from jaxfl.experiment.tables.grouping import Group, comparable_groups, heading
from jaxfl.experiment.tables.pooling import pool_seeds
from jaxfl.experiment.tables.scores import members_text, ranked
from jaxfl.simulation.metrics import metric_of

ALONE = "local"  # the method whose clients are alone
VISIBLE = 0.005  # the smallest weight that counts as one


class Holding(NamedTuple):
    """How many examples a client holds, in the first seed; None where the data set is not there."""

    train: int | None = None
    test: int | None = None  # of positive weight
    positives: tuple[int, int] | None = None  # among the two, if there are two labels


class Senders(NamedTuple):
    """Whose models the model of a client is made of."""

    part: str  # of the model; "" if all parts have the same weights
    own: float  # weight of the client's own model
    others: list[tuple[int, float]]  # clients and their weights, the strongest first


class Answers(NamedTuple):
    """What is known of each client of runs with the same clients."""

    setting: str  # what other groups have otherwise; "" if there is one group
    heading: str
    measure: str  # the metric of the scores
    reference: str  # label of the run with which the others are compared
    algorithms: dict[str, str]  # by label: the reference, then the others, the best first
    clients: list[int]  # ids of those that are shown
    names: list[str]  # of all clients; empty if they have none
    malicious: np.ndarray  # [C]
    unseen: np.ndarray  # [C]
    positive: str  # the name of label 1 of two; "" if there are others
    holdings: dict[int, Holding]
    results: dict[str, dict[int, Result]]  # by label and client
    senders: dict[str, dict[int, Senders]]  # by label and client; without runs that have no weights
    seeds: int  # times folds
    members: str  # what these are
    overlap: float  # of the training sets of folds, see `tables.differences.paired`
    notes: list[str]

    @property
    def alone(self) -> str:
        """What the reference is called in a sentence."""
        return "alone" if self.algorithms[self.reference] == ALONE else self.reference

    def name(self, client: int) -> str:
        """A client in a cell of a table."""
        return self.names[client] if self.names else str(client)


def client_answers(
    runs: Runs, *, against: str | None = None, client: str | None = None
) -> list[Answers]:
    """What each client gains by the runs, for each group of runs with the same clients.

    Scores are the last ones of the deployed models, by the first metric of the runs. With several
    seeds the interval of a difference is that of the paired t-test over the seeds. With one seed it
    is a bootstrap over the client's test examples, paired between the models, and stratified by
    label where targets are labels: the 2.5 and 97.5 % quantiles of the difference.

    Args:
      runs: of `store.finished_runs.load_finished`.
      against: the name of a run or a method with which the others are compared; `local` if not
        given.
      client: the only one, by its name or its id.

    Raises:
      InputError: there is no such run or client, or a file or the data set is missing that is
        needed.
    """
    groups = comparable_groups(pool_seeds(runs))
    return [_answers_of(group, against, client) for group in groups]


def _answers_of(group: Group, against: str | None, client: str | None) -> Answers:
    where = f" with {group.setting}" if group.setting else ""
    check(
        against is not None
        or any(ALONE in (label, run.summary["algorithm"]) for label, run in group.runs.items()),
        f"no run{where} is of {ALONE}, whose clients are alone: add one to the comparison, or name "
        "another run to compare with by --against",
    )
    reference = reference_of(group.runs, against or ALONE, group.setting)
    others = [label for label in ranked(group.runs) if label != reference]
    runs = {label: group.runs[label] for label in (reference, *others)}
    for label, run in runs.items():
        check(
            run.config is not None and bool(run.directories),
            f"{label} has no config.json that this version can read: leave it out",
        )
    first = load(runs[reference].directories[0])
    count = first.config.clients or 0
    clients = list(range(count))
    if client is not None:
        clients = [first.client_id(id_or_name(client, first.names))]
    stored = {label: _last_scores(run, count) for label, run in runs.items()}
    seeds = len(stored[reference])
    arrays = first.clients
    answers = Answers(
        setting=group.setting,
        heading=heading(group),
        measure=runs[reference].summary["measure"],
        reference=reference,
        algorithms={label: run.summary["algorithm"] for label, run in runs.items()},
        clients=clients,
        names=first.names,
        malicious=arrays["malicious"],
        unseen=arrays["unseen"],
        positive=_positive_name(first),
        holdings=_holdings(first, clients, needed=seeds == 1),
        results={},
        senders={label: _senders(run.directories[0], clients) for label, run in runs.items()},
        seeds=seeds,
        members=members_text(seeds, first.config.folds),
        overlap=overlap(first.config),
        notes=_notes(first, seeds),
    )
    if seeds > 1:
        results = _over_seeds(stored, answers)
        defined = np.min([np.isfinite(one).sum(axis=0) for one in stored.values()], axis=0)
        shown = np.isin(np.arange(count), clients)
        notes = undefined_notes(np.where(shown, defined, 0), answers.names, seeds, answers.members)
        answers.notes.extend(notes)
    else:
        results, few = _over_examples(runs, stored, answers)
        answers.notes.extend(_few_notes(few, answers))
    answers.results.update(results)
    return answers


def _last_scores(run: RunRecord, count: int) -> np.ndarray:
    """The last stored test scores of the deployed models [S, C]."""
    rows = []
    for directory in run.directories:
        file = directory / "clients.npz"
        scores = read_arrays(file).get("deployed_test", np.zeros(0))
        check(
            scores.ndim in (2, 3) and scores.size > 0 and scores.shape[-1] == count,
            f"{file} does not hold the scores of the run: run again",
        )
        rows.append(scores[None, -1] if scores.ndim == 2 else scores[:, -1])
    return np.concatenate(rows)


def _positive_name(run: FinishedRun) -> str:
    """The name of label 1 where there are two labels, else ""."""
    inputs = run.summary.get("inputs")
    if inputs is None or inputs["classes"] != 2:
        return ""
    return run.class_names[1] if run.class_names else "label 1"


def _holdings(run: FinishedRun, clients: Sequence[int], *, needed: bool) -> dict[int, Holding]:
    """How many examples the clients hold, in the first seed.

    Args:
      run: with these clients.
      clients: their ids.
      needed: whether the test examples are needed further on, so that it is an error if they are
        not there.
    """
    holdings = dict.fromkeys(clients, Holding())
    is_binary = bool(_positive_name(run))
    try:
        for client in clients:
            train, test = (part(client).y for part in (run.train, run.test))
            positives = (int((train == 1).sum()), int((test == 1).sum())) if is_binary else None
            holdings[client] = Holding(len(train), len(test), positives)
    except InputError as error:
        if needed:
            raise
        warn(f"the clients' numbers of examples are left out: {error}")
    return holdings


def _senders(run: Path, clients: Sequence[int]) -> dict[int, Senders]:
    """Whose models the clients have mixed when they last took part, in the first seed.

    Of several parts of the model it is the one in which the client's own weight is least.
    """
    graph = open_graph(run)
    if graph is None:
        return {}
    last = {id: place for place, ids in enumerate(graph.ids) for id in ids.tolist()}
    places = {client: last[client] for client in clients if client in last}
    rounds = sorted(set(places.values()))
    senders: dict[int, Senders] = {}
    for name in graph.names:
        part = name.removeprefix(WEIGHTS).lstrip("_")
        for place, weights in zip(rounds, graph.weights(name, rounds), strict=True):
            ids = graph.ids[place].tolist()
            for client in (one for one in clients if places.get(one) == place):
                row = dict(zip(ids, weights[ids.index(client)].tolist(), strict=True))
                own = row.pop(client)
                if client not in senders or own < senders[client].own:
                    others = [(one, weight) for one, weight in row.items() if weight >= VISIBLE]
                    others.sort(key=lambda pair: (-pair[1], pair[0]))
                    senders[client] = Senders(part, own, others)
    return senders


def _over_seeds(scores: dict[str, np.ndarray], answers: Answers) -> dict[str, dict[int, Result]]:
    """Mean scores over the seeds that have one, with the interval of the paired t-test.

    Args:
      scores: of each run, as they are stored [S, C].
      answers: what they are.
    """
    metric = metric_of(answers.measure)
    shown = {label: np.vectorize(metric.shown, [float])(one) for label, one in scores.items()}
    results: dict[str, dict[int, Result]] = {label: {} for label in scores}
    for client in answers.clients:
        other = shown[answers.reference][:, client]
        for label in scores:
            score = shown[label][:, client]
            if label == answers.reference:
                results[label][client] = Result(mean(score), math.nan, math.nan, math.nan)
            else:
                results[label][client] = result_over_seeds(
                    metric, score, other, overlap=answers.overlap
                )
    return results


def _over_examples(
    runs: Runs, stored: dict[str, np.ndarray], answers: Answers
) -> tuple[dict[str, dict[int, Result]], list[int]]:
    """Scores of one seed, with the interval of a bootstrap over the client's test examples.

    Args:
      runs: with the same clients, the reference first.
      stored: their scores [1, C].
      answers: what they are.

    Returns:
      The results by label and client, and the clients that have few test examples.
    """
    loaded = {label: load(run.directories[0]) for label, run in runs.items()}
    _check_same_examples(loaded)
    first = loaded[answers.reference]
    metric = metric_of(answers.measure, first.class_names, first.ends)
    results: dict[str, dict[int, Result]] = {label: {} for label in runs}
    few = []
    for client in answers.clients:
        scores = {label: float(one[0, client]) for label, one in stored.items()}
        for label, score in scores.items():
            shown = metric.shown(score) if math.isfinite(score) else math.nan
            results[label][client] = Result(shown, math.nan, math.nan, math.nan)
        labels = [label for label, score in scores.items() if math.isfinite(score)]
        if answers.reference not in labels:
            continue
        examples = first.test(client)
        predictions = [
            predict_all(partial(loaded[label].scores, client), examples.x) for label in labels
        ]
        intervals, is_few = intervals_over_examples(metric, predictions, examples, seed=client)
        few += [client] if is_few else []
        for label, (low, high) in zip(labels[1:], intervals, strict=True):
            difference = metric.gain(scores[label], scores[answers.reference])
            result = results[label][client]
            results[label][client] = Result(result.score, difference, low, high, is_few)
    return results, few


def _check_same_examples(runs: dict[str, FinishedRun]) -> None:
    digests = {
        label: set(read_digests(run.directory / INPUTS)["data"]) for label, run in runs.items()
    }
    (reference, first), *others = digests.items()
    for label, digest in others:
        check(
            bool(first & digest),
            f"the data set has changed between the runs {reference} and {label}, so that their "
            "clients cannot be compared: run them again",
        )


def _notes(run: FinishedRun, seeds: int) -> list[str]:
    """What a reader must know of the clients of several seeds."""
    config = run.config
    notes = []
    if seeds > 1 and config.partition not in OWNED and config.data_seed is None:
        notes.append(
            "Each seed divides the examples anew, so that a client is not the same one in all of "
            "them; --data-seed would keep the clients."
        )
    return notes


def _few_notes(few: list[int], answers: Answers) -> list[str]:
    """Which clients have few test examples."""
    if not few:
        return []
    names = ", ".join(answers.name(client) for client in few[:10])
    names += f" and {len(few) - 10} more" if len(few) > 10 else ""
    return [
        f"Intervals are too narrow where a client has fewer than {FEW} test examples, or fewer of "
        f"a label, so that it is unclear whether it gains: {names}."
    ]
