"""What a table says of each of its columns without a row: counts, sums and words.

A schema of several tables is made of these alone (`fit.combine`), whether one program reads all
files or each site tells its own.
"""

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from jaxfl.core.errors import InputError, check
from jaxfl.data.table.read import COMMA, NUMBER, THOUSANDS, Cell, Sheet, without, word_of
from jaxfl.data.table.schema import MISSING, check_complete, numbers

ROWS = 10  # from which on it is no chance that all words differ
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
    order: str | None = None  # numbers or dates that order the rows of a recording
    weight: str | None = None  # holds what a row weighs in losses and scores
    group: str | None = None  # names what belongs together, such as the patient of a row
    split: str | None = None  # says of each row whether it is for train or test
    scale: bool = True  # whether numbers become (x - mean) / deviation; as they are if not
    event: str | None = None  # whether the event happened at the target, which is then a time

    def __post_init__(self) -> None:
        for name in ("leave_out", "categories", "missing"):
            words = getattr(self, name)
            check(
                isinstance(words, tuple) and all(isinstance(word, str) for word in words),
                f"{name} is {words!r:.60}: expected a tuple of words, such as ('a', 'b')",
            )

    @property
    def absent(self) -> tuple[str, ...]:
        """All cells that hold no value."""
        return absent_words(self.missing)

    @property
    def roles(self) -> dict[str, str]:
        """The columns that models do not see, with what they are for."""
        named = {
            self.weight: "weighs the rows in losses and scores",
            self.split: "says which rows test",
            self.order: "orders the rows of a recording",
            self.series: "names the recording",
            self.id: "names the rows",
            self.owner: "names the site",
            self.group: "names what is whole in training, validation or test",
            self.event: "1 where the event happened at the time, else 0",
        }
        found = dict.fromkeys(self.leave_out, "left out")
        return found | {name: role for name, role in named.items() if name is not None}


def absent_words(missing: Sequence[str]) -> tuple[str, ...]:
    """All cells that hold no value, these among them; -9 is one if -9.0 is."""
    return (*MISSING, *missing, *map(word_of, missing))


class Sums(NamedTuple):
    """Of the numbers of a column."""

    count: int
    mean: float = 0.0
    squares: float = 0.0  # the sum of the squared distances from the mean

    def plus(self, other: "Sums") -> "Sums":
        """Of the numbers of both columns (Chan, Golub and LeVeque, 1983, equation 2.1)."""
        count = self.count + other.count
        if not count:
            return self
        apart = other.mean - self.mean
        return Sums(
            count,
            self.mean + apart * other.count / count,
            self.squares + other.squares + apart**2 * self.count * other.count / count,
        )

    @property
    def scaling(self) -> tuple[float, float]:
        """Mean and standard deviation; 1 where the numbers differ by rounding alone."""
        variance = self.squares / max(self.count, 1)
        # As scikit-learn's `StandardScaler` has it.
        least = np.finfo(np.float64).eps * self.count
        constant = variance <= least * variance + (least * self.mean) ** 2
        return self.mean, 1.0 if constant else math.sqrt(variance)


@dataclass(frozen=True)
class Summary:
    """What the cells of one column of one table are."""

    rows: int
    dates: int  # values that are dates or times
    texts: int  # values that are no numbers, also not with commas
    plain: bool  # whether all values are numbers with a decimal point
    words: dict[str, int] | None  # how often each word is there; None if a site keeps them back
    values: int  # cells that are not missing
    places: bool = False  # whether the values are different whole numbers that may name the rows
    sums: Sums | None = None  # of the values, if they are numbers
    problem: str = ""  # why they are not
    date: str = ""  # the first one


def summary_of(sheet: Sheet, choices: Choices) -> dict[str, Summary]:
    """The summary of each column of a table that models see, and of the target.

    Raises:
      InputError: the target is missing somewhere.
    """
    sheet = without(sheet, choices.absent)
    names = [name for name in sheet.columns if name not in choices.roles]
    if choices.target in names:
        check_complete(
            "target", choices.target, sheet, "remove these rows, since they teach nothing"
        )
    return {name: _summary(name, sheet, choices) for name in names}


def _summary(name: str, sheet: Sheet, choices: Choices) -> Summary:
    cells = sheet.columns[name]
    values = [cell for cell in cells if cell is not None]
    others = [value for value in values if not NUMBER.fullmatch(value)]
    dates = list(filter(DATE.fullmatch, values))
    texts = [one for one in others if not (COMMA.fullmatch(one) or THOUSANDS[","].fullmatch(one))]
    otherwise = (
        f", name a word for that (--missing WORD), or take all for words (--categories {name})"
    )
    sums, problem = None, ""
    try:
        wanted = name == choices.target and choices.task == "regression"
        sums = _sums(numbers(name, sheet, "" if wanted else otherwise))
    except InputError as error:
        problem = str(error)
    return Summary(
        rows=len(cells),
        dates=len(dates),
        texts=len(texts),
        plain=not others,
        words=dict(Counter(map(word_of, values))),
        values=len(values),
        places=len(cells) >= ROWS and _are_places(name, cells),
        sums=sums,
        problem=problem,
        date="".join(dates[:1]),
    )


def _sums(values: np.ndarray) -> Sums:
    known = values[~np.isnan(values)]
    if not known.size:
        return Sums(0)
    if known.min() == known.max():
        # The mean of equal numbers may differ from them by rounding.
        return Sums(known.size, float(known[0]))
    mean = float(known.mean())
    return Sums(known.size, mean, float(np.sum((known - mean) ** 2)))


def _are_places(name: str, cells: Sequence[Cell]) -> bool:
    """Whether cells are different whole numbers, one after another or called an id."""
    places = [int(cell) for cell in cells if cell and cell.isascii() and cell.isdigit()]
    if len(places) < len(cells) or len(set(cells)) < len(cells):
        return False
    return max(places) - min(places) == len(places) - 1 or name.lower().endswith("id")
