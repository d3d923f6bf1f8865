"""One table a site, and no place that has them all: from each site's sums to its own features.

1. A site makes a summary of its table: `table_summary`.
2. Whoever has the summaries of all sites makes the schema: `table_schema`.
3. Each site turns its table into features by the schema: `from_table`.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from jaxfl.core.errors import InputError, check
from jaxfl.data.arrays import from_arrays
from jaxfl.data.source import Source
from jaxfl.data.table.fit import CLASSES, check_choices, column_of, combine, warn_of_words
from jaxfl.data.table.read import Sheet, read_sheet, sheet_of_frame
from jaxfl.data.table.schema import from_json, names_of, to_json
from jaxfl.data.table.summary import Choices, Summary, Sums, is_few, summary_of
from jaxfl.data.table.windows import examples

LARGEST = 1e30  # number or count that a site may tell


def table_summary(table: Any, target: str, **options: Any) -> str:
    """What a site tells of its table, as JSON: of each column counts, and sums or words.

    Of numbers it has how many there are, their mean and the sum of their squared distances from it;
    of a category and of classes each word with how often it is there. It has no row. A word that
    one row alone has, or a column of one number, is told as it is: leave such a column out.

    Args:
      table: a CSV file with a comma or a semicolon between its cells, or a data frame of pandas.
      target: the column to predict.
      **options: the other fields of `jaxfl.data.table.summary.Choices`, such as `id` and
        `categories`, alike at all sites.

    Raises:
      InputError: a column is not what a model can learn from.

    Example:
      >>> import pandas
      >>> rows = pandas.DataFrame({"age": [61, 75, 43, 50], "ill": ["no", "yes", "no", "no"]})
      >>> json.loads(table_summary(rows, "ill"))["columns"]["age"]["sums"]
      [4, 57.25, 568.75]
    """
    choices = Choices(target, **options)
    check(choices.owner is None, "owner names the site of a row: a table here is of one site")
    sheet = _sheet(table)
    absent = [name for name in choices.leave_out if name not in sheet.columns]
    kept = tuple(name for name in choices.leave_out if name not in absent)
    check_choices(replace(choices, leave_out=kept), set(sheet.columns))
    columns = summary_of(sheet, choices)
    for name, summary in columns.items():
        if name != target:
            # What is of no use here is of none to all.
            column_of(name, [summary], choices)
    told = {name: asdict(_told(name, one, choices)) for name, one in columns.items()}
    return json.dumps({"choices": asdict(choices), "columns": told})


def _told(name: str, summary: Summary, choices: Choices) -> Summary:
    """The summary without values that are not needed, of numbers and in messages."""
    words = summary.words or {}
    by_words = name in choices.categories
    if name == choices.target and choices.task != "regression":
        by_words |= choices.task == "classification" or is_few(words)
    # A column of one number may be words elsewhere; its mean is that number.
    if not by_words and summary.sums is not None and summary.sums.squares:
        return replace(summary, words=None, date="", problem="")
    check(
        len(words) <= CLASSES, f"column {name} holds {len(words):,} different words: leave it out"
    )
    return replace(summary, date="", problem="")


def table_schema(summaries: Mapping[str, str]) -> str:
    """What each column becomes at all sites, as JSON, from what the sites tell.

    It is the schema that `jaxfl prepare csv` makes of the tables themselves.

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
    choices, columns = read[first]
    for site, (other, its) in read.items():
        check(
            other == choices and its.keys() == columns.keys(),
            f"the summary of {site} has other columns or options than that of {first}: make all "
            "of them by the same call of tables with the same columns",
        )
    schema = combine([its for _, its in read.values()], choices).schema
    for name in (*(one.name for one in schema.columns if one.words), schema.target.name):
        words = {site: set(its[name].words or ()) for site, (_, its) in read.items()}
        if name != schema.target.name or schema.target.classes:
            warn_of_words(name, words)
    return to_json(schema)


def from_table(table: Any, schema: str, name: str = "the table") -> Source:
    """The data set of one site: its table by a schema.

    Args:
      table: as `table_summary` takes it; without the target, of rows to predict, the data set has
        no targets.
      schema: of all sites, see `table_schema`.
      name: of the data set, for messages.

    Returns:
      Without owners and without a test set: `federate(source, [np.arange(n)], test="own")` is the
      client's half of a federation.

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
    found = examples(known, _sheet(table))
    arrays: dict[str, Any] = {"x_train": found.x, "y_train": found.y, **names_of(known)}
    if found.y is None:
        arrays.pop("class_names", None)
    elif known.target.classes:
        # A site may lack a class.
        arrays["classes"] = len(known.target.classes)
    return from_arrays(**arrays, name=name)._replace(schema=schema)


def _sheet(table: Any) -> Sheet:
    if hasattr(table, "columns"):
        return sheet_of_frame(table, "the site")
    return read_sheet(Path(table))


def _read(site: str, text: str) -> tuple[Choices, dict[str, Summary]]:
    """What a site has told; all of it is checked, since anybody may have written it."""
    try:
        told = json.loads(text)
        options = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in told["choices"].items()
        }
        choices = Choices(**options)
        return choices, {name: _summary(one) for name, one in told["columns"].items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise InputError(
            f"the summary of {site} is not one of `table_summary` ({error!s:.80}): make it anew"
        ) from None


def _summary(told: dict[str, Any]) -> Summary:
    """A summary from its JSON.

    Raises:
      ValueError: a number or a word is none that can be.
    """
    if told.keys() != {field.name for field in fields(Summary)}:
        raise ValueError("fields are missing or unknown")
    sums, words = told["sums"], told["words"]
    counts = [told[name] for name in ("rows", "dates", "texts", "values")]
    counts += [] if words is None else [*words.values()]
    counts += [] if sums is None else sums[:1]
    if not all(type(one) is int and 0 <= one < LARGEST for one in counts):
        raise ValueError("a count is no whole number of at least 0")
    if max(told["dates"], told["texts"], told["values"]) > told["rows"]:
        raise ValueError("a column has more values than rows")
    if sums is not None:
        _, mean, squares = sums
        if not (math.isfinite(mean) and abs(mean) < LARGEST and 0 <= squares < math.inf):
            raise ValueError("a mean or a sum of squares is no number that can be")
        sums = Sums(sums[0], float(mean), float(squares))
    if words is not None and len(words) > CLASSES:
        raise ValueError("a column has too many words")
    flags = {name: bool(told[name]) for name in ("plain", "places")}
    return Summary(**told | flags | {"sums": sums, "date": "", "problem": ""})
