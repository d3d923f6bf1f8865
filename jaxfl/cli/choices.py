"""The commands about data sets, and about the publications of methods."""

import dataclasses
import os
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from jaxfl.algorithms import ALGORITHMS
from jaxfl.cli.options import Cite, CsvFileOptions, CsvOptions, Describe, Prepare
from jaxfl.cli.output import csv_text
from jaxfl.core import papers
from jaxfl.core.errors import InputError, check, check_name
from jaxfl.core.facts import facts_of
from jaxfl.data.describe import PARTS, describe_each_client
from jaxfl.data.published.prepare import prepare as prepare_data
from jaxfl.data.source import Source
from jaxfl.data.sources import SOURCES, data_dir
from jaxfl.data.table.fit import Choices
from jaxfl.data.table.prepare import prepare_csv
from jaxfl.experiment.config import DataOptions, resolve_data
from jaxfl.experiment.config.fields import PICTURE_FORMATS
from jaxfl.experiment.config.hints import check_fields, option
from jaxfl.experiment.session.clients import assign, describe_clients
from jaxfl.experiment.store import files
from jaxfl.experiment.tables.heading import data_line

DATA = [field.name for field in dataclasses.fields(DataOptions)]
# In place of the name of a data set: the user's own files.
CSV, WINDOWS = "csv", "windows"
SHOWN = 12  # sites whose sizes are told
CLIENTS = 40  # at most, that have a row
LABELS = 4  # at most, that have a column


def prepare(command: Prepare, console: Console) -> None:
    """`jaxfl prepare`."""
    check(
        command.data not in SOURCES,
        f"{command.data} is embedded: --dataset {command.data} needs no preparation",
    )
    folder = data_dir(command.data_dir)
    if folder is None:
        raise InputError("no folder to write to: give --data-dir DIR or set JAXFL_DATA_DIR")
    if command.data in (CSV, WINDOWS):
        return prepare_table(command, folder, console)
    groups = (CsvOptions, CsvFileOptions)
    of_csv = [field.name for group in groups for field in dataclasses.fields(group)]
    default = Prepare(data=command.data)
    given = [
        name for name in ("files", *of_csv) if getattr(command, name) != getattr(default, name)
    ]
    check(
        not given,
        f"{' '.join(option(name) if name != 'files' else 'FILE' for name in given)}: this is for "
        f"jaxfl prepare {CSV} and {WINDOWS}; leave it out, or write one of the two in place of "
        f"{command.data}",
    )
    file = prepare_data(
        command.data,
        folder,
        manual_dir=command.tfds_manual_dir,
        words=command.words,
        length=command.length,
    )
    console.print(
        f"{file}: --dataset {file.stem} --data-dir {folder}", markup=False, highlight=False
    )


def prepare_table(command: Prepare, folder: Path, console: Console) -> None:
    """`jaxfl prepare csv` and `jaxfl prepare windows`.

    Args:
      command: with the files.
      folder: of the data sets.
      console: where to say what has become of the columns.
    """
    default = Prepare(data=command.data)
    others = ("tfds_manual_dir", "words", "length")
    given = [option(name) for name in others if getattr(command, name) != getattr(default, name)]
    check(not given, f"{' '.join(given)}: not for jaxfl prepare {command.data}, leave it out")
    if command.target is None:
        raise InputError(
            f"jaxfl prepare {command.data} needs --target COLUMN, the column to predict"
        )
    if command.data == WINDOWS:
        check(command.steps is not None, f"jaxfl prepare {WINDOWS} needs --steps, rows of a window")
    else:
        of_windows = ("steps", "stride", "series")
        given = [option(name) for name in of_windows if getattr(command, name) is not None]
        check(
            not given,
            f"{' '.join(given)}: this is for jaxfl prepare {WINDOWS}; leave it out, or write "
            f"{WINDOWS} in place of {CSV}",
        )
    choices = Choices(
        command.target,
        command.id,
        command.owner,
        command.leave_out,
        command.categories,
        command.missing,
        command.task,
        command.steps,
        command.stride,
        command.series,
    )
    prepared = prepare_csv(
        command.files,
        folder,
        choices,
        name=command.name,
        columns=command.columns,
        encoding=command.encoding,
        decimal=command.decimal,
        overwrite=command.overwrite,
    )
    rows = sum(prepared.sites.values())
    sites = ", ".join(f"{site} {count:,}" for site, count in list(prepared.sites.items())[:SHOWN])
    more = f" and {len(prepared.sites) - SHOWN:,} more" if len(prepared.sites) > SHOWN else ""
    of_window = "" if command.steps is None else f" at each of {command.steps} steps"
    table = Table("column", "becomes")
    for name, words in prepared.columns.items():
        table.add_row(Text(name), Text(words))
    file = prepared.file
    console.print(
        f"{rows:,} {'rows' if command.steps is None else 'windows'} of {len(prepared.sites):,} "
        f"sites: {sites}{more}",
        highlight=False,
        markup=False,
    )
    console.print(table)
    console.print(
        f"{len(prepared.schema.features)} features{of_window}. Means and standard deviations are "
        "those of all rows, also of those that a run tests on: they follow from each site's "
        "number, sum and sum of squares, which a federation can add up without showing a row.",
        highlight=False,
        markup=False,
    )
    console.print(
        f"written to {file} and {file.with_suffix('.json').name}: --dataset {file.stem} "
        f"--data-dir {folder}",
        markup=False,
        highlight=False,
    )


