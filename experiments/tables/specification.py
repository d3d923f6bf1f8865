"""A published table as a file: its rows, its columns, and the published numbers.

A file `PAPER/NAME.toml` below this folder describes the table `PAPER.NAME`. A cell is a run of
jaxfl: the options of the table, of its column and of its row, the later ones first.
"""

import dataclasses
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jaxfl.errors import InputError, check, check_name
from jaxfl.experiment import Config
from jaxfl.experiment.config import preset
from jaxfl.experiment.config.presets import Preset

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Part:
    """What a table, a column or a row says of its cells."""

    preset: str | None = None
    algorithm: str | None = None
    options: dict[str, Any] = field(default_factory=dict)  # of a run
    # hyper-parameters of the method of a row, or method -> hyper-parameters
    hyper: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Column(Part):
    """A column: a setting, or the mean of other columns."""

    name: str = ""
    mean_of: tuple[str, ...] = ()  # names of other columns


@dataclass(frozen=True)
class Row(Part):
    """A row: a method, with what is published of it."""

    name: str = ""
    published: tuple[float | None, ...] = ()  # a number for each column


@dataclass(frozen=True)
class Cell:
    """One run of a table, for one seed."""

    row: Row
    column: Column
    config: Config
    rule: str  # how its score is taken, see `jaxfl.protocols`
    stage: str


@dataclass(frozen=True)
class Table(Part):
    """A published table or figure."""

    name: str = ""  # "pfedgraph.table1"
    title: str = ""
    paper: str = ""
    place: str = ""  # in the paper
    link: str = ""
    unit: str = "%"  # accuracies are shown in percent; otherwise as they are
    note: str = ""  # what the reader must know beside the numbers
    script: str = ""  # the module that draws a figure, if it is more than this table
    columns: tuple[Column, ...] = ()
    rows: tuple[Row, ...] = ()
    first: tuple[str, ...] = ()  # names of the rows to compute first

    def cell(self, row: Row, column: Column, seed: int) -> Cell:
        """The run of a row and a column.

        Raises:
          InputError: the table does not say enough, or no run has such options.
        """
        where = f"{self.name}, {row.name}, {column.name}"
        parts = (self, column, row)
        algorithm = next((p.algorithm for p in reversed(parts) if p.algorithm), None)
        check(algorithm is not None, f"{where}: no algorithm is named")
        chosen = next((p.preset for p in reversed(parts) if p.preset), None)
        base = preset(chosen) if chosen else Preset("", {}, rule="last")
        options = base.options_of(algorithm)
        hyper = dict(base.hyper.get(algorithm, {}))
        for part in parts:
            options = options | part.options
            own = {k: v for k, v in part.hyper.items() if not isinstance(v, dict)}
            hyper |= own | part.hyper.get(algorithm, {})
        try:
            config = Config(**options, algorithm=algorithm, hyper=hyper, seed=seed)
        except (InputError, TypeError) as error:
            raise InputError(f"{where}: {error}") from error
        return Cell(row, column, config, base.rule, base.stage_of(algorithm))

    def cells(self, seed: int) -> list[Cell]:
        """All runs of the table for one seed, the most telling first: a column after the other."""
        urgent = [row for row in self.rows if row.name in self.first]
        later = [row for row in self.rows if row.name not in self.first]
        return [
            self.cell(row, column, seed)
            for rows in (urgent, later)
            for column in self.columns
            for row in rows
            if not column.mean_of
        ]


def names() -> list[str]:
    """The names of all tables: "pfedgraph.table1"."""
    return sorted(f"{file.parent.name}.{file.stem}" for file in FOLDER.glob("*/*.toml"))


def load(name: str) -> Table:
    """A table by its name.

    Raises:
      InputError: there is no such table, or its file is wrong.
    """
    check_name("table", name, names())
    paper, _, stem = name.partition(".")
    file = FOLDER / paper / f"{stem}.toml"
    content = tomllib.loads(file.read_text())
    columns = tuple(_part(Column, found, file) for found in content.pop("columns", []))
    rows = tuple(_part(Row, found, file) for found in content.pop("rows", []))
    table = dataclasses.replace(_part(Table, content, file), name=name, columns=columns, rows=rows)
    known = [column.name for column in columns]
    for row in rows:
        check(
            len(row.published) in (0, len(columns)),
            f"{file}, {row.name}: {len(row.published)} numbers for {len(columns)} columns",
        )
    for column in columns:
        for other in column.mean_of:
            check_name(f"column in {file}", other, known)
    for one in table.first:
        check_name(f"row in {file}", one, [row.name for row in rows])
    return table


def _part(kind: type, content: dict[str, Any], file: Path) -> Any:
    """A part of a table from its entries in the file."""
    fields = {one.name for one in dataclasses.fields(kind)}
    for name in content:
        check_name(f"entry of a {kind.__name__.lower()} in {file}", name, fields)
    content = {k: tuple(v) if isinstance(v, list) else v for k, v in content.items()}
    if "published" in content:
        numbers = [None if value == "" else value for value in content["published"]]
        content["published"] = tuple(numbers)
    return kind(**content)
