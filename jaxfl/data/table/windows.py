"""Windows of a series: the rows of a table in their order, so many steps at a time."""

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np

from jaxfl.core.errors import check
from jaxfl.data.table.read import Sheet, check_column
from jaxfl.data.table.schema import Schema, inputs, targets


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
    recordings = list(zip(*(sheet.columns[name] for name in schema.series), strict=True))
    rows = cut(recordings or [()] * len(x), schema.steps, schema.stride)
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


def cut(recordings: Sequence[Hashable], steps: int, stride: int) -> np.ndarray:
    """The rows of each window [W, steps]; what is left at the end of a recording is in none.

    Args:
      recordings: which one each row belongs to; its rows are in the order of time.
      steps: of a window.
      stride: steps from the beginning of a window to that of the next one.

    Example:
      >>> cut(["walk"] * 5 + ["run"] * 2, steps=2, stride=2).tolist()
      [[0, 1], [2, 3], [5, 6]]
    """
    rows_of: dict[Hashable, list[int]] = {}
    for row, recording in enumerate(recordings):
        rows_of.setdefault(recording, []).append(row)
    windows = [
        rows[first : first + steps]
        for rows in rows_of.values()
        for first in range(0, len(rows) - steps + 1, stride)
    ]
    return np.array(windows, int).reshape(-1, steps)
