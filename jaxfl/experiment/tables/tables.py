"""The table of finished runs: its columns, rows, caption and warnings."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from jaxfl.algorithms import ALGORITHMS
from jaxfl.core.facts import facts_of
from jaxfl.experiment.config.hints import as_typed
from jaxfl.experiment.store.records import RunRecord, Runs, Summary
from jaxfl.experiment.tables.constant import constant_of
from jaxfl.experiment.tables.heading import SAME_CLIENTS, differing_options, have_same_clients
from jaxfl.experiment.tables.scores import (
    TITLES,
    amount,
    gains,
    has_rank,
    measure_of,
    members_text,
    most_mixed,
    ranked,
    score_text,
    spread_text,
)
from jaxfl.experiment.tables.target_score import TIMED, timed_cells
from jaxfl.simulation.metrics import metric_of
from jaxfl.simulation.statistics import SeedStatistics

REFERENCES = ("local", "fedavg")  # the other runs are compared with them
Part = Literal["final", "unseen"]  # of a summary: which clients a row is about
# A mean loss against local training, in %, that is worth a warning; of other scores any loss is.
WORTH_A_WARNING = 0.5
POOLED = ", pooled"  # behind the title of a metric, of the predictions of all clients together
# The titles of further columns of scores.
SCORES = (
    "worst clients",
    TITLES["trained"],
    TITLES["fine_tuned"],
    "best by validation",
    "weighted",
)
UNSEEN = ", unseen"  # behind the name of a run, in the row of its clients that were never seen
LAST_ROUND = "last round"
# Titles of numbers of the mixing weights, and their names in a summary.
GRAPH = {
    "collaborators": "collaborators",
    "groups found": "group_agreement",
    "malicious weight": "malicious_weight",
}


class Cells(NamedTuple):
    """A table as text. The first columns matter most: a narrow terminal leaves out the last."""

    titles: list[str]  # of the columns behind the name of the run
    rows: list[tuple[str, list[str]]]  # (name, a cell for each title)
    best: frozenset[tuple[int, int]] = frozenset()  # (row, column) of the best scores of a column
    options: int = 0  # how many columns are options of the runs: the first ones


def table_cells(runs: Runs) -> Cells:
    """The table of runs, the best first, without columns in which no run has a value.

    Below them are those of pooled data and the constant predictors, which have no rank. A run
    with clients that were never seen has a second row for them.
    """
    references = _references(runs)
    stops = any("stopped" in run.summary for run in runs.values())
    options = [name for name in differing_options(runs) if name not in SAME_CLIENTS]
    names = []
    last = {label for label, run in runs.items() if not has_rank(run)}
    columns: dict[str, list[str]] = {}
    _, *others_by = metrics_of(runs)
    rows_of_clients: tuple[tuple[str, Part], ...] = (("", "final"), (UNSEEN, "unseen"))
    for label, run in ranked(runs).items():
        for behind, part in rows_of_clients:
            stages = run.summary.get(part)
            if stages is None:
                continue
            names.append(f"{label}{behind}")
            cells = _option_cells(run, options)
            others = {
                name: None if other == label else summary.get(part)
                for name, (other, summary) in references.items()
            }
            scores = run.summary.get("scores", {})
            further = {
                name: scores[name].get(part) if name in scores else None for name in others_by
            }
            cells |= _score_cells(run.summary["measure"], stages, others, further)
            cells |= _further_cells(run.summary, part, stops=stops)
            for title, cell in cells.items():
                columns.setdefault(title, []).append(cell)
    ranks = [name for name in names if name.removesuffix(UNSEEN) not in last]
    for name, cells in _constant_rows(runs, references, others_by).items():
        names.append(name)
        for title, column in columns.items():
            column.append(cells.get(title, "-"))
    content = {title: cells for title, cells in columns.items() if set(cells) != {"-"}}
    rows = zip(*content.values(), strict=True)
    return Cells(
        list(content),
        [(name, list(row)) for name, row in zip(names, rows, strict=True)],
        _best_of_runs(content, ranks, metrics_of(runs)),
        sum(name.replace("_", " ") in content for name in options),
    )


def _constant_rows(
    runs: Runs, references: dict[str, tuple[str, Summary]], others_by: Sequence[str]
) -> dict[str, dict[str, str]]:
    """The rows of the constant predictors, which have no rank: cells by title, by name.

    Args:
      runs: of the table.
      references: of `_references`.
      others_by: the metrics of the runs behind the first one.
    """
    constant = constant_of(runs)
    if constant is None:
        return {}
    measure = measure_of(runs)
    first = constant.scores[measure]
    others: dict[str, SeedStatistics | None] = {
        name: summary["final"] for name, (_, summary) in references.items()
    }
    further: dict[str, SeedStatistics | None] = {
        name: constant.scores.get(name) for name in others_by
    }
    rows = {constant.name: _score_cells(measure, first, others, further)}
    if "unseen" in first:
        others = {name: summary.get("unseen") for name, (_, summary) in references.items()}
        further = {
            name: None if name not in constant.scores else constant.scores[name].get("unseen")
            for name in others_by
        }
        name = f"{constant.name}{UNSEEN}"
        rows[name] = _score_cells(measure, first["unseen"], others, further)
    return rows


def metrics_of(runs: Runs) -> list[str]:
    """The metrics by which the runs are scored, the first one first."""
    names = [name for run in runs.values() for name in run.summary.get("scores", {})]
    return list(dict.fromkeys([measure_of(runs), *names]))


def best_places(cells: Sequence[str], measure: str) -> list[int]:
    """The places of the best scores of a column: those that show the best number.

    Nowhere if more than half of the numbers are the same best one, or none is better than another.

    Example:
      >>> best_places(["70.0 ±0.1", "69.9", "-"], "accuracy"), best_places(["9.0"] * 3, "accuracy")
      ([0], [])
    """
    metric = metric_of(measure)
    if metric.better == "neither":
        return []
    sign = metric.sign
    numbers = [sign * float(cell.split()[0]) if cell != "-" else None for cell in cells]
    known = [number for number in numbers if number is not None]
    if not known or 2 * known.count(max(known)) > len(known):
        return []
    best = max(known)
    return [place for place, number in enumerate(numbers) if number is not None and number == best]


def _best_of_runs(
    columns: dict[str, list[str]], names: list[str], metrics: Sequence[str]
) -> frozenset[tuple[int, int]]:
    """The best scores of each column; clients that were never seen are compared on their own.

    Args:
      columns: by their titles.
      names: of the rows that are ranked, the first ones.
      metrics: of the runs, the first one first.
    """
    marks = set()
    by_title = dict.fromkeys(SCORES, metrics[0])
    for metric in metrics:
        title = metric_of(metric).title
        by_title |= {title: metric, f"{title}{POOLED}": metric}
    parts = [name.endswith(UNSEEN) for name in names]
    for part in set(parts):
        rows = [row for row, stages in enumerate(parts) if stages == part]
        for column, (title, cells) in enumerate(columns.items()):
            if title in by_title and len(rows) > 1:
                best = best_places([cells[row] for row in rows], by_title[title])
                marks |= {(rows[place], column) for place in best}
    return frozenset(marks)


def _references(runs: Runs) -> dict[str, tuple[str, Summary]]:
    """The label and the summary of each reference; without those that are missing or ambiguous."""
    if not have_same_clients(runs):
        return {}
    references = {}
    for name in REFERENCES:
        labels = [label for label, run in runs.items() if run.summary["algorithm"] == name]
        if len(labels) == 1 and len(runs) > 1:
            references[name] = (labels[0], runs[labels[0]].summary)
    return references


def _option_cells(run: RunRecord, names: Sequence[str]) -> dict[str, str]:
    """The cells of a row that are options, by the title of the column."""
    values = [run.option(name) for name in names]
    texts = ["-" if value is None else as_typed(value) for value in values]
    return dict(zip((name.replace("_", " ") for name in names), texts, strict=True))


def _score_cells(
    measure: str,
    stages: SeedStatistics,
    references: dict[str, SeedStatistics | None],
    further: dict[str, SeedStatistics | None],
) -> dict[str, str]:
    """The cells of a row that are scores, by the title of the column.

    Args:
      measure: of the scores.
      stages: of the clients of the row.
      references: the scores of the same clients in each reference; None for the reference itself,
        and for one without such clients.
      further: the scores of the clients by each further metric; None without any.
    """
    each = {measure: stages, **further}
    cells = {}
    for name, one in each.items():
        title = metric_of(name).title
        cells[title] = "-" if one is None else score_text(name, one, "deployed", "mean")
    for name, other in references.items():
        cells[f"over {name}"] = "-" if other is None else _gain_text(measure, stages, other)
    cells["worst clients"] = score_text(measure, stages, "deployed", "worst10")
    cells[TITLES["trained"]] = score_text(measure, stages, "trained", "mean")
    cells[TITLES["fine_tuned"]] = score_text(measure, stages, "fine_tuned", "mean")
    for name, one in each.items():
        title = f"{metric_of(name).title}{POOLED}"
        cells[title] = "-" if one is None else score_text(name, one, "deployed", "pooled")
    return cells


def _gain_text(measure: str, stages: SeedStatistics, other: SeedStatistics) -> str:
    gain = gains(measure, stages, other)
    if gain is None:
        return "-"
    metric = metric_of(measure)
    mean, seeds = gain
    number = round(mean, metric.digits) + 0.0  # no -0.0
    return f"{number:+{metric.format}}{spread_text(seeds, metric.format)}"


def _further_cells(summary: Summary, part: Part, *, stops: bool) -> dict[str, str]:
    """The further cells of a row, by the title of the column: amounts, and other scores.

    Args:
      summary: of the run.
      part: which clients the row is about.
      stops: whether `--stop-after` has ended a run of the table.
    """
    titles = (
        LAST_ROUND,
        *TIMED,
        *("sent", "received", "gradients", "seconds", "best by validation", "weighted", "spread"),
        *GRAPH,
    )
    if part != "final":
        return dict.fromkeys(titles, "-")
    measure = summary["measure"]
    text = score_text(measure, summary["selected_on_val"], "deployed", "mean")
    graph = most_mixed(summary.get("graph", {}))
    numbers = {title: graph.get(name) for title, name in GRAPH.items()}
    return {
        LAST_ROUND: str(summary.get("rounds", "-")) if stops else "-",
        **timed_cells(summary),
        "sent": amount(summary["up"]),
        "received": amount(summary["down"]),
        "gradients": amount(summary["batches"]),
        "seconds": f"{summary['seconds']:.1f}",
        "best by validation": text,
        "weighted": score_text(measure, summary["final"], "deployed", "weighted"),
        "spread": score_text(measure, summary["final"], "deployed", "std"),
        **{title: "-" if number is None else f"{number:.2f}" for title, number in numbers.items()},
    }


# What a caption says: the title of the column that a text is about, "" for all, and the text.
Meaning = Sequence[tuple[str, str]]


def caption(meaning: Meaning, titles: Sequence[str]) -> str:
    """What the columns mean, without the columns that are left out."""
    return "; ".join(
        f"{title}: {text}" if title else text
        for title, text in meaning
        if not title or title in titles
    )


def _finals(runs: Runs, metric: str) -> list[SeedStatistics]:
    """The last scores by a metric, of the runs that have them."""
    if metric == measure_of(runs):
        return [run.summary["final"] for run in runs.values()]
    scores = [run.summary.get("scores", {}) for run in runs.values()]
    return [one[metric]["final"] for one in scores if metric in one]


def _is_pooled(runs: Runs, metric: str) -> bool:
    """Whether a run has a score of all predictions together by a metric."""
    return any(final["deployed"].get("pooled") is not None for final in _finals(runs, metric))


def undefined_text(runs: Runs, metric: str) -> str:
    """Of how many clients a metric has no score; "" if it has one of all."""
    counts = [final["deployed"].get("undefined", 0) for final in _finals(runs, metric)]
    count = max(counts)
    if not count:
        return ""
    clients = "1 client is" if count == 1 else f"{count} clients are"
    return f", where {clients} left out, as they have no test examples or it is not defined on them"


def meaning_of_scores(runs: Runs) -> Meaning:
    """What the columns of `table_cells` mean, for runs of one measure."""
    summaries = [run.summary for run in runs.values()]
    names = metrics_of(runs)
    metrics = [metric_of(name) for name in names]
    undefined = [undefined_text(runs, name) for name in names]
    first, *others = metrics
    seeds = max(len(summary["final"].get("seeds", [])) for summary in summaries)
    of = members_text(seeds, max(run.folds for run in runs.values()))
    text = f"test {first.name} of the models that clients deploy, mean over clients"
    spread = [("", f"±: standard deviation over {of}")] if seeds > 1 else []
    unseen = any("unseen" in summary for summary in summaries)
    constant = constant_of(runs)
    pooled = [f"{metric_of(name).title}{POOLED}" for name in names if _is_pooled(runs, name)]
    return [
        (first.title, f"{text}{undefined[0]}"),
        *[
            (one.title, f"the same{' in %' if one.percent else ''}{words}")
            for one, words in zip(others, undefined[1:], strict=True)
        ],
        *spread,
        *[
            (f"over {name}", f"how far the {first.title} is lower")
            for name in REFERENCES
            if first.better == "lower"
        ],
        ("worst clients", "mean of the worst tenth of them"),
        (TITLES["trained"], "the models after the local training of the round"),
        (TITLES["fine_tuned"], "the deployed models after further local training"),
        *[
            (title, "likewise" if place else "of all clients' predictions together")
            for place, title in enumerate(pooled)
        ],
        (LAST_ROUND, "where --stop-after has ended a run, else that of --rounds"),
        ("rounds to target", "until the mean score is that of --target"),
        ("time to target", "virtual time until then"),
        ("virtual time", "of all rounds"),
        ("sent", "floats that all clients sent"),
        ("gradients", "computed on batches by all clients"),
        ("seconds", "without compiling"),
        ("best by validation", "each client at its own best validation score"),
        ("weighted", "by numbers of examples"),
        ("spread", "standard deviation over clients"),
        ("collaborators", "effective number of clients to whom a client listens, last round"),
        ("groups found", "adjusted Rand index of the weights' blocks and the true groups"),
        ("malicious weight", "what benign clients give to malicious ones"),
        *[
            ("", f"{label}: one model trained on the examples of all clients together, not ranked")
            for label, run in runs.items()
            if not has_rank(run)
        ],
        *([] if constant is None else [("", f"{constant.name}: {constant.meaning}")]),
        *([("", "unseen: clients that took part in no round")] if unseen else []),
    ]


def warnings(runs: Runs) -> list[str]:
    """A line for each run with clients worse than with local training, and what to change first.

    With several seeds, only where they are worse with every seed.
    """
    references = _references(runs)
    if "local" not in references:
        return []
    label_of_local, local = references["local"]
    lines = []
    for label, run in runs.items():
        summary = run.summary
        measure = summary["measure"]
        difference = gains(measure, summary["final"], local["final"])
        if label == label_of_local or difference is None:
            continue
        losses = [-gain for gain in (difference[0], *difference[1])]
        metric = metric_of(measure)
        worth_it = losses[0] > (WORTH_A_WARNING if metric.percent else 0.0)
        if worth_it and round(losses[0], metric.digits) > 0 and min(losses) > 0:
            factory = ALGORITHMS.get(summary["algorithm"])
            advice = facts_of(factory).advice if factory else ""
            turn = f"; change first: {advice}" if advice else ""
            loss = f"{losses[0]:{metric.format}}"
            lines.append(f"{label} is worse than local training by {loss}{turn}")
    return lines
