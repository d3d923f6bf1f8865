"""What the four papers claim, which cells decide each claim, and what the results say of it.

`claims.toml` has the claims. A claim is about differences between rows of a table, about numbers of
a table, or, of figures that a script draws, told in words.
"""

import dataclasses
import math
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy import stats

from experiments.tables import results, specification
from experiments.tables.measures import of_receivers
from experiments.tables.results import Result
from experiments.tables.specification import Cell, Column, Row, Table
from jaxfl.core.errors import check, check_name

FILE = Path(__file__).parent / "claims.toml"
SEEDS = range(10)  # seeds whose results are looked for
# Rows that each claim to be the best is tested against, beside the two strongest published ones.
ALWAYS = ("local", "fedavg", "fedavg_ft")
LEVEL = 0.95  # of all intervals

Verdict = Literal["agrees", "partly", "not seen", "open"]
Read = Callable[[Row, Column], tuple[Cell, dict[int, Result]]]


@dataclass(frozen=True)
class Claim:
    """A claim of a paper.

    With `above`, the row is above each of these rows in each column. With `best`, these are the two
    strongest published rows of the column, local training, FedAvg and FedAvg-FT. With `than`, the
    row has more in each column than in that one. With `alike`, the difference to each row of
    `above` is at most so many units instead. With `least` and `most`, the row's number lies between
    them. With `verdict`, what a script drew is told: `here` says what was seen. A claim is one of
    these.
    """

    text: str
    table: str
    row: str = ""
    columns: tuple[str, ...] = ()  # all plain ones if none is named
    best: bool = False
    above: tuple[str, ...] = ()
    alike: float | None = None
    than: str = ""  # another column, in which the same row has less
    least: float | None = None
    most: float | None = None
    verdict: Verdict | None = None
    here: str = ""
    why: str = ""  # a cause that is known


class Difference(NamedTuple):
    """What is known of a difference between two rows, in the unit of the table."""

    column: str
    rival: str
    mean: float  # above 0: the row is better
    low: float  # of the interval
    high: float
    seeds: int
    published: float | None

    @property
    def sign(self) -> int:
        """1: above 0, -1: below, 0: the interval includes 0."""
        return int(self.low > 0) - int(self.high < 0)

    @property
    def is_smaller(self) -> bool:
        """Whether the interval leaves out the published difference, and is below it."""
        return self.published is None or self.high < self.published


class Finding(NamedTuple):
    """What the results say of a claim."""

    claim: Claim
    table: Table
    verdict: Verdict
    differences: tuple[Difference, ...]
    numbers: tuple[float, ...]  # of the row, for a claim about numbers
    missing: tuple[Cell, ...]  # cells that it waits for; those of the verdict "open" alone


def load(file: Path = FILE) -> list[Claim]:
    """All claims, in the order of the file.

    Raises:
      InputError: an entry of a claim is unknown, or a claim is not of one kind.
    """
    fields = {one.name for one in dataclasses.fields(Claim)}
    claims = []
    for content in tomllib.loads(file.read_text())["claims"]:
        for name in content:
            check_name(f"entry of a claim in {file.name}", name, fields)
        entries: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in content.items()
        }
        claim = Claim(**entries)
        bounds = claim.least is not None or claim.most is not None
        kinds = (claim.verdict, bounds, claim.than, claim.above, claim.best)
        check(
            sum(map(bool, kinds)) == 1,
            f"{file.name}, {claim.text!r}: expected one of verdict, least or most, than, above and "
            "best",
        )
        claims.append(claim)
    return claims


def find(claim: Claim, folder: Path = results.FOLDER) -> Finding:
    """What the results that are there say of a claim.

    Raises:
      InputError: the claim names a row or column that its table does not have.
    """
    return find_in(specification.load(claim.table), claim, folder)


