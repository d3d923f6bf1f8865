"""What each column of a table becomes: as JSON, and as the inputs of a model."""

import json
import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from jaxfl.core.errors import InputError, check, warn
from jaxfl.data.table.read import COMMA, NUMBER, THOUSANDS, Sheet, check_column, without, word_of

# Cells that hold no value: of data frames, R, SAS and Stata ("."), SPSS, data bases and
# spreadsheets, also those that a formula has broken. "None" and "-" may be words of their own:
# `--missing` adds them.
MISSING = (
    *("", "?", ".", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "NaT", "NULL", "null"),
    *("#NULL!", "#DIV/0!", "#VALUE!", "#REF!", "#NAME?", "#NUM!", "\\N"),
)
LARGEST = 1e30  # number that float32 still holds when it is scaled


@dataclass(frozen=True)
class Column:
    """A column that models see.

    A number x becomes (x - mean) / deviation, and a missing one 0, which is the mean unless numbers
    stay as they are, with the mean 0 and the deviation 1. A category
    becomes a feature of 0 or 1 for each word; a missing or an unknown one is 0 in all of them.
    """

    name: str
    kind: Literal["number", "category"]
    mean: float = 0.0
    deviation: float = 1.0
    words: tuple[str, ...] = ()
    indicator: bool = False  # whether a last feature is 1 where the value is missing

    @property
    def features(self) -> list[str]:
        """The names of its features."""
        values = [f"{self.name}={word}" for word in self.words] or [self.name]
        return values + [f"{self.name} missing"] * self.indicator


@dataclass(frozen=True)
class Target:
    """The column to predict: one of the classes, or a number as (y - mean) / deviation.

    With `event` it holds times as they are, and that column 1 where the event happened then, or 0
    where it had not happened until then.
    """

    name: str
    classes: tuple[str, ...] = ()
    mean: float = 0.0
    deviation: float = 1.0
    event: str = ""


@dataclass(frozen=True)
class Schema:
    """What each column of a table becomes."""

    target: Target
    columns: tuple[Column, ...]
    id: str = ""  # the column that names the rows
    unused: tuple[str, ...] = ()  # columns that models do not see, that of the owners among them
    missing: tuple[str, ...] = MISSING  # cells that hold no value
    steps: int = 0  # of a window, see `windows.examples`; 0 where each row is an example
    stride: int = 0  # steps from one window to the next
    series: tuple[str, ...] = ()  # columns that name the recording of a row
    weight: str = ""  # the column of what a row weighs in losses and scores
    order: str = ""  # the column that orders the rows of a recording; "" if they are in order
    group: str = ""  # the column that names what is whole in training, validation or test

    @property
    def features(self) -> list[str]:
        """The names of the features [F]."""
        return [name for column in self.columns for name in column.features]


def names_of(schema: Schema) -> dict[str, np.ndarray]:
    """The names of features and classes, as `from_arrays` takes them."""
    names = {"feature_names": np.array(schema.features, str)}
    if schema.target.classes:
        names["class_names"] = np.array(schema.target.classes, str)
    return names


def to_json(schema: Schema) -> str:
    """The schema as JSON.

    Example:
      >>> schema = Schema(Target("outcome", ("alive", "died")), (Column("age", "number", 60, 12),))
      >>> from_json(to_json(schema)) == schema
      True
    """
    return json.dumps(asdict(schema), indent=1)


def from_json(text: str, file: object = "the table") -> Schema:
    """The schema of a JSON text.

    Raises:
      InputError: it holds none.

    Example:
      >>> from_json('{"target": 1}')
      Traceback (most recent call last):
      jaxfl.core.errors.InputError: the columns of the table cannot be read (...): ...
    """
    try:
        value = json.loads(text)
        target = Target(**_typed(value["target"], Target))
        columns = tuple(Column(**_typed(one, Column)) for one in value["columns"])
        others = {key: one for key, one in value.items() if key not in ("target", "columns")}
        schema = Schema(target, columns, **_typed(others, Schema))
        if not columns:
            raise ValueError("there is none")
        if any(one.kind == "category" and not one.words for one in columns):
            raise ValueError("a category has no words")
        if not 0 <= schema.steps < LARGEST or (schema.steps and schema.stride < 1):
            raise ValueError(f"windows of {schema.steps} steps at every {schema.stride}")
    except (
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
        OverflowError,
        RecursionError,
    ) as error:
        raise InputError(
            f"the columns of {file} cannot be read ({error!r:.80}): make it anew with jaxfl "
            "prepare csv"
        ) from error
    return schema


