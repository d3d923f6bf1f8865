"""Windows of a series: the rows of a table in their order, so many steps at a time."""

from collections.abc import Hashable, Iterable, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from jaxfl.core.errors import InputError, check, warn
from jaxfl.data.table.read import NUMBER, Sheet, check_column, without
from jaxfl.data.table.schema import Schema, check_complete, inputs, numbers, targets

# A gap is longer than so many times the step that nine of ten steps do not exceed.
GAP = 1.5
# Columns that are likely to order rows, in small letters.
TIMES = ("time", "timestamp", "datetime", "date", "seconds", "ms", "t", "frame")


class Examples(NamedTuple):
    """What a file holds for a model."""

    x: np.ndarray  # [N, F], or windows [N, steps, F]
    y: np.ndarray | None  # [N], if the file has the target
    rows: np.ndarray  # [N] of the file, the first of each example


def examples(schema: Schema, sheet: Sheet) -> Examples:
    """The rows of a file, or the windows of its rows, as inputs and targets of a model.

    The target of a window is its most frequent label (of equally frequent ones the first class), or
    the number of its last step.

    Raises:
      InputError: columns do not fit, see `schema.inputs`, or the file holds no window.
    """
    x, y = inputs(schema, sheet), targets(schema, sheet)
    if not schema.steps:
        return Examples(x, y, np.arange(len(x)))
    for name in schema.series:
        check_column(f"{sheet.file} lacks", name, sheet.columns)
    columns = [sheet.columns[name] for name in schema.series]
    recordings = list(zip(*columns, strict=True)) or [()] * len(x)
    order: Iterable[int] = range(len(x))
    if schema.order:
        check_column(f"{sheet.file} lacks", schema.order, sheet.columns)
        order, recordings = in_time(without(sheet, schema.missing), schema.order, recordings)
    else:
        warn_of_order(sheet, recordings)
    rows = cut(recordings, schema.steps, schema.stride, order)
    check(
        len(rows) > 0,
        f"{sheet.file} holds no {schema.steps} steps of one recording: expected more rows, or "
        "prepare the data with fewer --steps",
    )
    if y is None:
        return Examples(x[rows], None, rows[:, 0])
    if not schema.target.classes:
        return Examples(x[rows], y[rows[:, -1]], rows[:, 0])
    counts = (y[rows][..., None] == np.arange(len(schema.target.classes))).sum(axis=1)
    return Examples(x[rows], counts.argmax(axis=1).astype(np.int32), rows[:, 0])


def cut(
    recordings: Sequence[Hashable], steps: int, stride: int, order: Iterable[int] | None = None
) -> np.ndarray:
    """The rows of each window [W, steps]; what is left at the end of a recording is in none.

    Args:
      recordings: which one each row belongs to.
      steps: of a window.
      stride: steps from the beginning of a window to that of the next one.
      order: the rows in the order of time; as they are if None.

    Example:
      >>> cut(["walk"] * 5 + ["run"] * 2, steps=2, stride=2).tolist()
      [[0, 1], [2, 3], [5, 6]]
    """
    rows_of = rows_of_recordings(recordings, range(len(recordings)) if order is None else order)
    windows = [
        rows[first : first + steps]
        for rows in rows_of.values()
        for first in range(0, len(rows) - steps + 1, stride)
    ]
    return np.array(windows, int).reshape(-1, steps)


def rows_of_recordings(
    recordings: Sequence[Hashable], order: Iterable[int]
) -> dict[Hashable, list[int]]:
    """The rows of each recording, in an order of all rows."""
    rows_of: dict[Hashable, list[int]] = {}
    for row in order:
        rows_of.setdefault(recordings[row], []).append(row)
    return rows_of


def in_time(
    sheet: Sheet, name: str, recordings: Sequence[Hashable]
) -> tuple[list[int], list[Hashable]]:
    """The rows in the order of time, and the recording of each row, another one behind a gap.

    A warning names the gaps.

    Args:
      sheet: the table.
      name: of the column of times.
      recordings: which one each row belongs to.

    Raises:
      InputError: a time is missing, is none, or is there twice in a recording.
    """
    times = moments(sheet, name)
    order = np.argsort(times, kind="stable").tolist()
    rows_of = rows_of_recordings(recordings, order)
    steps = np.concatenate([np.diff(times[rows]) for rows in rows_of.values()])
    longest = GAP * np.quantile(steps, 0.9) if steps.size else 0.0
    parts: list[Hashable] = list(recordings)
    gaps = []
    for recording, rows in rows_of.items():
        part = 0
        for before, row in pairwise(rows):
            check(
                times[row] > times[before],
                f"{name} is {sheet.columns[name][row]!r:.40} in {sheet.place(before)} and in "
                f"{sheet.place(row)}: expected each time once in a recording; name the recordings "
                "by --series",
            )
            if times[row] - times[before] > longest:
                gaps.append((before, row))
                part += 1
            parts[row] = (recording, part)
        parts[rows[0]] = (recording, 0)
    if gaps:
        before, row = max(gaps, key=lambda gap: times[gap[1]] - times[gap[0]])
        first, last = (sheet.columns[name][one] for one in (before, row))
        warn(
            f"{sheet.file} has {len(gaps):,} gaps in {name}, the longest from {first!s:.40} to "
            f"{last!s:.40}: no window crosses one"
        )
    return order, parts


def moments(sheet: Sheet, name: str) -> np.ndarray:
    """The times of the rows [N]: numbers, or the seconds of dates.

    Raises:
      InputError: one is missing, or is neither.
    """
    cells = check_complete("time", name, sheet, "write it, or remove these rows")
    if all(map(NUMBER.fullmatch, cells)):
        return numbers(name, sheet)
    times = []
    for row, cell in enumerate(cells):
        try:
            moment = datetime.fromisoformat(cell)
        except ValueError as error:
            raise InputError(
                f"the time {name} is {cell!r:.40} in {sheet.place(row)}: expected numbers, or "
                "dates such as 2026-03-15 or 2026-03-15 14:30:00"
            ) from error
        times.append((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())
    return np.array(times)


def warn_of_order(sheet: Sheet, recordings: Sequence[Hashable]) -> None:
    """Warns of a column of times by which the rows of a recording are not in order."""
    rows_of = rows_of_recordings(recordings, range(len(recordings)))
    for name in sheet.columns:
        if name.casefold() not in TIMES:
            continue
        try:
            times = moments(sheet, name)
        except InputError:
            continue
        for rows in rows_of.values():
            steps = np.diff(times[rows])
            # Each time is there once, and it goes back.
            if (steps < 0).any() and len(set(times[rows])) == len(rows):
                warn(
                    f"the rows of {sheet.file} are not in the order of {name}: if it is their "
                    f"time, give --order {name}"
                )
                return