def find_in(table: Table, claim: Claim, folder: Path) -> Finding:
    """The same of a table that is loaded already."""
    if claim.verdict:
        return Finding(claim, table, claim.verdict, (), (), ())
    read = _reader(table, folder)
    rows = {row.name: row for row in table.rows}
    columns = {column.name: column for column in table.columns}
    for name in (*filter(None, [claim.row]), *claim.above):
        check_name(f"row of {claim.table}", name, rows)
    for name in (*claim.columns, *filter(None, [claim.than])):
        check_name(f"column of {claim.table}", name, columns)
    named = claim.columns or tuple(name for name, one in columns.items() if not one.mean_of)
    row = rows[claim.row]
    if claim.least is not None or claim.most is not None:
        return _of_numbers(claim, table, row, [columns[name] for name in named], read)
    pairs = []
    for name in named:
        if claim.than:
            pairs.append((row, columns[name], row, columns[claim.than]))
            continue
        rivals = claim.above or _rivals(table, row, columns[name])
        pairs += [(row, columns[name], rows[rival], columns[name]) for rival in rivals]
    found, missing = [], []
    for one, column, other, where in pairs:
        difference = _difference(table, one, column, other, where, read)
        if difference is None:
            sides = (one, column), (other, where)
            lacks = [cell for side in sides for cell in _missing(table, *side, read)]
            missing += lacks or _next_seeds(table, sides, read)
        else:
            found.append(difference)
    verdict = _verdict(claim, found, bool(missing), len(named))
    if verdict == "open":
        # More seeds of the differences that decide nothing yet, after the cells that are not there.
        unsure = {(d.column, d.rival) for d in found if not decides(claim, d)}
        missing += [
            cell
            for one, column, other, where in pairs
            if (column.name, other.name) in unsure
            for cell in _next_seeds(table, ((one, column), (other, where)), read)
        ]
    waits = tuple({results.file_of(cell.config): cell for cell in missing}.values())
    return Finding(claim, table, verdict, tuple(found), (), waits if verdict == "open" else ())


def _rivals(table: Table, row: Row, column: Column) -> list[str]:
    """Local training, FedAvg, FedAvg-FT, and the two strongest published rows of a column."""
    place = [one.name for one in table.columns].index(column.name)
    others = [one for one in table.rows if one.name != row.name]
    sign = -1 if table.measure == "loss" else 1
    published = {
        one.name: sign * number
        for one in others
        if one.published and (number := one.published[place]) is not None
    }
    strongest = sorted(published, key=published.__getitem__)[-2:]
    plain = [one.name for one in others if one.algorithm in ALWAYS]
    return list(dict.fromkeys([*strongest[::-1], *plain]))


def _parts(table: Table, column: Column) -> list[Column]:
    """The columns of runs that a column is the mean of; itself if it is one."""
    if not column.mean_of:
        return [column]
    return [one for one in table.columns if one.name in column.mean_of]


def _reader(table: Table, folder: Path) -> Read:
    """(row, column) -> the cell, and seed -> its result, without those that are stale."""
    known: dict[tuple[str, str], tuple[Cell, dict[int, Result]]] = {}

    def read(row: Row, column: Column) -> tuple[Cell, dict[int, Result]]:
        key = row.name, column.name
        if key not in known:
            cell = table.cell(row, column, 0)
            found = results.read_seeds(cell.config, SEEDS, folder)
            fresh = {seed: one for seed, one in found.items() if not one.get("stale", False)}
            known[key] = cell, fresh
        return known[key]

    return read


def _missing(table: Table, row: Row, column: Column, read: Read) -> list[Cell]:
    """The first seed of each run of a row and a column that has no result."""
    each = [read(row, part) for part in _parts(table, column)]
    return [cell for cell, found in each if not found]


def _next_seeds(table: Table, sides: Sequence[tuple[Row, Column]], read: Read) -> list[Cell]:
    """The next seeds that an interval over the seeds of both sides takes: three at the least."""
    cells = []
    for parts in zip(*(_parts(table, column) for _, column in sides), strict=True):
        places = [(row, part) for (row, _), part in zip(sides, parts, strict=True)]
        known = [set(read(*place)[1]) for place in places]
        wanted = range(max(3, len(set.intersection(*known)) + 1))
        cells += [
            table.cell(*place, seed)
            for place, there in zip(places, known, strict=True)
            for seed in wanted
            if seed not in there
        ]
    return cells