def _typed(value: dict[str, Any], kind: type) -> dict[str, Any]:
    """The fields of a dataclass in a JSON object, with tuples for lists.

    Raises:
      ValueError: a value is not of the type of the field.
    """
    fields = {}
    for name, one in value.items():
        default = getattr(kind, name, "")
        if isinstance(default, tuple):
            right = isinstance(one, list) and all(isinstance(word, str) for word in one)
            one = tuple(one) if right else one
        elif isinstance(default, float):
            right = type(one) in (int, float) and math.isfinite(one)
            right = right and (name != "deviation" or one > 0)
        else:
            right = type(one) is type(default)
        if not right:
            raise ValueError(f"{name} is {one!r:.40}")
        if name == "kind" and one not in ("number", "category"):
            raise ValueError(f"kind is {one!r:.40}")
        fields[name] = one
    return fields


def inputs(schema: Schema, sheet: Sheet) -> np.ndarray:
    """The inputs of a model [N, F] float32, of the rows of a table.

    Words of a category and missing values that did not occur when the schema was made are warned
    of.

    Raises:
      InputError: a column is missing, or holds other values than numbers.
    """
    sheet = without(sheet, schema.missing)
    known = {schema.target.name, schema.target.event, schema.id, *schema.unused}
    known |= {column.name for column in schema.columns}
    others = [name for name in sheet.columns if name not in known]
    if others:
        warn(
            f"{sheet.file} has columns that the models do not know, which are left alone: "
            f"{', '.join(others)}"
        )
    blocks = []
    for column in schema.columns:
        check_column(f"{sheet.file} lacks", column.name, sheet.columns)
        cells = sheet.columns[column.name]
        absent = np.array([cell is None for cell in cells])
        if column.kind == "number":
            scaled = (numbers(column.name, sheet) - column.mean) / column.deviation
            blocks.append(np.where(absent, 0.0, scaled)[:, None])
        else:
            words = np.array([None if cell is None else word_of(cell) for cell in cells], object)
            blocks.append(words[:, None] == np.array(column.words, object))
            unknown = ~absent & ~blocks[-1].any(axis=1)
            if unknown.any():
                some = ", ".join(f"{word!r:.40}" for word in dict.fromkeys(words[unknown][:3]))
                warn(
                    f"{unknown.sum()} of {len(cells)} rows of {sheet.file} have words in column "
                    f"{column.name} that the models do not know ({some}): they count as none of "
                    f"{', '.join(column.words[:8])}"
                )
        if column.indicator:
            blocks.append(absent[:, None])
        elif absent.any():
            warn(
                f"{column.name} is missing in {absent.sum()} of {len(cells)} rows of {sheet.file}, "
                "and was missing nowhere when the models were trained: it counts as "
                f"{f'{column.mean:.4g}' if column.kind == 'number' else 'none of its words'}"
            )
    return np.concatenate(blocks, axis=1).astype(np.float32)


def targets(schema: Schema, sheet: Sheet) -> np.ndarray | None:
    """The targets of the rows of a table: int32 labels [N], float32 numbers [N], or pairs [N, 2].

    Raises:
      InputError: a target is missing, is no number, or is none of the classes; a time is negative,
        or an event neither 0 nor 1.

    Returns:
      None if the table has none.
    """
    target = schema.target
    if target.name not in sheet.columns:
        return None
    sheet = without(sheet, schema.missing)
    cells = check_complete("target", target.name, sheet, "remove these rows")
    if target.event:
        return _pairs(target, sheet)
    if not target.classes:
        return ((numbers(target.name, sheet) - target.mean) / target.deviation).astype(np.float32)
    labels = {name: label for label, name in enumerate(target.classes)}
    words = list(map(word_of, cells))
    for row, word in enumerate(words):
        check(
            word in labels,
            f"the target {target.name} is {word!r:.40} in {sheet.place(row)}: expected one of "
            f"{', '.join(target.classes[:20])}",
        )
    return np.array([labels[word] for word in words], np.int32)


