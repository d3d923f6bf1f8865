"""One table a site, and no place that has them all: from each site's sums to its own features.

1. A site makes a summary of its table: `table_summary`.
2. Whoever has the summaries of all sites makes the schema: `table_schema`.
3. Each site turns its table into features by the schema: `from_table`.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from jaxfl.core.errors import InputError, check, warn
from jaxfl.core.options import checked
from jaxfl.data.arrays import from_arrays
from jaxfl.data.source import Source
from jaxfl.data.table.fit import (
    CLASSES,
    check_choices,
    column_of,
    combine,
    target_sums,
    warn_of_classes,
    warn_of_words,
)
from jaxfl.data.table.read import Sheet, check_columns, read_sheet, sheet_of_frame, word_of
from jaxfl.data.table.schema import (
    LARGEST,
    from_json,
    groups_of_rows,
    names_of,
    to_json,
)
from jaxfl.data.table.summary import Choices, Summary, Sums, Task, summary_of
from jaxfl.data.table.table_warnings import warn_of_ids
from jaxfl.data.table.windows import examples

LONGEST = 200  # letters of a word that a site may tell
TASKS = (None, "classification", "regression")
# What all sites must have decided alike.
NAMES = ("target", "event", "id", "group")
DECISIONS = (*NAMES, "leave_out", "categories", "missing", "task")


@checked
def table_summary(
    table: Any,
    target: str,
    *,
    event: str | None = None,
    id: str | None = None,
    group: str | None = None,
    leave_out: tuple[str, ...] = (),
    categories: tuple[str, ...] = (),
    missing: tuple[str, ...] = (),
    task: Task | None = None,
) -> str:
    """What a site tells of its table, as JSON: of each column counts, and sums or words.

    Of numbers it has how many there are, their mean and the sum of their squared distances from it;
    of a category and of classes each word with how often it is there, also one that a single row
    has. All sites see the words in the schema. Of a target of up to 20 whole numbers it has each
    one, unless `task` is "regression". Two numbers can be worked out of their sums, and a row of
    the summaries before and after it. So leave out what nobody should know.

    Args:
      table: a CSV file in UTF-8 with decimal points, or a data frame of pandas, which reads others.
      target: the column to predict; with `event`, that of the times to it.
      event: the column that is 1 where the event happened at that time, else 0.
      id: the column that names the rows.
      group: the column that names what is whole in training or validation, such as the patient.
      leave_out: columns that models do not see; a site may lack them.
      categories: columns of words that may look like numbers, or are others in each row.
      missing: further cells that hold no value.
      task: whether the target is classes or numbers; by its values if None.

    Raises:
      InputError: a column is not what a model can learn from, or has another word in each row.

    Example:
      >>> import pandas
      >>> rows = pandas.DataFrame({"age": [61, 75, 43, 50], "ill": ["no", "yes", "no", "no"]})
      >>> json.loads(table_summary(rows, "ill"))["columns"]["age"]["sums"]
      [4, 57.25, 584.75]
    """
    choices = Choices(
        target,
        event=event,
        id=id,
        group=group,
        leave_out=leave_out,
        categories=categories,
        missing=missing,
        task=task,
    )
    sheet = _sheet(table)
    absent = [name for name in leave_out if name not in sheet.columns]
    if absent:
        warn(f"leave_out names {', '.join(absent)}, which {sheet.file} does not have")
    kept = tuple(name for name in leave_out if name not in absent)
    check_choices(replace(choices, leave_out=kept), set(sheet.columns))
    columns = summary_of(sheet, choices)
    told = {name: asdict(_told(name, one, choices)) for name, one in columns.items()}
    return json.dumps({**{name: getattr(choices, name) for name in DECISIONS}, "columns": told})


def _told(name: str, summary: Summary, choices: Choices) -> Summary:
    """The summary of a column that is of use, without words where numbers will do.

    Raises:
      InputError: it is of no use here, or is told by another word in each row.
    """
    if name == choices.target:
        sums = target_sums([summary], choices)
    else:
        column_of(name, [summary], choices)
        sums = None if name in choices.categories else summary.sums
    # One number in all rows may be a word elsewhere, and is its mean.
    if sums is not None and sums.squares:
        return replace(summary, words=None, date="", problem="")
    words = summary.words or {}
    check(
        name in (choices.target, *choices.categories) or len(words) < max(summary.values, 2),
        f"column {name} holds another text in each row, which would be told: name it in leave_out, "
        "or in categories if that may be",
    )
    check(len(words) <= CLASSES, f"the target {name} has {len(words):,} classes: expected fewer")
    long = [word for word in words if len(word) > LONGEST]
    check(not long, f"column {name} has words of more than {LONGEST} letters: leave it out")
    return replace(summary, date="", problem="")


def table_schema(summaries: Mapping[str, str]) -> str:
    """What each column becomes at all sites, as JSON, from what the sites tell.

    It is the schema that `jaxfl prepare csv` makes of files with these cells.

    Args:
      summaries: by the name of the site its `table_summary`.

    Raises:
      InputError: a summary is none, sites were asked for different columns, or a column is not what
        a model can learn from.

    Example:
      >>> import pandas
      >>> rows = pandas.DataFrame({"age": [61, 75, 43, 50], "ill": ["no", "yes", "no", "no"]})
      >>> summary = table_summary(rows, "ill")
      >>> schema = table_schema({"north": summary, "south": summary})
      >>> from_json(schema).target.classes, from_json(schema).columns[0].mean
      (('no', 'yes'), 57.25)
    """
    check(len(summaries) > 0, "there is no summary: give that of each site, by its name")
    read = {site: _read(site, text) for site, text in summaries.items()}
    first = next(iter(read))
    choices = read[first][0]
    for site, (other, _) in read.items():
        unlike = [name for name in DECISIONS if getattr(other, name) != getattr(choices, name)]
        check(
            not unlike,
            f"the summaries of {site} and of {first} were made with other values of "
            f"{' and '.join(unlike)}: make all with the same ones",
        )
    tables = [Sheet(site, {name: [] for name in one}, ()) for site, (_, one) in read.items()]
    check_columns(tables)
    schema = combine([columns for _, columns in read.values()], choices).schema
    for name in (*(one.name for one in schema.columns if one.words), schema.target.name):
        words = {site: columns[name].words or {} for site, (_, columns) in read.items()}
        if name != schema.target.name or schema.target.classes:
            warn_of_words(name, words)
        if name == schema.target.name and schema.target.classes:
            warn_of_classes(name, words)
    return to_json(schema)


def from_table(table: Any, schema: str, name: str = "the table") -> Source:
    """The data set of one site: its table by a schema.

    Args:
      table: as `table_summary` takes it; without the target, of rows to predict, the data set has
        no targets.
      schema: of all sites, see `table_schema`.
      name: of the data set, for messages.

    Returns:
      Without owners and without a test set: `federate(source, [rows], test="own")` is the client's
      half of a federation, where `rows` are all of them in a random order.

    Raises:
      InputError: columns do not fit the schema.

    Example:
      >>> import pandas
      >>> rows = pandas.DataFrame({"age": [61, 75, 43] * 4, "ill": ["no", "yes", "no"] * 4})
      >>> source = from_table(rows, table_schema({"north": table_summary(rows, "ill")}))
      >>> source.x_train.shape, source.class_names
      ((12, 1), ('no', 'yes'))
    """
    known = from_json(schema, "the schema")
    sheet = _sheet(table)
    found = examples(known, sheet)
    arrays: dict[str, Any] = {"x_train": found.x, "y_train": found.y, **names_of(known)}
    if found.y is None:
        arrays.pop("class_names", None)
    elif known.target.classes:
        # A site may lack a class.
        arrays["classes"] = len(known.target.classes)
    if known.target.event and found.y is not None:
        arrays["survival"] = True
    if known.group in sheet.columns:
        _, groups = np.unique(groups_of_rows(known.group, sheet), return_inverse=True)
        arrays["groups"] = groups[found.rows]
    if known.id in sheet.columns and known.id != known.group:
        warn_of_ids(sheet.columns[known.id], [str(sheet.file)] * len(sheet.lines), known.id)
    has_strata = known.target.classes or known.target.event
    split = "stratified" if found.y is not None and has_strata else "random"
    return from_arrays(**arrays, name=name)._replace(schema=schema, split=split)


def _sheet(table: Any) -> Sheet:
    if hasattr(table, "columns"):
        return sheet_of_frame(table, "the table")
    return read_sheet(Path(table), encoding=None)


def _read(site: str, text: str) -> tuple[Choices, dict[str, Summary]]:
    """What a site has told; all of it is checked, since anybody may have written it."""
    try:
        told = json.loads(text)
        columns = {name: _summary(one) for name, one in told.pop("columns").items()}
        for name in ("leave_out", "categories", "missing"):
            told[name] = tuple(told[name])
        if not all(isinstance(told[name], str | None) for name in NAMES):
            raise ValueError("a name is no text")
        choices = Choices(**{name: told.pop(name) for name in DECISIONS})
        if told or choices.target not in columns or choices.task not in TASKS:
            raise ValueError("it has no target, another task, or more than it should")
        if len({one.rows for one in columns.values()}) > 1:
            raise ValueError("columns differ in their numbers of rows")
        return choices, columns
    except (
        InputError,
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
        RecursionError,
    ) as error:
        raise InputError(
            f"the summary of {site} is not one of `table_summary` ({error!r:.80}): make it anew"
        ) from None


def _summary(told: dict[str, Any]) -> Summary:
    """A summary from its JSON.

    Raises:
      ValueError: a number or a word is none that can be.
    """
    if told.keys() != {field.name for field in fields(Summary)}:
        raise ValueError("fields are missing or unknown")
    words = told["words"]
    counts = [told[name] for name in ("dates", "texts", "values", "rows")]
    if not all(_is_count(one) for one in counts):
        raise ValueError("a count is no whole number of at least 0")
    if not max(counts[:2]) <= told["values"] <= told["rows"]:
        raise ValueError("a column has more values than rows")
    if not all(type(told[name]) is bool for name in ("plain", "places")):
        raise ValueError("a flag is neither true nor false")
    if words is not None:
        if len(words) > CLASSES or not all(map(_is_word, words)):
            raise ValueError("a column has too many words, or texts that are none")
        if not all(_is_count(one) and one for one in words.values()):
            raise ValueError("a word is there a number of times that cannot be")
        if sum(words.values()) != told["values"]:
            raise ValueError("words are not as many as values")
    sums = None if told["sums"] is None else _sums(told["sums"], told["values"])
    if words is None and sums is None:
        raise ValueError("a column has neither numbers nor words")
    return Summary(**told | {"sums": sums, "date": "", "problem": ""})


def _is_count(one: Any) -> bool:
    return type(one) is int and 0 <= one < LARGEST


def _is_word(word: str) -> bool:
    return word.isprintable() and word_of(word) == word and len(word) <= LONGEST


def _sums(told: list, values: int) -> Sums:
    count, mean, squares = told
    if not all(type(one) in (int, float) and abs(one) < LARGEST**2 for one in told):
        raise ValueError("a sum is no number")
    if count != values or abs(mean) >= LARGEST or not 0 <= squares <= count * LARGEST**2:
        raise ValueError("a mean or a sum of squares is none that can be")
    return Sums(count, float(mean), float(squares))
