"""A published table as a file: its rows, its columns, and the published numbers.

A file `PAPER/NAME.toml` below this folder describes the table `PAPER.NAME`. A cell is a run of
jaxfl: the options of the table, of its column and of its row, the later ones first.
"""

import dataclasses
import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from experiments.tables.measures import MEASURES, OF_WEIGHTS, of_weights
from experiments.tables.results import Result, score
from jaxfl.core.errors import InputError, check, check_name
from jaxfl.experiment import Config
from jaxfl.experiment.config import preset
from jaxfl.experiment.config.effects import idle
from jaxfl.experiment.config.hints import hints, read_field
from jaxfl.experiment.config.presets import Preset

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Part:
    """What a table, a column or a row says of its cells."""

    preset: str | None = None
    algorithm: str | None = None
    # of a run; "" is no value, such as no attack in a row of a table of attacks
    options: dict[str, Any] = field(default_factory=dict)
    # hyper-parameters of the method of a row, or method -> hyper-parameters; "" is no value
    hyper: dict[str, Any] = field(default_factory=dict)
    measure: str | None = None  # the number that is shown, see `measures`; "score" if none is named


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
    also: tuple[float | None, ...] = ()  # numbers of the second source that the table names


@dataclass(frozen=True)
class Cell:
    """One run of a table, for one seed."""

    row: Row
    column: Column
    config: Config
    rule: str  # how its score is taken, see `jaxfl.simulation.scoring`
    stage: str
    measure: str  # see `measures`

    def value(self, result: Result) -> float | None:
        """The number that the table shows of the result of its run; None if there is none."""
        if self.measure in OF_WEIGHTS:
            return of_weights(self.measure, self.config, result)
        number = score(result, self.rule, self.stage)
        return -number if self.measure == "loss" and number is not None else number


@dataclass(frozen=True)
class Table(Part):
    """A published table or figure."""

    name: str = ""  # "pfedgraph.table1"
    title: str = ""
    paper: str = ""
    place: str = ""  # in the paper
    link: str = ""
    also: str = ""  # a second source of published numbers
    unit: str = "%"  # accuracies are shown in percent; otherwise as they are
    digits: int = 1  # after the point
    margin: float = 1.0  # a difference above it is marked
    note: str = ""  # what the reader must know beside the numbers
    script: str = ""  # the module that draws a figure, if it is more than this table
    arguments: str = ""  # of the script, at the paper's protocol
    picture: str = ""  # what it drew at the paper's protocol: a file below docs/
    columns: tuple[Column, ...] = ()
    rows: tuple[Row, ...] = ()
    first: tuple[str, ...] = ()  # names of the rows to compute first

    @property
    def command(self) -> str:
        """What computes the table, or draws the figure, at the paper's protocol."""
        if self.rows:
            return f"python -m experiments.tables {self.name}"
        return f"python -m {self.script} {self.arguments}".strip()

    def cell(self, row: Row, column: Column, seed: int) -> Cell:
        """The run of a row and a column.

        Raises:
          InputError: the table does not say enough, or no run has such options.
        """
        where = f"{self.name}, {row.name}, {column.name}"
        parts = (self, column, row)
        algorithm = next((p.algorithm for p in reversed(parts) if p.algorithm), "")
        check(bool(algorithm), f"{where}: no algorithm is named")
        preset_name = next((p.preset for p in reversed(parts) if p.preset), None)
        base = preset(preset_name) if preset_name else Preset("", {}, rule="last")
        options = base.options_of(algorithm)
        hyper = dict(base.hyper.get(algorithm, {}))
        for part in parts:
            options = options | _values(part.options)
            values = {k: v for k, v in part.hyper.items() if not isinstance(v, dict)}
            hyper |= _values(values | part.hyper.get(algorithm, {}))
        types = hints(Config)
        for name, value in options.items():
            check_name(f"option of {where}", name, types)
            options[name] = read_field(f"{name} of {where}", types[name], value)
        try:
            config = Config(**options, algorithm=algorithm, hyper=hyper, seed=seed)
        except InputError as error:
            raise InputError(f"{where}: {error}") from error
        measure = next((p.measure for p in reversed(parts) if p.measure), "score")
        check_name("measure", measure, MEASURES)
        config = effective(config)
        return Cell(row, column, config, base.rule, base.stage_of(algorithm), measure)

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


def effective(config: Config) -> Config:
    """The config without options that have no effect in it, such as the ratio of no attack.

    A table may give such an option to all of its cells, and a run refuses it.
    """
    defaults = {one.name: one.default for one in dataclasses.fields(config)}
    changes = {name: defaults[name] for name in idle(config)}
    return dataclasses.replace(config, **changes) if changes else config


def names() -> list[str]:
    """The names of all tables, "pfedgraph.table1", in the order of their numbers."""
    stems = [f"{file.parent.name}.{file.stem}" for file in FOLDER.glob("*/*.toml")]
    return sorted(stems, key=lambda name: [part.zfill(4) for part in re.split(r"(\d+)", name)])


def load(name: str) -> Table:
    """A table by its name.

    Raises:
      InputError: there is no such table, or its file is wrong.
    """
    check_name("table", name, names())
    paper, _, stem = name.partition(".")
    file = FOLDER / paper / f"{stem}.toml"
    content = tomllib.loads(file.read_text())
    columns = tuple(_part(Column, fields, file) for fields in content.pop("columns", []))
    rows = tuple(_part(Row, fields, file) for fields in content.pop("rows", []))
    table = dataclasses.replace(_part(Table, content, file), name=name, columns=columns, rows=rows)
    column_names = [column.name for column in columns]
    for row in rows:
        for numbers in (row.published, row.also):
            check(
                len(numbers) in (0, len(columns)),
                f"{file}, {row.name}: {len(numbers)} numbers for {len(columns)} columns",
            )
        check(
            not row.also or bool(table.also),
            f"{file}, {row.name}: numbers of a second source, which the table does not name: "
            'give also = "SOURCE"',
        )
    for column in columns:
        for other in column.mean_of:
            check_name(f"column in {file}", other, column_names)
    for one in table.first:
        check_name(f"row in {file}", one, [row.name for row in rows])
    return table


def _part(kind: type, content: dict[str, Any], file: Path) -> Any:
    """A part of a table from its entries in the file."""
    fields = {one.name for one in dataclasses.fields(kind)}
    for name in content:
        check_name(f"entry of a {kind.__name__.lower()} in {file}", name, fields)
    content = {k: tuple(v) if isinstance(v, list) else v for k, v in content.items()}
    for name in ("published", "also"):
        if isinstance(content.get(name), tuple):
            numbers = [None if value == "" else value for value in content[name]]
            content[name] = tuple(numbers)
    return kind(**content)


def _values(values: dict[str, Any]) -> dict[str, Any]:
    """The values of a file, which cannot hold None: it has "" in its place."""
    return {name: None if value == "" else value for name, value in values.items()}
