"""What is improbable in the tables of sites: rows that repeat, numbers for nothing, other units."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from jaxfl.core.errors import check, warn
from jaxfl.data.table.read import Sheet
from jaxfl.data.table.schema import Schema

# A number far from all others stands for a missing value if it is there so often.
OFTEN = 3
# What programs and people write for nothing.
MARKS = {
    float(word)
    for word in ("8", "88", "888", "9", "98", "99", "998", "999", "9998", "9999", "99999")
}
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
    # If columns were independent, so many pairs would be equal by chance.
    pairs = len(rows) ** 2 / 2
    for column in columns:
        pairs *= sum((count / len(rows)) ** 2 for count in Counter(column).values())
    if again <= MORE * pairs:
        return
    sites: dict[tuple, list[str]] = {}
    for row, owner in zip(rows, owners, strict=True):
        if row in twice:
            sites.setdefault(row, []).append(owner)
    example = next(iter(sites.values()))
    where = " and ".join(dict.fromkeys(example))
    warn(
        f"{again:,} of {len(rows):,} rows are there already in the same or another site, such as "
        f"one of {where}: if they are copies, remove them, since scores are too good where one of "
        "two is in the test part"
    )


def warn_of_events(y: np.ndarray, owners: np.ndarray, sites: Sequence[str], event: str) -> None:
    """Warns of sites without an event, or with nothing but events.

    Args:
      y: times and events of all rows [N, 2].
      owners: the site of each row [N], as a number.
      sites: their names.
      event: the column.
    """
    rows = np.bincount(owners, minlength=len(sites))
    events = np.bincount(owners, y[:, 1], minlength=len(sites))
    without = [site for site, count in zip(sites, events, strict=True) if not count]
    if without and len(without) < len(sites):
        warn(
            f"{len(without)} of {len(sites)} sites have no event, {event} being 0 in all their "
            f"rows, such as {without[0]}: alone they learn nothing, and they have no concordance"
        )
    if (events == rows).all():
        warn(
            f"{event} is 1 in all rows, so that no time is censored: if it says something else, "
            "name another column"
        )


def warn_of_numbers(x: np.ndarray, owners: np.ndarray, schema: Schema) -> None:
    """Warns of numbers that may stand for missing values, and of sites with other units.

    Args:
      x: the features of all rows [N, F].
      owners: the site of each row [N].
      schema: of which they were made.
    """
    names, sites = np.unique(owners, return_inverse=True)
    place = 0
    for column in schema.columns:
        if column.kind == "number":
            known = x[:, place + 1] == 0 if column.indicator else np.ones(len(x), bool)
            values = column.mean + column.deviation * x[known, place].astype(np.float64)
            # Features are rounded.
            unit = 10.0 ** np.floor(np.log10(1e-5 * column.deviation))
            values = np.round(values / unit) * unit
            _warn_of_mark(column.name, values)
            _warn_of_units(column.name, values, sites[known], names)
        place += len(column.features)


def _warn_of_mark(name: str, values: np.ndarray) -> None:
    """Warns of the lowest or the highest number, if it is frequent and far from all others."""
    kinds, counts = np.unique(values, return_counts=True)
    if len(kinds) < 2 * OFTEN:
        return
    for end, others, sign in ((0, kinds[1:], 1), (-1, kinds[:-1], -1)):
        mark = float(f"{kinds[end]:.6g}")
        if abs(mark) not in MARKS or counts[end] < OFTEN:
            continue
        low, high = np.quantile(values[values != kinds[end]], [0.25, 0.75])
        width = max(high - low, np.diff(others).max())
        if sign * (others[end] - kinds[end]) > FAR * width:
            warn(
                f"column {name} holds {mark:g} in {counts[end]:,} rows, and else {others[0]:g} to "
                f"{others[-1]:g}: if it says that a value is missing, give --missing={mark:g}"
            )


def _warn_of_units(name: str, values: np.ndarray, sites: np.ndarray, names: np.ndarray) -> None:
    """Warns of a site whose numbers are all below or above those of the others, by a factor."""
    order = np.argsort(sites, kind="stable")
    counts = np.bincount(sites, minlength=len(names))
    own = np.split(values[order], np.cumsum(counts)[:-1])
    large = [place for place in range(len(names)) if counts[place] >= ENOUGH]
    if len(large) < 2:
        return
    lowest = np.array([own[place].min() for place in large])
    highest = np.array([own[place].max() for place in large])
    for at, place in enumerate(large):
        least, most = np.delete(lowest, at).min(), np.delete(highest, at).max()
        apart = highest[at] < least or lowest[at] > most
        if not apart or lowest[at] == highest[at] or least == most:
            continue
        others = np.concatenate([own[other] for other in large if other != place])
        medians = np.abs([np.median(own[place]), np.median(others)])
        if medians.min() > 0 and medians.max() > UNITS * medians.min():
            warn(
                f"column {name} holds {lowest[at]:g} to {highest[at]:g} at {names[place]}, and "
                f"{least:g} to {most:g} at the other sites: if the units differ, write all in one"
            )
            return