def _pairs(target: Target, sheet: Sheet) -> np.ndarray:
    """Times and events [N, 2] float32."""
    check_column(f"{sheet.file} has the time {target.name} and lacks", target.event, sheet.columns)
    check_complete("event", target.event, sheet, "write 1 where it happened then, else 0")
    times, events = numbers(target.name, sheet), numbers(target.event, sheet)
    for row, (time, event) in enumerate(zip(times, events, strict=True)):
        check(
            time >= 0,
            f"the time {target.name} is {time:g} in {sheet.place(row)}: expected 0 or more, from "
            "the beginning to the event, or to the last time it was known not to have happened",
        )
        check(
            event in (0, 1),
            f"the event {target.event} is {event:g} in {sheet.place(row)}: expected 1 where it "
            f"happened at {target.name}, else 0"
            + ("; where 1 says censored and 2 event, subtract 1" if event == 2 else ""),
        )
    return np.stack([times, events], axis=1).astype(np.float32)


def groups_of_rows(name: str, sheet: Sheet) -> list[str]:
    """The group of each row of a table [N], such as its patient.

    Raises:
      InputError: a row names none.
    """
    mend = "name what each row belongs to, or remove these rows"
    return list(map(word_of, check_complete("group", name, sheet, mend)))


def weights_of_rows(name: str, sheet: Sheet) -> np.ndarray:
    """What each row of a table weighs [N].

    Raises:
      InputError: a cell holds something else than a number of at least 0.
    """
    values = numbers(name, sheet)
    for row, value in enumerate(values):
        check(
            value >= 0,
            f"the weight {name} is {sheet.columns[name][row] or ''!r:.40} in {sheet.place(row)}: "
            "expected a number of at least 0",
        )
    return values


def rows_that_test(name: str, sheet: Sheet) -> np.ndarray:
    """Which rows of a table test [N]; the others train and validate.

    Raises:
      InputError: a cell is neither train nor test.
    """
    cells = check_complete("split", name, sheet, "write train or test")
    for row, cell in enumerate(cells):
        check(
            cell in ("train", "test"),
            f"the split {name} is {cell!r:.40} in {sheet.place(row)}: expected train or test",
        )
    return np.array(cells) == "test"


def numbers(name: str, sheet: Sheet, otherwise: str = "") -> np.ndarray:
    """The numbers of a column [N] float64, NaN where they are missing.

    Args:
      name: of the column.
      sheet: the table.
      otherwise: what else one can do about a cell that is no number, for the message.

    Raises:
      InputError: a cell holds something else.
    """
    values = np.full(len(sheet.lines), np.nan)
    for row, cell in enumerate(sheet.columns[name]):
        if cell is None:
            continue
        if NUMBER.fullmatch(cell):
            values[row] = float(cell)
            if abs(values[row]) < LARGEST:
                continue
        wish = "write a number"
        if COMMA.fullmatch(cell):
            wish += " (with decimal commas: add --decimal ,)"
        if THOUSANDS[","].fullmatch(cell):
            wish += " (with commas between thousands: add --thousands ,)"
        if not np.isnan(values[row]):
            wish = f"expected a number below {LARGEST:g}"
        raise InputError(
            f"column {name} holds numbers, and {cell!r:.40} in {sheet.place(row)}: {wish}, or "
            f"nothing where it is missing{otherwise}"
        )
    return values


def check_complete(what: str, name: str, sheet: Sheet, mend: str) -> list[str]:
    """The cells of a column.

    Args:
      what: the column is, for the message: "target".
      name: of the column.
      sheet: the table.
      mend: what to do about cells that are missing, for the message.

    Raises:
      InputError: a cell is missing.
    """
    cells = sheet.columns[name]
    full = [cell for cell in cells if cell is not None]
    check(
        len(full) == len(cells),
        f"the {what} {name} is missing in {len(cells) - len(full)} of {len(cells)} rows, first in "
        f"{sheet.place(cells.index(None)) if None in cells else ''}: {mend}",
    )
    return full
