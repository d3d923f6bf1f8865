"""The parts of a report's page about clients: who learned from whom, who holds what, scores."""

import math
from collections.abc import Collection, Sequence
from dataclasses import fields
from html import escape
from typing import NamedTuple

import numpy as np

from jaxfl.core.errors import InputError, check
from jaxfl.data import Source
from jaxfl.data.federate import label_counts
from jaxfl.experiment.config import Setting, resolve
from jaxfl.experiment.config.hints import check_fields
from jaxfl.experiment.html import document
from jaxfl.experiment.html.survival_part import survival_parts
from jaxfl.experiment.pictures.client_colours import Clients, Holdings, clients_of
from jaxfl.experiment.pictures.drawing import shorten
from jaxfl.experiment.pictures.graphs import Graph, evenly_spaced
from jaxfl.experiment.reading.load import FinishedRun
from jaxfl.experiment.session.gather import assign, malicious, true_groups
from jaxfl.experiment.store.graph_file import GraphFile, open_graph
from jaxfl.experiment.store.records import Runs
from jaxfl.experiment.tables.grouping import Group
from jaxfl.experiment.tables.scores import ranked
from jaxfl.experiment.tables.tables import metrics_of
from jaxfl.simulation.metrics import metric_of

FRAMES = 60  # rounds at most, of a graph with a slider
NUMBERS = 2_000_000  # at most, of all graphs of the page together: some twelve megabytes
SIDE = 300  # rows at most, of a graph
CELLS = 200_000  # at most, of the labels of all clients
COLUMNS = 1000  # at most, of the labels of all clients
POINTS = 2000  # clients at most whose scores are drawn
ROWS = 1000  # clients at most, in the table of clients
SEED = "Of several seeds or folds, this is the first one."
FOLDS = "The scores are means over the folds of the first seed."


class GroupClients(NamedTuple):
    """Runs with the same clients, and what is known of these."""

    name: str
    runs: Runs
    loaded: dict[str, FinishedRun]
    holdings: Holdings
    problem: str  # why it is not known who holds what, or ""


def client_parts(groups: Sequence[Group], highlight: Collection[str] = ()) -> list[document.Part]:
    """The parts about the clients of runs; what is not known is left out.

    Args:
      groups: of `tables.grouping.comparable_groups`.
      highlight: labels or methods that are in colour among many.

    Raises:
      InputError: the arrays of a run are damaged.
    """
    sources: dict[str, Source] = {}
    entries = []
    for group in groups:
        runs = {
            label: FinishedRun(run.directory, run.config)
            for label, run in ranked(group.runs).items()
            if run.directory is not None and run.config is not None and run.config.clients
        }
        if runs:
            holdings, problem = _holdings(next(iter(runs.values())), sources)
            name = group.setting or "all runs"
            entries.append(GroupClients(name, group.runs, runs, holdings, problem))
    if not entries:
        return []
    times = survival_parts([(one.name, one.loaded) for one in entries])
    return [*_graphs(entries), *times, _clients(entries, highlight)]


def _holdings(run: FinishedRun, sources: dict[str, Source]) -> tuple[Holdings, str]:
    """Who holds what in the first seed of a run, and why that is not known, if it is not.

    Args:
      run: with its config.
      sources: data sets that were loaded before; that of the run is added.
    """
    config = run.config
    place = repr((config.dataset, config.data_dir, config.merge_test))
    try:
        # Of a plug-in's partition nothing is known here.
        check_fields(config, *(one.name for one in fields(Setting)))
        resolved = resolve(config, sources.get(place))
        sources[place] = source = resolved.source
        parts = assign(resolved.options.data, source)
    except InputError as error:  # the data set is not on this machine, for example
        order = np.arange(config.clients or 0)
        colours = np.zeros((len(order), 4))
        names = tuple(run.names)
        clients = Clients(order, colours, "", None, malicious(config, len(order)), names)
        return Holdings(clients, None, []), str(error)
    groups = true_groups(resolved.options.data, source)
    clients = clients_of(source, parts, groups, malicious(resolved.options.upload, len(parts)))
    counts = label_counts(source, parts)
    kind = "" if source.classes else "tenth "
    numbers = [f"{kind}{number}" for number in range(counts.shape[1])]
    names = ["censored", "events"] if source.survival else list(source.class_names) or numbers
    return Holdings(clients, counts, names), ""


