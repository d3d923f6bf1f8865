"""What a report of finished runs shows: one table for each setting, or one table by an option."""

from typing import NamedTuple

from jaxfl.experiment.store.records import Runs
from jaxfl.experiment.tables.constant import lines_on_constants
from jaxfl.experiment.tables.differences import (
    difference_cells,
    meaning_of_differences,
    meaning_of_pivoted_differences,
)
from jaxfl.experiment.tables.grouping import comparable_groups, heading
from jaxfl.experiment.tables.heading import setting_of
from jaxfl.experiment.tables.pivot import meaning_of_pivot, pivot, pivot_cells
from jaxfl.experiment.tables.pooling import pool_seeds
from jaxfl.experiment.tables.tables import Cells, Meaning, meaning_of_scores, table_cells, warnings


class Section(NamedTuple):
    """A table with what stands around it."""

    heading: str  # "" if nothing is known of the setting
    cells: Cells
    meaning: Meaning  # of the columns, for the caption
    warnings: list[str]
    narrows: bool = True  # whether a narrow terminal may leave out columns
    first: str = "method"  # the title of the names of the rows
    lines: tuple[str, ...] = ()  # sentences below


def sections(runs: Runs, *, by: str | None = None, against: str | None = None) -> list[Section]:
    """The tables of finished runs, of one measure.

    Runs that differ in their seeds alone are one row. Runs with other clients stand in a table of
    their own, because their scores cannot be compared.

    Args:
      runs: of `store.finished.load_finished`.
      by: an option or a hyper-parameter whose values are the columns of one table of all runs.
      against: the name of a run or a method; the differences of all others from it have a table.

    Raises:
      InputError: `by` or `against` does not fit the runs.
    """
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
            listing.append(Section(f"against {against}", cells, meaning, [], narrows=False))
    return listing


def _by_option(runs: Runs, by: str, against: str | None) -> list[Section]:
    table = pivot(runs, by)
    line = setting_of(runs)
    tables = [Section(line, pivot_cells(table), meaning_of_pivot(table), [], narrows=False)]
    if against is not None:
        cells = pivot_cells(table, against)
        meaning = meaning_of_pivoted_differences(runs)
        tables.append(Section(f"against {against}", cells, meaning, [], narrows=False))
    return tables
