"""What is improbable in the tables of sites: rows that repeat, numbers for nothing, other units."""

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

from jaxfl.core.errors import check, warn
from jaxfl.data.table.fit import cells_of
from jaxfl.data.table.read import Cell, Sheet
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
UNITS = 10.0
# Rows repeat so many times as often as chance explains.
MORE = 5.0
# Values of a site whose range and median are compared; smaller sites may differ by chance.
ENOUGH = 10


def check_header_rows(sheets: Sequence[Sheet]) -> None:
    """Raises an `InputError` if a row repeats the names of the columns."""
    for sheet in sheets:
        names = list(sheet.columns)
        for row, cells in enumerate(zip(*sheet.columns.values(), strict=True)):
            check(
                list(cells) != names,
                f"{sheet.place(row)} has the names of the columns again: remove this row",
            )


def warn_of_rows(sheets: Sequence[Sheet], owners: Sequence[str], schema: Schema) -> None:
    """Warns of rows whose features and target are there several times, unless chance explains them.

    Args:
      sheets: the files.
      owners: the site of each row of all files [N].
      schema: of their columns. Equal rows of one group count once, since no part of a client has
        one of them alone.
    """
    names = (*(column.name for column in schema.columns), schema.target.name, schema.target.event)
    columns = [cells_of(sheets, name) for name in names if name]
    rows = list(zip(*columns, strict=True))
    groups = cells_of(sheets, schema.group) if schema.group else range(len(rows))
    sites: dict[tuple, list[str]] = {}
    for (row, _), owner in dict(zip(zip(rows, groups, strict=True), owners, strict=True)).items():
        sites.setdefault(row, []).append(owner)
    # If columns were independent, so many pairs would be equal by chance.
    every = max(len(rows) * (len(rows) - 1) / 2, 1)
    pairs = every
    for column in columns:
        pairs *= sum(count * (count - 1) / 2 for count in Counter(column).values()) / every
    again: Counter[str] = Counter()
    for some in sites.values():
        again[" and ".join(dict.fromkeys(some))] += len(some) - 1
    count = again.total()
    # Of few, chance may bring several times as many.
    if count <= MORE * max(pairs, math.sqrt(pairs)):
        return
    most = [f"{number:,} in {where}" for where, number in again.most_common(3) if number]
    group = "" if schema.group else "; if they are of one patient, give --group COLUMN"
    warn(
        f"{count:,} of {len(rows):,} rows are there already, with the same features and target "
        f"({', '.join(most)}): if they are copies, remove them, since scores are too good where "
        f"one of two is in the test part{group}"
    )


def warn_of_ids(ids: Sequence[Cell], owners: Sequence[str], name: str) -> None:
    """Warns if several rows of a site have the same name; each site may count from 1.

    Args:
      ids: of the rows [N].
      owners: the site of each row [N].
      name: of the column of ids.
    """
    pairs = Counter(zip(owners, ids, strict=True))
    twice = [pair for pair, count in pairs.items() if count > 1]
    if twice:
        warn(
            f"{len(twice):,} values of {name} name more than one row of a site "
            f"({twice[0][1]!r:.40} of {twice[0][0]}): where such rows come to both the training "
            f"and the test part, scores are too good; --group {name} keeps them together"
        )


def warn_of_groups(groups: Sequence[str], owners: Sequence[str], name: str) -> None:
    """Warns of groups of which several sites have rows.

    Args:
      groups: of the rows [N].
      owners: the site of each row [N].
      name: of the column of groups.
    """
    sites: dict[str, dict[str, None]] = {}
    for group, owner in zip(groups, owners, strict=True):
        sites.setdefault(group, {})[owner] = None
    shared = [
        f"{group!r:.40} ({', '.join(sites[group])})" for group in sites if len(sites[group]) > 1
    ]
    if shared:
        warn(
            f"{len(shared):,} of {len(sites):,} values of {name} stand in several sites, such as "
            f"{', '.join(shared[:3])}: scores are too good where one site is tested on what "
            "another one trains on; if they name different ones, write the site before them"
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


def warn_of_numbers(x: np.ndarray, y: np.ndarray, owners: np.ndarray, schema: Schema) -> None:
    """Warns of numbers that may stand for missing values, and of sites with other units.

    Args:
      x: the features of all rows [N, F].
      y: their targets [N], or times and events [N, 2].
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
    target = schema.target
    if not target.classes:
        amounts = y[:, 0] if target.event else target.mean + target.deviation * y
        _warn_of_units(target.name, amounts.astype(np.float64), sites, names)


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
    """Warns of sites whose numbers are all below those of the others, or a tenth of them."""
    order = np.argsort(sites, kind="stable")
    each = np.split(values[order], np.cumsum(np.bincount(sites, minlength=len(names)))[:-1])
    # A site with one value in all rows has no range.
    varied = [place for place, own in enumerate(each) if len(own) >= ENOUGH and np.ptp(own) > 0]
    varied.sort(key=lambda place: np.median(each[place]))
    medians = np.abs([np.median(each[place]) for place in varied])
    # Of the sites up to each one in this order, and of those behind it.
    highest = np.maximum.accumulate([each[place].max() for place in varied])[:-1]
    lowest = np.minimum.accumulate([each[place].min() for place in varied[::-1]])[::-1][1:]
    least, most = np.sort([medians[:-1], medians[1:]], axis=0)
    is_amount = values.min() >= 0 or values.max() <= 0
    found = np.flatnonzero((highest < lowest) | (is_amount & (least > 0) & (most > UNITS * least)))
    if not found.size:
        return
    sides = varied[: found[0] + 1], varied[found[0] + 1 :]
    told = []
    for side in sorted(sides, key=len):
        own = np.concatenate([each[place] for place in side])
        some = ", ".join(names[place] for place in sorted(side)[:3])
        more = f" and {len(side) - 3} more" if len(side) > 3 else ""
        told.append(f"{own.min():g} to {own.max():g} (median {np.median(own):g}) at {some}{more}")
    warn(f"column {name} holds {' and '.join(told)}: if the units differ, write all in one")
