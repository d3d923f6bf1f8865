"""A table of finished runs by an option: a row for each method, a column for each value."""

from collections.abc import Collection
from dataclasses import fields, replace
from typing import Any, NamedTuple

from jaxfl.algorithms import ALGORITHMS
from jaxfl.core.errors import check, check_name
from jaxfl.core.options import options_of
from jaxfl.experiment.config import Config
from jaxfl.experiment.config.composite import option
from jaxfl.experiment.config.hints import as_typed
from jaxfl.experiment.store.records import RunRecord, Runs
from jaxfl.experiment.tables.constant import constant_of
from jaxfl.experiment.tables.differences import difference, reference_of, short_difference
from jaxfl.experiment.tables.grouping import shortly_named, sort_key
from jaxfl.experiment.tables.heading import SAME_CLIENTS, differing_options
from jaxfl.experiment.tables.scores import has_rank, measure_of, members_text, score_text
from jaxfl.experiment.tables.tables import Cells, Meaning, best_places, undefined_text
from jaxfl.simulation.metrics import metric_of
from jaxfl.simulation.statistics import each_seed

OPTIONS = {one.name for one in fields(Config)} - {"algorithm", "hyper", "label"}
ANY = object()  # the value of a hyper-parameter that a method does not have


class Pivot(NamedTuple):
    """Runs by the value of an option and by name; all of a column have the same clients."""

    name: str  # of the option or the hyper-parameter
    columns: dict[Any, Runs]  # value -> the runs, by names that all columns share


def pivot(runs: Runs, by: str) -> Pivot:
    """Puts the runs in columns by the value that an option or a hyper-parameter has in them.

    A run of a method without this hyper-parameter is in every column.

    Args:
      runs: whose configs are known.
      by: the option, as in `Config` or as typed ("local_steps" or "--local-steps"), or the
        hyper-parameter.

    Raises:
      InputError: there is no such option, a config is unknown, or two runs of one method and value
        differ in something else.
    """
    name = by.removeprefix("--").replace("-", "_")
    configs = {label: run.config for label, run in runs.items() if run.config is not None}
    labels = [label for label in runs if label not in configs]
    check(
        not labels,
        f"--by {by}: the config of {', '.join(labels[:3])} is unknown: leave it out",
    )
    parameters = {
        label: _parameters(config.algorithm, configs.values()) for label, config in configs.items()
    }
    options = OPTIONS.union(*parameters.values())
    check_name("option of the runs", name, options)
    others = differing_options(runs)
    others = [option(other) for other in others if other in SAME_CLIENTS and other != name]
    check(
        not others,
        f"--by {by}: the runs differ in {' and '.join(others)} too: give runs whose clients differ "
        f"in {by} alone",
    )
    names = _row_names(runs, configs, name, {label for label in runs if name in parameters[label]})
    values = {label: _value(config, name, parameters[label]) for label, config in configs.items()}
    columns: dict[Any, Runs] = {
        value: {} for value in sorted({*values.values()} - {ANY}, key=sort_key)
    }
    for label, run in runs.items():
        row = names[label]
        for value, column in columns.items():
            if values[label] in (value, ANY):
                check(
                    row not in column,
                    f"--by {by}: there are two runs of {row} with {by} {as_typed(value)}: leave "
                    "one out",
                )
                column[row] = run
    return Pivot(name, columns)


def pivot_cells(table: Pivot, against: str | None = None) -> Cells:
    """The scores of the deployed models, or their differences from one run.

    Args:
      table: the runs.
      against: the name of a run or a method of every column, from which the others differ.

    Raises:
      InputError: as `reference_of`.
    """
    names = dict.fromkeys(name for column in table.columns.values() for name in column)
    titles = titles_of_columns(table)
    cells: dict[str, list[str]] = {name: [] for name in names}
    best = set()
    for place, (title, column) in enumerate(zip(titles, table.columns.values(), strict=True)):
        reference = None if against is None else column[reference_of(column, against, title)]
        for name, row in cells.items():
            row.append(_cell(column.get(name), reference))
        if reference is None and len(names) > 1:
            rank = [
                row[-1] if name in column and has_rank(column[name]) else "-"
                for name, row in cells.items()
            ]
            best |= {(row, place) for row in best_places(rank, measure_of(column))}
    rows = [(name, row) for name, row in cells.items() if against is None or set(row) != {"-"}]
    if against is None:
        rows += _constant_rows(table)
    return Cells(titles, rows, frozenset(best))


