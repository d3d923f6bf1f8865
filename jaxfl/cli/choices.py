"""The commands about data sets, and about the publications of methods."""

import dataclasses
import os

from rich.console import Console
from rich.table import Table

from jaxfl.algorithms import ALGORITHMS
from jaxfl.cli.options import Cite, Describe, Prepare
from jaxfl.core import papers
from jaxfl.core.errors import InputError, check, check_name
from jaxfl.core.facts import facts_of
from jaxfl.data.published.prepare import prepare as prepare_data
from jaxfl.data.sources import SOURCES, data_dir
from jaxfl.experiment.config import DataOptions, resolve_data
from jaxfl.experiment.config.fields import PICTURE_FORMATS
from jaxfl.experiment.config.hints import check_fields
from jaxfl.experiment.session.clients import assign, describe_clients
from jaxfl.experiment.store import files
from jaxfl.experiment.tables.heading import data_line

DATA = [field.name for field in dataclasses.fields(DataOptions)]


def prepare(command: Prepare, console: Console) -> None:
    """`jaxfl prepare`."""
    check(
        command.name not in SOURCES,
        f"{command.name} is embedded: --dataset {command.name} needs no preparation",
    )
    folder = data_dir(command.data_dir)
    if folder is None:
        raise InputError("no folder to write to: give --data-dir DIR or set JAXFL_DATA_DIR")
    file = prepare_data(
        command.name,
        folder,
        manual_dir=command.tfds_manual_dir,
        words=command.words,
        length=command.length,
    )
    console.print(
        f"{file}: --dataset {file.stem} --data-dir {folder}", markup=False, highlight=False
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
        check_name("picture format", format, PICTURE_FORMATS)
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
    if command.out:
        # Before the table, which does not stand above the line of an error.
        files.create(command.out.parent, (), overwrite=True)
        figure = draw_partition(source, parts, data_line(options))
        files.write_file(command.out, render(figure, format))
    console.print(table)
    if command.out:
        console.print(f"written to {command.out}", markup=False, highlight=False)


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
