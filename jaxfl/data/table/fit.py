"""From summaries of all sites to a schema: what each column is, and the numbers that scale it."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from jaxfl.core.errors import InputError, check, warn
from jaxfl.core.text import by_number
from jaxfl.data.table.read import NUMBER, Cell, Sheet, check_column
from jaxfl.data.table.schema import Column, Schema, Target
from jaxfl.data.table.summary import ROWS, Choices, Summary, Sums, summary_of

WORDS = 100  # of a category at most
CLASSES = 1000  # of a target at most
EXPECTED = 3  # rows of a class that a site of its size would have in the mean
FEW = 20  # values up to which whole numbers of a target are classes
# Words that may say, in small letters, that a value is missing or infinite.
MARKS = {
    *("-", "--", "na", "n.a.", "k.a.", "none", "inf", "-inf", "unknown", "missing", "unbekannt"),
    *("-9", "-99", "-999", "-9999", "99", "999", "9999"),
}


class Fit(NamedTuple):
    """A schema, and what it says of each column in words."""

    schema: Schema
    words: dict[str, str]


def fit(sheets: Sequence[Sheet], choices: Choices) -> Fit:
    """What each column of the files becomes.

    Args:
      sheets: the files, with the same columns.
      choices: what the user says of the columns.

    Raises:
      InputError: there is no such column, a column is of no use to a model as it is, or the target
        is missing somewhere or the same everywhere.
    """
    names = dict.fromkeys(name for sheet in sheets for name in sheet.columns)
    check_choices(choices, names)
    schema, words = combine([summary_of(sheet, choices) for sheet in sheets], choices)
    return Fit(schema, {name: words[name] for name in names})


def check_choices(choices: Choices, columns: Iterable[str]) -> None:
    """Raises an `InputError` unless all columns that the user names are there."""
    named = {
        "--target" if choices.event is None else "--time": [choices.target],
        "--event": [choices.event] if choices.event is not None else [],
        "--id": [choices.id] if choices.id is not None else [],
        "--owner": [choices.owner] if choices.owner is not None else [],
        "--group": [choices.group] if choices.group is not None else [],
        "--series": [choices.series] if choices.series is not None else [],
        "--order": [choices.order] if choices.order is not None else [],
        "--weight": [choices.weight] if choices.weight is not None else [],
        "--split": [choices.split] if choices.split is not None else [],
        "--leave-out": choices.leave_out,
        "--categories": choices.categories,
    }
    for option, names in named.items():
        for name in names:
            check_column(option, name, columns)
            check(
                name != choices.target or option in ("--target", "--time", "--categories"),
                f"{option} {name} is the target: name another column",
            )


def combine(tables: Sequence[Mapping[str, Summary]], choices: Choices) -> Fit:
    """The schema of tables of which the summaries are known.

    Means and standard deviations are those of scikit-learn's `StandardScaler` over the rows of all
    tables.

    Args:
      tables: by the names of their columns the summaries of each, see `summary_of`.
      choices: what the user says of the columns.

    Raises:
      InputError: as `fit`.
    """
    columns: list[Column] = []
    words = {name: f"{role}; models do not see it" for name, role in choices.roles.items()}
    unused = [name for name in words if name != choices.id]
    for name in dict.fromkeys(name for table in tables for name in table):
        if name == choices.target:
            continue
        column, words[name] = column_of(name, [table[name] for table in tables], choices)
        if column is None:
            unused.append(name)
        else:
            columns.append(column)
    check(
        len(columns) > 0, f"no column is left to predict {choices.target} from: give more columns"
    )
    target, words[choices.target] = _target([table[choices.target] for table in tables], choices)
    # No window has rows of two groups.
    recording = (choices.owner, choices.series, choices.group) if choices.steps else ()
    schema = Schema(
        target,
        tuple(columns),
        choices.id or "",
        tuple(unused),
        choices.absent,
        choices.steps or 0,
        choices.stride or choices.steps or 0,
        tuple(name for name in recording if name is not None),
        choices.weight or "",
        choices.order or "",
        choices.group or "",
    )
    twice = [name for name, count in Counter(schema.features).items() if count > 1]
    check(
        not twice,
        f"two features would have the name {', '.join(twice[:1])!r:.60}: give one of the columns "
        "that they come from another name",
    )
    return Fit(schema, words)


def column_of(name: str, tables: Sequence[Summary], choices: Choices) -> tuple[Column | None, str]:
    """What a column becomes, and that in words; None if models have nothing to see in it."""
    rows = sum(table.rows for table in tables)
    absent = rows - sum(table.values for table in tables)
    if absent == rows:
        return None, "left out: missing in all rows"
    share = (
        f"{absent / rows:.0%}"
        if absent >= rows / 200
        else f"{absent} row{'s' if absent > 1 else ''}"
    )
    # Of numbers that vary a site keeps its words.
    told = all(table.words is not None for table in tables)
    known = _words(name, tables) if told else Counter()
    if len(known) == 1 and not absent:
        return None, f"left out: {next(iter(known))!r:.40} in all rows"
    hint = f", or let it order the rows (--order {name})" if choices.steps else ""
    sums = None if name in choices.categories else _numbers(name, tables, hint)
    if sums is not None:
        mean, deviation = sums.scaling if choices.scale else (0.0, 1.0)
        large = [table for table in tables if table.rows >= ROWS]
        if large and all(table.places for table in large):
            warn(
                f"column {name} holds another whole number in each row: if it names the rows, give "
                f"--id {name}, since models learn nothing from it"
            )
        text = f"number: (x - {mean:.4g}) / {deviation:.4g}" if choices.scale else "number"
        if absent:
            filled = "the mean" if choices.scale else "0"
            text += f"; {share} missing: {filled}, and a feature that says so"
        return Column(name, "number", mean, deviation, indicator=absent > 0), text
    ordered = in_order(_words(name, tables))
    check(
        len(ordered) <= WORDS
        and (name in choices.categories or len(ordered) < rows or rows < ROWS),
        f"column {name} holds {len(ordered):,} different texts in {rows:,} rows "
        f"({ordered[0]!r:.30}, ...), too many for a category: if it names the rows, give "
        f"--id {name}, else leave it out (--leave-out {name}) or put the texts into at most "
        f"{WORDS} groups",
    )
    warn_of_case(f"column {name} has the words", ordered)
    _warn_of_marks(f"column {name}", "categories", ordered)
    text = f"category: {', '.join(ordered[:6])}"
    if len(ordered) > 6:
        text += f" and {len(ordered) - 6} more"
    if absent:
        text += f"; {share} missing: a category of their own"
    return Column(name, "category", words=tuple(ordered), indicator=absent > 0), text


def _numbers(name: str, tables: Sequence[Summary], hint: str = "") -> Sums | None:
    """The sums of a column of numbers; None if it holds words.

    Args:
      name: of the column.
      tables: its summaries.
      hint: what else one can do about dates, for the message.

    Raises:
      InputError: it holds dates, or both numbers and text.
    """
    values = sum(table.values for table in tables)
    dates = [table.date for table in tables if table.date]
    check(
        2 * sum(table.dates for table in tables) <= values or all(table.plain for table in tables),
        f"column {name} holds dates or times ({', '.join(dates[:1])}): make numbers of them, "
        f"such as the days since the first one, or leave the column out (--leave-out {name}){hint}",
    )
    if 2 * sum(table.texts for table in tables) > values:
        return None
    total = Sums(0)
    for table in tables:
        if table.sums is None:
            raise InputError(table.problem or _mixture(name))
        total = total.plus(table.sums)
    return total


def _words(name: str, tables: Sequence[Summary]) -> Counter:
    """How often each word of a column is there."""
    total: Counter[str] = Counter()
    for table in tables:
        if table.words is None:
            raise InputError(_mixture(name))
        total.update(table.words)
    return total


def is_few(tables: Sequence[Summary]) -> bool:
    """Whether the values of a target are few whole numbers, which are classes."""
    words: set[str] = set()
    for table in tables:
        if table.words is None:
            return False
        words |= table.words.keys()
    return len(words) <= FEW and all(re.fullmatch(r"[+-]?\d+", word) for word in words)


def _mixture(name: str) -> str:
    return (
        f"column {name} holds numbers at some sites and words at others: write it alike, or take "
        f"all for words (--categories {name})"
    )


def _target(tables: Sequence[Summary], choices: Choices) -> tuple[Target, str]:
    """What the target becomes, and that in words.

    Raises:
      InputError: it is the same everywhere, or neither classes nor numbers.
    """
    name = choices.target
    rows = sum(table.rows for table in tables)
    known = all(table.words is not None for table in tables)
    counts = _words(name, tables) if known else Counter()
    check(
        len(counts) > 1 or not known,
        f"the target {name} is {next(iter(counts), '')!r:.40} in all {rows} rows: expected two "
        "classes or more, or numbers",
    )
    if choices.event is not None:
        longest = f"times, and in {choices.event} whether the event happened then"
        return Target(name, event=choices.event), f"target, {longest}"
    sums = target_sums(tables, choices)
    if sums is not None:
        mean, deviation = sums.scaling
        return Target(name, (), mean, deviation), (
            f"target, numbers: (y - {mean:.4g}) / {deviation:.4g}, so that an RMSE of 1 is "
            f"{deviation:.4g}"
        )
    counts = _words(name, tables)
    check(
        len(counts) <= CLASSES and (2 * len(counts) <= rows or rows < ROWS),
        f"the target {name} has {len(counts):,} classes in {rows:,} rows: expected fewer, "
        "or numbers (--task regression)",
    )
    classes = in_order(counts)
    warn_of_case(f"the target {name} has the classes", classes)
    _warn_of_marks(f"the target {name}", "classes", classes)
    shown = [f"{word} ({counts[word]:,})" for word in classes[:8]]
    more = f" and {len(classes) - 8} more" if len(classes) > 8 else ""
    return Target(name, tuple(classes)), f"target, classes: {', '.join(shown)}{more}"


def target_sums(tables: Sequence[Summary], choices: Choices) -> Sums | None:
    """The sums of a target of numbers; None if it is classes.

    Raises:
      InputError: it is neither.
    """
    if choices.task == "classification":
        return None
    if choices.task == "regression" or choices.event is not None:
        for table in tables:
            if table.sums is None:
                raise InputError(table.problem or _mixture(choices.target))
    elif choices.target in choices.categories or is_few(tables):
        return None
    return _numbers(choices.target, tables)


def in_order(words: set[str] | dict[str, int]) -> list[str]:
    """Words in the order of their letters, and of the numbers in them.

    Example:
      >>> in_order({"site10", "site9", "site1"}), in_order({"-1", "0.5", "10"})
      (['site1', 'site9', 'site10'], ['-1', '0.5', '10'])
    """
    if all(NUMBER.fullmatch(word) for word in words):
        return sorted(words, key=lambda word: (float(word), word))
    return sorted(words, key=lambda word: (by_number(word), word))


def cells_of(sheets: Sequence[Sheet], name: str) -> list[Cell]:
    """The cells of a column of all files [N]."""
    return [cell for sheet in sheets for cell in sheet.columns[name]]


def _warn_of_marks(what: str, are: str, words: Sequence[str]) -> None:
    """Warns of a word that may say that a value is missing."""
    marks = [word for word in words if word.lower() in MARKS]
    if marks:
        warn(
            f"{what} has the word {marks[0]!r}, which is one of its {are}: if it says that a value "
            f"is missing, give --missing={marks[0]}"
        )


def warn_of_words(name: str, words: Mapping[str, Mapping[str, int]]) -> None:
    """Warns of sites whose words of a category are those of no other site.

    Args:
      name: of the column.
      words: that each site has, and how often.
    """
    counts = Counter(word for some in words.values() for word in some)
    apart = [
        site for site, some in words.items() if some and all(counts[word] == 1 for word in some)
    ]
    if len(words) > 1 and apart:
        some = ", ".join(f"{word!r:.40}" for word in sorted(words[apart[0]])[:3])
        warn(
            f"{len(apart)} of {len(words)} sites have words in column {name} that no other site "
            f"has, such as {apart[0]} ({some}): write them alike where they mean the same"
        )


def warn_of_classes(name: str, words: Mapping[str, Mapping[str, int]]) -> None:
    """Warns of sites without a class of which sites of their size have some rows.

    Args:
      name: of the target.
      words: that each site has, and how often. Of sites that share no word `warn_of_words` says so.
    """
    holders = Counter(word for some in words.values() for word in some)
    alike = {site: w for site, w in words.items() if any(holders[word] > 1 for word in w)}
    total = sum(map(Counter, alike.values()), Counter[str]())
    lacks = []
    for site, some in alike.items():
        share = sum(some.values()) / total.total()
        without = [word for word in total if word not in some and share * total[word] >= EXPECTED]
        if without:
            lacks.append(f"{site} ({', '.join(without[:3])})")
    if lacks:
        warn(
            f"{len(lacks)} of {len(words)} sites have no row of a class of {name}, such as "
            f"{', '.join(lacks[:3])}: if they call it otherwise, write it alike; alone they cannot "
            "learn it"
        )


def warn_of_case(what: str, words: Sequence[str]) -> None:
    """Warns of words that differ in capitals alone.

    Args:
      what: has these words, for the message.
      words: different ones.
    """
    same: dict[str, str] = {}
    for word in words:
        other = same.setdefault(word.casefold(), word)
        if other != word:
            warn(
                f"{what} {other!r:.40} and {word!r:.40}, which count as different: write them "
                "alike if they are the same"
            )
            return
