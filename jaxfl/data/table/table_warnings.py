"""What is improbable in the tables of sites: rows that repeat, numbers for nothing, other units."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from jaxfl.core.errors import check, warn
from jaxfl.data.table.read import Sheet
from jaxfl.data.table.schema import Schema

# A number far from all others stands for a missing value if it is there so often.
OFTEN = 3
# So many times the width of the middle half of the others it is away from them.
FAR = 3.0
# Medians of two sites that differ by this factor may be in two units.
UNITS = 5.0
# Rows repeat so many times as often as chance explains.
MORE = 5.0
# Values of a site whose median is compared.
ENOUGH = 5


def check_header_rows(sheets: Sequence[Sheet]) -> None:
    """Raises an `InputError` if a row repeats the names of the columns."""
    for sheet in sheets:
        names = list(sheet.columns)
        for row, cells in enumerate(zip(*sheet.columns.values(), strict=True)):
            check(
                list(cells) != names,
                f"{sheet.place(row)} has the names of the columns again: remove this row",
            )


def warn_of_rows(sheets: Sequence[Sheet], owners: Sequence[str]) -> None:
    """Warns of rows that are there several times, unless chance explains them.

    Args:
      sheets: the files.
      owners: the site of each row of all files [N].
    """
    shared = [name for name in sheets[0].columns if all(name in one.columns for one in sheets)]
    columns = [[cell for sheet in sheets for cell in sheet.columns[name]] for name in shared]
    rows = list(zip(*columns, strict=True))
    counts = Counter(rows)
    twice = {row for row, count in counts.items() if count > 1}
    again = sum(counts[row] - 1 for row in twice)
    # Of so many kinds of rows, if columns are independent, this many pairs are equal by chance.
    kinds = np.prod([float(len(set(column))) for column in columns])
    by_chance = len(rows) ** 2 / 2 / kinds
    if again <= MORE * by_chance:
        return
    sites: dict[tuple, list[str]] = {}
    for row, owner in zip(rows, owners, strict=True):
        if row in twice:
            sites.setdefault(row, []).append(owner)
    example = next(iter(sites.values()))
    where = " and ".join(dict.fromkeys(example))
    warn(
        f"{again:,} of {len(rows):,} rows are there already in the same or another site, such as "
        f"one of {where}: remove them, since scores are too good where one of two equal rows is in "
        "the test part"
    )


def warn_of_numbers(x: np.ndarray, owners: np.ndarray, schema: Schema) -> None:
    """Warns of numbers that may stand for missing values, and of sites with other units.

    Args:
      x: the features of all rows [N, F].
      owners: the site of each row [N].
      schema: of which they were made.
    """
    place = 0
    for column in schema.columns:
        if column.kind == "number":
            known = x[:, place + 1] == 0 if column.indicator else np.ones(len(x), bool)
            values = column.mean + column.deviation * x[known, place].astype(np.float64)
            _warn_of_mark(column.name, values)
            _warn_of_units(column.name, values, owners[known])
        place += len(column.features)


def _warn_of_mark(name: str, values: np.ndarray) -> None:
    """Warns of the lowest or the highest number, if it is frequent and far from all others."""
    # The features are rounded.
    digits = 5 - np.ceil(np.log10(np.maximum(np.abs(values), 1e-300)))
    values = np.round(values * 10.0**digits) / 10.0**digits
    for end, sign in ((values.min(initial=np.inf), 1), (values.max(initial=-np.inf), -1)):
        others = values[values != end]
        often = values.size - others.size
        if often < OFTEN or others.size < 2 * OFTEN or len(np.unique(others)) < OFTEN:
            continue
        low, high = np.quantile(others, [0.25, 0.75])
        nearest = others.min() if sign == 1 else others.max()
        is_mark = abs(end) in (9, 99, 999, 9999, 99999, 98, 998, 9998, 8, 88, 888, 8888)
        if is_mark and sign * (nearest - end) > FAR * max(high - low, 1e-12):
            warn(
                f"column {name} holds {end:g} in {often:,} rows, and else {others.min():g} to "
                f"{others.max():g}: if it says that a value is missing, give --missing={end:g}"
            )


def _warn_of_units(name: str, values: np.ndarray, sites: np.ndarray) -> None:
    """Warns of a site whose numbers are all below or above those of the others, by a factor."""
    own = {site: values[sites == site] for site in dict.fromkeys(sites.tolist())}
    own = {site: some for site, some in own.items() if some.size >= ENOUGH}
    for site, some in own.items():
        others = np.concatenate([one for key, one in own.items() if key != site] or [np.empty(0)])
        if not others.size:
            continue
        apart = some.max() < others.min() or some.min() > others.max()
        medians = np.abs([np.median(some), np.median(others)])
        if apart and medians.max() > UNITS * medians.min():
            warn(
                f"column {name} holds {some.min():g} to {some.max():g} at {site}, and "
                f"{others.min():g} to {others.max():g} at the other sites: if the units differ, "
                "write all in one"
            )
            return
