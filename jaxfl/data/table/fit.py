"""From the rows of all sites to a schema: what each column is, and the numbers that scale it."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from jaxfl.core.errors import check, warn
from jaxfl.data.table.read import (
    COMMA,
    NUMBER,
    THOUSANDS,
    Cell,
    Sheet,
    check_column,
    without,
    word_of,
)
from jaxfl.data.table.schema import MISSING, Column, Schema, Target, check_complete, numbers

WORDS = 100  # of a category at most
CLASSES = 1000  # of a target at most
FEW = 20  # values up to which whole numbers of a target are classes
ROWS = 10  # from which on it is no chance that all words differ
# Words of a category that may say that a value is missing, or infinite.
MARKS = {"-", "--", "na", "Na", "n.a.", "None", "Inf", "-Inf", "inf", "-inf"}
DATE = re.compile(
    r"(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4})([T ].*)?|\d{1,2}:\d{2}(:.*)?",
    re.ASCII,
)
Task = Literal["classification", "regression"]


@dataclass(frozen=True)
class Choices:
    """What the user says of the columns."""

    target: str  # to predict
    id: str | None = None  # names the rows
    owner: str | None = None  # names the site of a row
    leave_out: tuple[str, ...] = ()  # not for models
    categories: tuple[str, ...] = ()  # words, though they may look like numbers
    missing: tuple[str, ...] = ()  # further cells that hold no value
    task: Task | None = None  # whether the target is classes or numbers; by its values if None
    steps: int | None = None  # of a window of rows; None where each row is an example
    stride: int | None = None  # from one window to the next; as many as `steps` if None
    series: str | None = None  # names the recording of a row, beside the site
    weight: str | None = None  # holds what a row weighs in losses and scores

    @property
    def absent(self) -> tuple[str, ...]:
        """All cells that hold no value; -9 is one if -9.0 is."""
        return (*MISSING, *self.missing, *map(word_of, self.missing))


class Fit(NamedTuple):
    """A schema, and what it says of each column in words."""

    schema: Schema
    words: dict[str, str]


def fit(sheets: Sequence[Sheet], choices: Choices) -> Fit:
    """What each column of the files becomes.

    Means and standard deviations are those of scikit-learn's `StandardScaler` over the rows of all
    sites, site after site: they follow from sums over the sites.

    Args:
      sheets: the files, with the same columns.
      choices: what the user says of the columns.

    Raises:
      InputError: there is no such column, a column is of no use to a model as it is, or the target
        is missing somewhere or the same everywhere.
    """
    named = {
        "--target": [choices.target],
        "--id": [choices.id] if choices.id is not None else [],
        "--owner": [choices.owner] if choices.owner is not None else [],
        "--series": [choices.series] if choices.series is not None else [],
        "--weight": [choices.weight] if choices.weight is not None else [],
        "--leave-out": choices.leave_out,
        "--categories": choices.categories,
    }
    sheets = [without(sheet, choices.absent) for sheet in sheets]
    names_of_all = dict.fromkeys(_column_names(sheets))
    for option, names in named.items():
        for name in names:
            check_column(option, name, names_of_all)
            check(
                name != choices.target or option in ("--target", "--categories"),
                f"{option} {name} is the target: name another column",
            )
    words: dict[str, str] = {}
    unused: list[str] = []
    columns: list[Column] = []
    roles = {
        **dict.fromkeys(choices.leave_out, "left out"),
        choices.weight: "weighs the rows in losses and scores",
        choices.series: "names the recording",
        choices.id: "names the rows",
        choices.owner: "names the site",
    }
    for name in _column_names(sheets):
        if name == choices.target:
            continue
        if name in roles:
            words[name] = f"{roles[name]}; models do not see it"
            unused += [name] if name != choices.id else []
            continue
        column, words[name] = _column(name, sheets, name in choices.categories)
        if column is None:
            unused.append(name)
        else:
            columns.append(column)
    check(
        len(columns) > 0, f"no column is left to predict {choices.target} from: give more columns"
    )
    target, words[choices.target] = _target(sheets, choices)
    recording = (choices.owner, choices.series) if choices.steps else ()
    schema = Schema(
        target,
        tuple(columns),
        choices.id or "",
        tuple(unused),
        choices.absent,
        choices.steps or 0,
        choices.stride or choices.steps or 0,
        tuple(name for name in recording if name is not None),
    )
    twice = [name for name, count in Counter(schema.features).items() if count > 1]
    check(
        not twice,
        f"two features would have the name {', '.join(twice[:1])!r:.60}: give one of the columns "
        "that they come from another name",
    )
    return Fit(schema, words)


def _column_names(sheets: Sequence[Sheet]) -> list[str]:
    """The columns of all files; only those that are left out may be in some files alone."""
    return list(dict.fromkeys(name for sheet in sheets for name in sheet.columns))


def _column(name: str, sheets: Sequence[Sheet], is_category: bool) -> tuple[Column | None, str]:
    """What a column becomes, and that in words; None if models have nothing to see in it."""
    cells = cells_of(sheets, name)
    values = [cell for cell in cells if cell is not None]
    distinct = set(map(word_of, values))
    absent = len(cells) - len(values)
    if not values:
        return None, "left out: missing in all rows"
    if len(distinct) == 1 and not absent:
        return None, f"left out: {values[0]!r:.40} in all rows"
    share = f"{absent / len(cells):.0%}" if absent >= len(cells) / 200 else f"{absent} rows"
    columns = None if is_category else _numbers(name, sheets, values)
    if columns is not None:
        mean, deviation = _scaling(columns)
        _warn_of_number(name, sheets)
        text = f"number: (x - {mean:.4g}) / {deviation:.4g}"
        if absent:
            text += f"; {share} missing: the mean, and a feature that says so"
        return Column(name, "number", mean, deviation, indicator=absent > 0), text
    known = in_order(distinct)
    check(
        len(known) <= WORDS and (is_category or len(known) < len(cells) or len(cells) < ROWS),
        f"column {name} holds {len(known):,} different texts in {len(cells):,} rows "
        f"({known[0]!r:.30}, ...), too many for a category: if it names the rows, give "
        f"--id {name}, else leave it out (--leave-out {name}) or put the texts into at most "
        f"{WORDS} groups",
    )
    warn_of_case(f"column {name} has the words", known)
    marks = [word for word in known if word in MARKS]
    if marks:
        warn(
            f"column {name} has the word {marks[0]!r}, which models see as one of its categories: "
            f"if it says that a value is missing, give --missing={marks[0]}"
        )
    text = f"category: {', '.join(known[:6])}"
    if len(known) > 6:
        text += f" and {len(known) - 6} more"
    if absent:
        text += f"; {share} missing: a category of their own"
    return Column(name, "category", words=tuple(known), indicator=absent > 0), text


def _numbers(name: str, sheets: Sequence[Sheet], values: list[str]) -> list[np.ndarray] | None:
    """The numbers of a column in each file; None if it holds no numbers.

    Raises:
      InputError: it holds dates, or both numbers and text.
    """
    others = [value for value in values if not NUMBER.fullmatch(value)]
    dates = list(filter(DATE.fullmatch, values))
    check(
        2 * len(dates) <= len(values) or not others,
        f"column {name} holds dates or times ({', '.join(dates[:1])}): make numbers of them, "
        f"such as the days since the first one, or leave the column out (--leave-out {name})",
    )
    words = [one for one in others if not (COMMA.fullmatch(one) or THOUSANDS[","].fullmatch(one))]
    if 2 * len(words) > len(values):
        return None
    otherwise = (
        f", name a word for that (--missing WORD), or take all for words (--categories {name})"
    )
    return [numbers(name, sheet, otherwise) for sheet in sheets]


def _scaling(columns: Sequence[np.ndarray]) -> tuple[float, float]:
    """Mean and standard deviation of the numbers of all sites."""
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler()
    for values in columns:
        if not np.isnan(values).all():
            scaler.partial_fit(values[~np.isnan(values), None])
    mean, deviation = np.asarray(scaler.mean_), np.asarray(scaler.scale_)
    return float(mean[0]), float(deviation[0])


def _target(sheets: Sequence[Sheet], choices: Choices) -> tuple[Target, str]:
    """What the target becomes, and that in words.

    Raises:
      InputError: it is missing somewhere, the same everywhere, or neither classes nor numbers.
    """
    name = choices.target
    mend = "remove these rows, since they teach nothing"
    values = [cell for sheet in sheets for cell in check_complete("target", name, sheet, mend)]
    counts = Counter(map(word_of, values))
    check(
        len(counts) > 1,
        f"the target {name} is {values[0]!r:.40} in all {len(values)} rows: expected two classes "
        "or more, or numbers",
    )
    columns = None
    if choices.task is None:
        few = len(counts) <= FEW and all(re.fullmatch(r"[+-]?\d+", word) for word in counts)
        is_number = name not in choices.categories and not few
        columns = _numbers(name, sheets, values) if is_number else None
    elif choices.task == "regression":
        columns = [numbers(name, sheet) for sheet in sheets]
    if columns is not None:
        mean, deviation = _scaling(columns)
        return Target(name, (), mean, deviation), (
            f"target, numbers: (y - {mean:.4g}) / {deviation:.4g}, so that an RMSE of 1 is "
            f"{deviation:.4g}"
        )
    check(
        len(counts) <= CLASSES and (2 * len(counts) <= len(values) or len(values) < ROWS),
        f"the target {name} has {len(counts):,} classes in {len(values):,} rows: expected fewer, "
        "or numbers (--task regression)",
    )
    classes = in_order(counts)
    warn_of_case(f"the target {name} has the classes", classes)
    shown = [f"{word} ({counts[word]:,})" for word in classes[:8]]
    more = f" and {len(classes) - 8} more" if len(classes) > 8 else ""
    return Target(name, tuple(classes)), f"target, classes: {', '.join(shown)}{more}"


def in_order(words: set[str] | dict[str, int]) -> list[str]:
    """Words in the order of their letters, and of the numbers in them.

    Example:
      >>> in_order({"site10", "site9", "site1"}), in_order({"-1", "0.5", "10"})
      (['site1', 'site9', 'site10'], ['-1', '0.5', '10'])
    """
    if all(NUMBER.fullmatch(word) for word in words):
        return sorted(words, key=lambda word: (float(word), word))
    # The pieces are letters and digits in turn.
    pieces = {word: re.split(r"(\d+)", word, flags=re.ASCII) for word in words}
    return sorted(
        words,
        key=lambda word: (
            [float(piece) if place % 2 else piece for place, piece in enumerate(pieces[word])],
            word,
        ),
    )


def cells_of(sheets: Sequence[Sheet], name: str) -> list[Cell]:
    """The cells of a column of all files [N]."""
    return [cell for sheet in sheets for cell in sheet.columns[name]]


def _warn_of_number(name: str, sheets: Sequence[Sheet]) -> None:
    """Warns of numbers that may name the rows of each file."""
    files = [sheet.columns[name] for sheet in sheets if len(sheet.lines) >= ROWS]
    if files and all(_are_places(name, cells) for cells in files):
        warn(
            f"column {name} holds another whole number in each row: if it names the rows, give "
            f"--id {name}, since models learn nothing from it"
        )


def _are_places(name: str, cells: list[Cell]) -> bool:
    """Whether cells are different whole numbers, one after another or called an id."""
    places = [int(cell) for cell in cells if cell and cell.isascii() and cell.isdigit()]
    if len(places) < len(cells) or len(set(cells)) < len(cells):
        return False
    return max(places) - min(places) == len(places) - 1 or name.lower().endswith("id")


def warn_of_words(schema: Schema, sheets: Sequence[Sheet], owners: Sequence[str]) -> None:
    """Warns of sites whose words of a category are those of no other site.

    Args:
      schema: says which columns are categories.
      sheets: the files.
      owners: the site of each row [N].
    """
    classes = Column(schema.target.name, "category", words=schema.target.classes)
    for column in (*schema.columns, classes):
        if not column.words:
            continue
        words: dict[str, set[str]] = {}
        for owner, cell in zip(owners, cells_of(sheets, column.name), strict=True):
            if cell is not None:
                words.setdefault(owner, set()).add(word_of(cell))
        counts = Counter(word for some in words.values() for word in some)
        apart = [site for site, some in words.items() if all(counts[word] == 1 for word in some)]
        if len(words) > 1 and apart:
            warn(
                f"{len(apart)} of {len(words)} sites have words in column {column.name} that no "
                f"other site has, such as {apart[0]} ({', '.join(sorted(words[apart[0]])[:3])}): "
                "write them alike where they mean the same"
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
            "and the test part, scores are too good"
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
