"""What a report of finished runs shows: one table for each setting, or one table by an option."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from jaxfl.core.errors import check
from jaxfl.experiment.store.records import Runs
from jaxfl.experiment.tables.constant import lines_on_constants
from jaxfl.experiment.tables.differences import (
    difference_cells,
    meaning_of_differences,
    meaning_of_pivoted_differences,
)
from jaxfl.experiment.tables.grouping import comparable_groups, heading
from jaxfl.experiment.tables.heading import setting_of
from jaxfl.experiment.tables.pivot import (
    meaning_of_pivot,
    pivot,
    pivot_cells,
    titles_of_columns,
)
from jaxfl.experiment.tables.pooling import pool_seeds
from jaxfl.experiment.tables.tables import Cells, Meaning, meaning_of_scores, table_cells, warnings
from jaxfl.experiment.tables.wording import (
    LATEX_COLUMNS,
    called,
    selection,
    titles_called,
    titles_of,
)

AGAINST = "against "  # before the name of a run, above a table of differences from it


class Section(NamedTuple):
    """A table with what stands around it."""

    heading: str  # "" if nothing is known of the setting
    cells: Cells
    meaning: Meaning  # of the columns, for the caption
    warnings: list[str]
    narrows: bool = True  # whether a narrow terminal may leave out columns
    first: str = "method"  # the title of the names of the rows
    lines: tuple[str, ...] = ()  # sentences below


def sections(
    runs: Runs,
    *,
    by: str | None = None,
    against: str | None = None,
    columns: Sequence[str] = (),
    names: Mapping[str, str] | None = None,
) -> list[Section]:
    """The tables of finished runs, of one measure.

    Runs that differ in their seeds alone are one row. Runs with other clients stand in a table of
    their own, because their scores cannot be compared.

    Args:
      runs: of `store.finished_runs.load_finished`.
      by: an option or a hyper-parameter whose values are the columns of one table of all runs.
      against: the name of a run or a method; the differences of all others from it have a table.
      columns: of the tables of runs, in this order, as `wording.titles_of` takes them; all if none.
      names: what runs and columns are called, by their names, of `wording.parse_names`.

    Raises:
      InputError: `by`, `against` or `columns` does not fit the runs, or two runs are called the
        same.
    """
    check(
        by is None or not columns,
        f"--columns chooses among the scores of a table, and --by {by} has one score alone: leave "
        "one out",
    )
    tables = _sections(runs, by, against)
    if columns:
        # Tables of differences keep their columns.
        of_runs = [table for table in tables if table.narrows]
        titles = titles_of(columns, runs, [table.cells for table in of_runs])
        tables = [
            table._replace(cells=selection(table.cells, titles)) if table.narrows else table
            for table in tables
        ]
    if not names:
        return tables
    titles = titles_called(names, runs)
    return [_called(table, titles, names) for table in tables]


def first_columns(tables: Sequence[Section]) -> list[Section]:
    """The tables with the columns that matter most and fit the column of a page."""
    listing = []
    for table in tables:
        titles = table.cells.titles
        count = max(LATEX_COLUMNS, table.cells.options + 1)
        if table.narrows and len(titles) > count:
            others = f"without {', '.join(titles[count:])}, which --columns can name"
            meaning = [*table.meaning, ("", others)]
            table = table._replace(cells=selection(table.cells, titles[:count]), meaning=meaning)
        listing.append(table)
    return listing


def _called(table: Section, titles: Mapping[str, str], names: Mapping[str, str]) -> Section:
    """The table with what runs and columns are called.

    Args:
      table: of runs.
      titles: what columns are called.
      names: what runs are called.
    """
    rows = [(called(name, names), row) for name, row in table.cells.rows]
    texts = [name for name, _ in rows]
    for name in texts:
        check(texts.count(name) == 1, f"--names calls two runs {name!r}: tell them apart")
    columns = [called(one, titles) for one in table.cells.titles]
    references = {f"{AGAINST}{key}": f"{AGAINST}{text}" for key, text in names.items()}
    return table._replace(
        heading=called(table.heading, references),
        cells=table.cells._replace(titles=columns, rows=rows),
        meaning=[(called(title, titles), text) for title, text in table.meaning],
        warnings=[called(line, names) for line in table.warnings],
    )


def _sections(runs: Runs, by: str | None, against: str | None) -> list[Section]:
    """The tables with all columns."""
    if by is not None:
        seeds_apart = by.removeprefix("--") in ("seed", "seeds")
        return _by_option(runs if seeds_apart else pool_seeds(runs), by, against)
    listing = []
    for group in comparable_groups(pool_seeds(runs)):
        cells = table_cells(group.runs)
        meaning = meaning_of_scores(group.runs)
        lines = [*warnings(group.runs), *lines_on_constants(group.runs)]
        listing.append(Section(heading(group), cells, meaning, lines))
        if against is not None:
            cells = difference_cells(group.runs, against, group.setting)
            meaning = meaning_of_differences(group.runs)
            listing.append(Section(f"{AGAINST}{against}", cells, meaning, [], narrows=False))
    return listing


def _by_option(runs: Runs, by: str, against: str | None) -> list[Section]:
    table = pivot(runs, by)
    line = setting_of(runs)
    lines = [
        f"{title}: {text}"
        for title, column in zip(titles_of_columns(table), table.columns.values(), strict=True)
        for text in [*warnings(column), *lines_on_constants(column)]
    ]
    tables = [Section(line, pivot_cells(table), meaning_of_pivot(table), lines, narrows=False)]
    if against is not None:
        cells = pivot_cells(table, against)
        meaning = meaning_of_pivoted_differences(runs)
        tables.append(Section(f"{AGAINST}{against}", cells, meaning, [], narrows=False))
    return tables