def _graphs(entries: Sequence[GroupClients]) -> list[document.Part]:
    """The mixing weights by round, of all runs that have some."""
    from jaxfl.experiment.html.client_figures import graph_view

    graphs = [(one, label, _graph(run)) for one in entries for label, run in one.loaded.items()]
    matrices = [
        (one, label, name, graph)
        for one, label, graph in graphs
        if graph is not None
        for name in graph.names
    ]
    if not matrices:
        return []
    # The page opens the first one.
    matrices.sort(key=lambda one: not _has_graph(one[-1]))
    views = []
    fewer = False
    # Each graph has one round at least.
    side = min(SIDE, math.isqrt(NUMBERS // len(matrices)))
    for one, label, name, graph in matrices:
        ids = graph.ids
        most = min(FRAMES, NUMBERS // len(matrices) // min(ids.shape[1], side) ** 2)
        fewer |= most < len(ids)
        places = evenly_spaced(len(ids), most)
        rounds = {
            int(graph.rounds[place]): Graph({name: weights}, ids[place])
            for place, weights in zip(places, graph.weights(name, places), strict=True)
        }
        part = next(iter(next(iter(rounds.values())).by_part))
        title = f"{label} ({part})" if part else label
        title = f"{title}, {one.name}" if len(entries) > 1 else title
        views.append(graph_view(title, part, rounds, one.holdings.clients, side))
    sentences = ["A row is a client that receives, a column a client that sends."]
    if any(one.holdings.clients.groups is not None for one in entries):
        sentences.append("Groups of clients are outlined.")
    if any(one.holdings.clients.malicious.any() for one in entries):
        sentences.append("Malicious clients are red.")
    if any(graph.ids.shape[1] > side for *_, graph in matrices):
        sentences.append(
            f"Of more than {side} clients a cell is the mean weight between neighbours, without "
            "their weights for themselves; graph.npz has all."
        )
    if fewer:
        sentences.append("The slider has some of the rounds; graph.npz has more.")
    if _has_seeds(entries):
        sentences.append(SEED)
    body = document.panel("mixing weights by round", views, "weights of", 520)
    note = document.paragraph(" ".join(sentences), "caption")
    return [document.Part("graph", "Who learned from whom", body + note)]


def _has_graph(graph: GraphFile) -> bool:
    """Whether clients listen to different others in the last round that is kept."""
    last = [len(graph.ids) - 1]
    return any(is_graph(next(graph.weights(name, last))) for name in graph.names)


def is_graph(weights: np.ndarray) -> bool:
    """Whether clients listen to others, and not all to the same ones, by weights [M, M].

    Example:
      >>> is_graph(np.eye(3)), is_graph(np.full((3, 3), 1 / 3))
      (False, False)
    """
    alone = (weights == np.diag(np.diag(weights))).all()
    return not (alone or np.allclose(weights, weights[:1]))


def _has_seeds(entries: Sequence[GroupClients]) -> bool:
    return any(run.seeds.count > 1 for one in entries for run in one.loaded.values())


def _graph(run: FinishedRun) -> GraphFile | None:
    """The weights of each part in the first seed; None if the run has none."""
    graph = open_graph(run.directory)
    if graph is not None:
        check(
            0 <= graph.ids.min() <= graph.ids.max() < (run.config.clients or 0),
            f"{graph.file} does not hold the weights of the run: run again",
        )
    return graph


def _scores(one: GroupClients, metric: str) -> dict[str, np.ndarray]:
    """The stored test scores of each client by a metric in each run that has them: label -> [C]."""
    return {
        label: scores_of_run(one.loaded[label], metric)
        for label, run in one.runs.items()
        if label in one.loaded and metric in metrics_of({label: run})
    }


def scores_of_run(run: FinishedRun, metric: str) -> np.ndarray:
    """The stored test score of each client's deployed model, first seed, last round [C].

    It is the mean over the folds in which the client has one.
    """
    name = "deployed_test"
    if metric != run.summary["measure"]:
        name = f"{name}_{metric}"
    scores = run.seeds.with_axis(run.clients.get(name, np.zeros(0)))
    check(
        scores.ndim == 3
        and scores.shape[1] > 0
        and scores.shape[2] == run.config.clients
        and scores.dtype.kind == "f",
        f"{run.directory / 'clients.npz'} does not hold the scores of the run: run again",
    )
    each = scores[: run.seeds.folds, -1]
    known = ~np.isnan(each)
    total = np.where(known, each, 0.0).sum(axis=0)
    return np.where(known.any(axis=0), total / np.maximum(known.sum(axis=0), 1), np.nan)


def _clients(entries: Sequence[GroupClients], highlight: Collection[str]) -> document.Part:
    """Who holds what, and the scores client by client."""
    from jaxfl.experiment.html.client_figures import holding_view, score_view

    metrics = list(dict.fromkeys(name for one in entries for name in metrics_of(one.runs)))
    holders = [
        (one.name, one.holdings.counts, one.holdings.labels, one.holdings.clients)
        for one in entries
        if one.holdings.counts is not None
    ]
    body = []
    notes = []
    if holders:
        columns = [min(COLUMNS, max(1, CELLS // len(one[2]))) for one in holders]
        views = [holding_view(*one, most) for one, most in zip(holders, columns, strict=True)]
        body.append(
            document.panel("examples of each label at each client", views, "clients of", 460)
        )
        if any(len(one[1]) > most for one, most in zip(holders, columns, strict=True)):
            notes.append(
                f"Of more than {min(columns):,} clients a column is the mean of neighbours."
            )
    notes += [
        f"Who holds what is not known here ({one.name}): {one.problem}"
        for one in entries
        if one.problem
    ]
    body += [document.paragraph(note, "caption") for note in notes]
    measure = metrics[0]
    name = metric_of(measure).name if len(metrics) == 1 else "scores"
    body.append(f"<h3>Test {escape(name)} of each client's deployed model, last round</h3>")
    views = []
    for metric in metrics:
        behind = f", {metric_of(metric).name}" if len(metrics) > 1 else ""
        for one in entries:
            if scores := _scores(one, metric):
                place = (f"{one.name}{behind}", one.runs, scores, one.holdings.clients, highlight)
                views.append(score_view(*place, measure=metric, most=POINTS))
    body.append(document.panel("score of each client", views, "clients of", 380))
    if any(run.seeds.folds > 1 for one in entries for run in one.loaded.values()):
        body.append(document.paragraph(FOLDS, "caption"))
    elif _has_seeds(entries):
        body.append(document.paragraph(SEED, "caption"))
    largest = max(len(one.holdings.clients.order) for one in entries)
    if largest > POINTS:
        body.append(
            document.paragraph(
                f"Of more than {POINTS:,} clients some are shown; clients.npz has all.", "caption"
            )
        )
    for one in entries:
        title = "Client by client" if len(entries) == 1 else f"Client by client ({one.name})"
        if len(one.holdings.clients.order) > ROWS:
            title = f"{title}: the first {ROWS:,}"
        body.append(document.details(title, _table(_scores(one, measure), one.holdings, measure)))
    return document.Part("clients", "Who holds what", "\n".join(body))


def _table(scores: dict[str, np.ndarray], holdings: Holdings, measure: str) -> str:
    """A row for each client: its group, its examples, its labels, and its score in each run."""
    metric = metric_of(measure)
    groups, counts = holdings.clients.groups, holdings.counts
    titles = ["client", *(["group"] if groups is not None else [])]
    titles += [] if counts is None else ["examples", "labels"]
    rows = []
    for client in holdings.clients.order.tolist()[:ROWS]:
        row = [
            holdings.clients.name(client),
            *([str(groups[client])] if groups is not None else []),
        ]
        if counts is not None:
            labels = [holdings.labels[label] for label in np.flatnonzero(counts[client])]
            row += [str(counts[client].sum()), shorten(" ".join(labels), 40)]
        for one in scores.values():
            row.append(
                f"{metric.shown(float(one[client])):{metric.format}}"
                if np.isfinite(one[client])
                else "-"
            )
        rows.append(row)
    return document.table([*titles, *scores], rows)