def titles_of_columns(table: Pivot) -> list[str]:
    """The title of each column of the table."""
    return [
        f"{table.name} {'not set' if value is None else as_typed(value)}" for value in table.columns
    ]


def _constant_rows(table: Pivot) -> list[tuple[str, list[str]]]:
    """The row of the constant predictors, if a column has them."""
    constants = [constant_of(column) for column in table.columns.values()]
    names = dict.fromkeys(one.name for one in constants if one is not None)
    rows = []
    for name in names:
        row = []
        for column, one in zip(table.columns.values(), constants, strict=True):
            measure = measure_of(column)
            scores = None if one is None else one.scores[measure]
            row.append("-" if scores is None else score_text(measure, scores, "deployed", "mean"))
        rows.append((name, row))
    return rows


def meaning_of_pivot(table: Pivot) -> Meaning:
    """What the numbers of `pivot_cells` are."""
    each = [run for runs in table.columns.values() for run in runs.values()]
    members = sorted({(len(each_seed(run.summary["final"])), run.folds) for run in each})
    measure = each[0].summary["measure"]
    name = metric_of(measure).name
    undefined = undefined_text({str(place): run for place, run in enumerate(each)}, measure)
    text = f"test {name} of the models that clients deploy, mean over clients{undefined}"
    meaning = [("", text)]
    if members[-1][0] > 1:
        *several, last = [members_text(*one) for one in members]
        numbers = " or ".join([*(one.removesuffix(" seeds") for one in several), last])
        meaning.append(("", f"±: standard deviation over {numbers}"))
    constants = [constant_of(runs) for runs in table.columns.values()]
    words = dict.fromkeys(f"{one.name}: {one.meaning}" for one in constants if one is not None)
    return [*meaning, *(("", text) for text in words)]


def _cell(run: RunRecord | None, reference: RunRecord | None) -> str:
    if run is None or run is reference:
        return "-"
    measure = run.summary["measure"]
    if reference is None:
        return score_text(measure, run.summary["final"], "deployed", "mean")
    return short_difference(difference(run, reference), metric_of(measure).format)


def _row_names(
    runs: Runs, configs: dict[str, Config], by: str, takers: Collection[str]
) -> dict[str, str]:
    """The name of the row of each run: one row holds the runs that differ in the option alone.

    Args:
      runs: by their labels.
      configs: of the runs.
      by: the option, or the hyper-parameter.
      takers: the labels of the runs whose methods have this hyper-parameter.
    """
    options = [one for one in differing_options(runs) if one != by]
    rows = {}
    first: Runs = {}  # of each row
    for label, run in runs.items():
        config = configs[label]
        # A label may hold the value of the hyper-parameter.
        name = config.algorithm if label in takers else run.name or label
        hyper = sorted((key, value) for key, value in config.hyper.items() if key != by)
        values = [getattr(config, one) for one in options]
        rows[label] = repr([config.algorithm, name, hyper, values])
        first.setdefault(rows[label], replace(run, name=name))
    names = dict(zip(first, shortly_named(first, ignored=by), strict=True))
    return {label: names[row] for label, row in rows.items()}


def _parameters(algorithm: str, configs: Collection[Config]) -> dict[str, Any]:
    """The hyper-parameters of a method, with their defaults.

    Of a method of a plug-in, which is not known here, those that one of its runs was given, with
    None for its default.
    """
    if algorithm not in ALGORITHMS:
        runs = [config for config in configs if config.algorithm == algorithm]
        return {name: None for config in runs for name in config.hyper}
    parameters = options_of(ALGORITHMS[algorithm])
    return {name: parameter.default for name, parameter in parameters.items()}


def _value(config: Config, name: str, parameters: dict[str, Any]) -> Any:
    """The value of the option in the run; ANY if its method does not have the hyper-parameter."""
    if name in OPTIONS:
        return getattr(config, name)
    value = config.hyper.get(name, parameters.get(name, ANY))
    return tuple(value) if isinstance(value, list) else value