def describe(command: Describe, console: Console) -> None:
    """`jaxfl describe`."""
    from jaxfl.experiment.pictures.drawing import render
    from jaxfl.experiment.pictures.partition import draw_partition

    if command.out:
        check(
            not os.path.lexists(command.out),
            f"{command.out} exists: name another file, or remove it",
        )
        files.check_writable(command.out)
        format = command.out.suffix.removeprefix(".") or "png"
        check_name("format", format, (*PICTURE_FORMATS, "csv"))
    request = DataOptions(**{name: getattr(command, name) for name in DATA})
    check_fields(request)
    options, source = resolve_data(request)
    parts = assign(options, source)
    table = Table(
        "",
        "",
        title=f"{options.dataset}, {options.partition}",
        title_justify="left",
        show_header=False,
    )
    for name, text in describe_clients(options, source, parts).items():
        table.add_row(name, text)
    own = options.own if options.test == "own" else 0.0
    rows = describe_each_client(source, parts, val=options.val, own=own, split=options.split)
    if command.out:
        # Before the table, which does not stand above the line of an error.
        files.create(command.out.parent, (), overwrite=True)
        if format == "csv":
            files.write_file(command.out, csv_text(list(rows), list(rows.values())))
        else:
            figure = draw_partition(source, parts, data_line(options))
            files.write_file(command.out, render(figure, format))
    console.print(table)
    console.print(table_of_clients(rows, source, is_own=bool(own)))
    if command.out:
        console.print(f"written to {command.out}", markup=False, highlight=False)


def table_of_clients(rows: dict[str, list], source: Source, is_own: bool) -> Table:
    """A row for each client, of the first ones if there are many.

    Args:
      rows: of `data.describe.describe_each_client`.
      source: the data set.
      is_own: whether clients are tested on a part of their own examples.
    """
    parts = PARTS if is_own else PARTS[:2]
    count = len(rows["client"])
    title = f"the first {CLIENTS} of {count:,} clients" if count > CLIENTS else "clients"
    names = source.class_names or [str(label) for label in range(source.classes)]
    few = 0 < len(names) <= LABELS
    about = f"{title}; labels: {' / '.join(parts)}" if few else title
    table = Table(title=about, title_justify="left")
    for column in ("client", *parts, *(names if few else ["labels"] if source.classes else [])):
        table.add_column(Text(column), justify="left" if column == "client" else "right")
    for place in range(min(count, CLIENTS)):
        cells = [str(rows[column][place]) for column in ("client", *parts)]
        of_labels = [[rows[f"{name} {part}"][place] for part in parts] for name in names]
        if few:
            cells += [" / ".join(map(str, counts)) for counts in of_labels]
        elif source.classes:
            cells.append(str(sum(any(counts) for counts in of_labels)))
        table.add_row(*map(Text, cells))
    return table


def cite(command: Cite, console: Console) -> None:
    """`jaxfl cite`: plain text for a .bib file, with each publication once."""
    for name in command.algorithms:
        check_name("algorithm", name, ALGORITHMS)
    entries = []
    for name in command.algorithms:
        facts = facts_of(ALGORITHMS[name])
        if facts.publication:
            entries.append(papers.bibtex(facts.publication))
        else:
            entries.append(f"% {name} has no publication ({facts.paper}): cite jaxfl")
            entries.append(papers.software())
    for entry in dict.fromkeys(entries or [papers.software()]):
        console.out(entry, highlight=False)