def _difference(
    table: Table, row: Row, column: Column, other: Row, where: Column, read: Read
) -> Difference | None:
    """The difference of a row to another one, or of a column to another one; None if cells miss.

    Over seeds that both have, if these are two or more, else over the clients of the one seed. The
    squares of the errors of columns that are averaged add up, with the least degrees of freedom.
    """
    factor = 100 if table.unit == "%" else 1
    means, squares, freedom, seeds = [], [], [], []
    for part, place in zip(_parts(table, column), _parts(table, where), strict=True):
        (cell, ours), (rival, theirs) = read(row, part), read(other, place)
        shared = sorted(set(ours) & set(theirs))
        if not shared:
            return None
        pairs = [(cell.value(ours[seed]), rival.value(theirs[seed])) for seed in shared]
        values = np.array(pairs, float)
        if not np.isfinite(values).all():
            return None
        # Of losses the smaller one is better.
        gaps = (-factor if cell.measure == "loss" else factor) * (values[:, 0] - values[:, 1])
        means.append(gaps.mean())
        if len(shared) == 1:
            gaps = factor * _client_gaps((cell, rival), ours[shared[0]], theirs[shared[0]])
        if len(gaps) < 2:
            return None
        squares.append(gaps.var(ddof=1) / len(gaps))
        freedom.append(len(gaps) - 1)
        seeds.append(len(shared))
    mean = float(np.mean(means))
    half = (
        float(stats.t.ppf((1 + LEVEL) / 2, min(freedom))) * math.sqrt(sum(squares)) / len(squares)
    )
    numbers = [_published(table, one, at) for one, at in ((row, column), (other, where))]
    lead = None
    if numbers[0] is not None and numbers[1] is not None:
        lead = (-1 if table.measure == "loss" else 1) * (numbers[0] - numbers[1])
    rival = other.name if where is column else where.name
    return Difference(column.name, rival, mean, mean - half, mean + half, min(seeds), lead)


def _client_gaps(cells: Sequence[Cell], ours: Result, theirs: Result) -> np.ndarray:
    """What each client of the one seed gains, of those that both results have.

    Of weights each receiver of the last round.
    """
    each = [
        np.array(result["clients"].get(cell.stage) or [], float)
        if cell.measure in ("score", "loss")
        else of_receivers(cell.measure, cell.config, result)
        for cell, result in zip(cells, (ours, theirs), strict=True)
    ]
    if each[0] is None or each[1] is None or each[0].shape != each[1].shape:
        return np.zeros(0)
    gaps = each[0] - each[1]
    return gaps[np.isfinite(gaps)]


def _published(table: Table, row: Row, column: Column) -> float | None:
    """The published number of a row and a column."""
    place = [one.name for one in table.columns].index(column.name)
    return row.published[place] if row.published else None


def decides(claim: Claim, difference: Difference) -> bool:
    """Whether a difference speaks for or against the claim, and more seeds are not needed."""
    if claim.alike is not None:
        inside = max(-difference.low, difference.high) <= claim.alike
        outside = difference.low > claim.alike or difference.high < -claim.alike
        return inside or outside
    return difference.sign != 0 or difference.is_smaller


def _verdict(claim: Claim, found: Sequence[Difference], waits: bool, columns: int) -> Verdict:
    """What differences say of a claim; of several columns each is asked."""
    if claim.alike is not None:
        holds = [max(-d.low, d.high) <= claim.alike for d in found]
    else:
        holds = [d.sign > 0 for d in found]
    against = {
        d.column for d, yes in zip(found, holds, strict=True) if not yes and decides(claim, d)
    }
    unsure = {d.column for d, yes in zip(found, holds, strict=True) if not yes} - against
    # One rival that is not left behind decides a column.
    if len(against) == columns:
        return "not seen"
    if waits or unsure:
        return "open"
    return "partly" if against else "agrees"


def _of_numbers(
    claim: Claim, table: Table, row: Row, columns: Sequence[Column], read: Read
) -> Finding:
    """A claim that numbers lie between two bounds."""
    least = -math.inf if claim.least is None else claim.least
    most = math.inf if claim.most is None else claim.most
    numbers, missing = [], []
    for column in columns:
        cell, found = read(row, column)
        values = [cell.value(one) for one in found.values()]
        known = [value for value in values if value is not None]
        missing += [] if known else [cell]
        numbers += [float(np.mean(known))] if known else []
    inside = [least <= number <= most for number in numbers]
    check(bool(columns), f"a claim about {table.name} names no column")
    if missing:
        verdict: Verdict = "open"
    else:
        verdict = "agrees" if all(inside) else "partly" if any(inside) else "not seen"
    return Finding(claim, table, verdict, (), tuple(numbers), tuple(missing))
