"""The table of finished runs: its columns, rows, caption and warnings, and its Markdown."""

from typing import Any, NamedTuple

from jaxfl.algorithms import ALGORITHMS
from jaxfl.experiment.show.heading import have_same_clients, setting_line
from jaxfl.experiment.show.scores import (
    MEASURES,
    amount,
    gains,
    ranked,
    score_text,
    spread_text,
)
from jaxfl.registry import facts_of

# label -> {"summary": of `summary.json`, "config": its Config or None if it is unknown}
Runs = dict[str, dict[str, Any]]
REFERENCES = ("local", "fedavg")  # the other runs are compared with them
NAMES = {"accuracy": "accuracy", "rmse": "RMSE"}  # of the first column of scores
# A mean loss against local training that is worth a warning, as scores are shown.
WORTH_A_WARNING = {"accuracy": 0.5, "rmse": 0.0}
BETTER = {"accuracy": 1, "rmse": -1}  # the sign of a gain that is good


class Cells(NamedTuple):
    """A table as text. The first columns matter most: a narrow terminal leaves out the last."""

    titles: list[str]  # of the columns behind the name of the run
    rows: list[tuple[str, list[str]]]  # (name, a cell for each title)


def table_cells(runs: Runs) -> Cells:
    """The table of runs, the best first, without columns in which no run has a value.

    A run with clients that were never seen has a second row for them.
    """
    references = _references(runs)
    names = []
    columns: dict[str, list[str]] = {}
    for label, summary in ranked({label: run["summary"] for label, run in runs.items()}).items():
        for name, part in ((label, "final"), (f"{label}, unseen", "unseen")):
            if part not in summary:
                continue
            names.append(name)
            cells = _score_cells(label, summary, part, references) | _further_cells(summary, part)
            for title, cell in cells.items():
                columns.setdefault(title, []).append(cell)
    kept = {title: cells for title, cells in columns.items() if set(cells) != {"-"}}
    rows = zip(*kept.values(), strict=True)
    return Cells(list(kept), [(name, list(row)) for name, row in zip(names, rows, strict=True)])


def _references(runs: Runs) -> dict[str, tuple[str, dict[str, Any]]]:
    """The label and the summary of each reference; without those that are missing or ambiguous."""
    if not have_same_clients([run.get("config") for run in runs.values()]):
        return {}
    found = {}
    for name in REFERENCES:
        labels = [label for label, run in runs.items() if run["summary"]["algorithm"] == name]
        if len(labels) == 1 and len(runs) > 1:
            found[name] = (labels[0], runs[labels[0]]["summary"])
    return found


def _score_cells(
    label: str,
    summary: dict[str, Any],
    part: str,
    references: dict[str, tuple[str, dict[str, Any]]],
) -> dict[str, str]:
    """The cells of a row that are scores, by the title of the column."""
    measure = summary["measure"]
    stages = summary[part]
    cells = {NAMES[measure]: score_text(measure, stages, "before", "mean")}
    for name, (reference, other) in references.items():
        itself = label == reference or part not in other
        cells[f"over {name}"] = "-" if itself else _gain_text(measure, stages, other[part])
    cells["worst clients"] = score_text(measure, stages, "before", "worst10")
    cells["after training"] = score_text(measure, stages, "after", "mean")
    return cells


def _gain_text(measure: str, stages: dict[str, Any], other: dict[str, Any]) -> str:
    found = gains(measure, stages, other)
    if found is None:
        return "-"
    digits = MEASURES[measure][2]
    mean, seeds = found
    rounded = round(mean, int(digits[1])) + 0.0  # no -0.0
    return f"{rounded:+{digits}}{spread_text(seeds, digits)}"


def _further_cells(summary: dict[str, Any], part: str) -> dict[str, str]:
    """The further cells of a row, by the title of the column: amounts, and other scores."""
    titles = ("sent", "received", "gradients", "seconds", "best by validation", "weighted")
    if part != "final":
        return dict.fromkeys(titles, "-")
    measure = summary["measure"]
    chosen = score_text(measure, summary["selected_on_val"], "before", "mean")
    return {
        "sent": amount(summary["up"]),
        "received": amount(summary["down"]),
        "gradients": amount(summary["batches"]),
        "seconds": f"{summary['seconds']:.1f}",
        "best by validation": chosen,
        "weighted": score_text(measure, summary["final"], "before", "weighted"),
    }


def caption(runs: Runs, titles: list[str]) -> str:
    """What the columns mean, for runs of one measure; without the columns that are left out."""
    summaries = [run["summary"] for run in runs.values()]
    measure = summaries[0]["measure"]
    seeds = max(len(summary["final"].get("seeds", [])) for summary in summaries)
    meaning = {
        NAMES[measure]: f"test {MEASURES[measure][0]} of the models that clients deploy, mean over "
        "clients",
        "worst clients": "mean of the worst tenth of them",
        "after training": "after further local training",
        "sent": "floats that all clients sent",
        "gradients": "computed on batches by all clients",
        "seconds": "without compiling",
        "best by validation": "each client at its own best validation score",
        "weighted": "by numbers of examples",
    }
    parts = [f"{title}: {text}" for title, text in meaning.items() if title in titles]
    if seeds > 1:
        parts.insert(1, f"±: standard deviation over {seeds} seeds")
    if any("unseen" in summary for summary in summaries):
        parts.append("unseen: clients that took part in no round")
    return "; ".join(parts)


def heading(runs: Runs) -> str:
    """The setting of the runs; "" if it is unknown."""
    return setting_line([run.get("config") for run in runs.values()])


def warnings(runs: Runs) -> list[str]:
    """A line for each run whose clients are worse than with local training, and what to turn first.

    With several seeds, only where they are worse with every seed.
    """
    references = _references(runs)
    if "local" not in references:
        return []
    label_of_local, local = references["local"]
    lines = []
    for label, run in runs.items():
        summary = run["summary"]
        measure = summary["measure"]
        found = gains(measure, summary["final"], local["final"])
        if label == label_of_local or found is None:
            continue
        losses = [-BETTER[measure] * gain for gain in (found[0], *found[1])]
        if losses[0] > WORTH_A_WARNING[measure] and min(losses) > 0:
            factory = ALGORITHMS.get(summary["algorithm"])
            advice = facts_of(factory).turn_first if factory else ""
            turn = f"; turn first: {advice}" if advice else ""
            digits = MEASURES[measure][2]
            lines.append(f"{label} is worse than local training by {losses[0]:{digits}}{turn}")
    return lines


def markdown(runs: Runs) -> str:
    """The table as Markdown, with its heading, caption and warnings."""
    titles, rows = table_cells(runs)
    lines = [f"| method | {' | '.join(titles)} |", f"|---|{'---:|' * len(titles)}"]
    lines += [f"| {_escaped(name)} | {' | '.join(cells)} |" for name, cells in rows]
    said = caption(runs, titles)
    parts = [_escaped(heading(runs)), "\n".join(lines), f"{said[0].upper()}{said[1:]}."]
    parts += [f"{_escaped(line)} (docs/tuning.md)." for line in warnings(runs)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _escaped(text: str) -> str:
    return text.replace("|", r"\|")
