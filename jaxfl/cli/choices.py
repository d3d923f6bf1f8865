"""The commands about data sets, and about the publications of methods."""

import os

from rich.console import Console
from rich.table import Table
from rich.text import Text

from jaxfl.algorithms import ALGORITHMS
from jaxfl.cli.command_options import Cite, Describe
from jaxfl.core import papers
from jaxfl.core.errors import check, check_name
from jaxfl.core.facts import facts_of
from jaxfl.data.describe import PARTS, describe_each_client
from jaxfl.data.source import Source
from jaxfl.experiment.config import resolve_data, resolve_model
from jaxfl.experiment.config.fields import DataOptions
from jaxfl.experiment.config.hints import check_fields, part
from jaxfl.experiment.config.training_fields import ModelOptions
from jaxfl.experiment.session.gather import assign, describe_clients
from jaxfl.experiment.session.make_model import describe_sizes, sizes_of
from jaxfl.experiment.store import files
from jaxfl.experiment.tables.formats import csv_text
from jaxfl.experiment.tables.heading import data_line

MEANING = (
    "size imbalance: Gini coefficient of the clients' numbers of examples; label skew: how far the "
    "labels of a client are from those of all (total variation, from 0 to 1), mean over clients"
)
CLIENTS = 40  # at most, that have a row
LABELS = 4  # at most, that have a column


def describe(command: Describe, console: Console) -> None:
    """`jaxfl describe`."""
    from jaxfl.experiment.pictures.drawing import render
    from jaxfl.experiment.pictures.partition_picture import draw_partition

    if command.out:
        check(
            not os.path.lexists(command.out),
            f"{command.out} exists: name another file, or remove it",
        )
        files.check_writable(command.out)
        format = command.out.suffix.removeprefix(".") or "png"
        check_name("format", format, (*files.PICTURE_FORMATS, "csv"))
    request = part(command, DataOptions)
    check_fields(request)
    options, source = resolve_data(request)
    model = part(command, ModelOptions)
    check_fields(model)
    model = resolve_model(model, source)
    sizes = sizes_of(model, source)
    parts = assign(options, source)
    table = Table(
        "",
        "",
        title=f"{options.dataset}, {options.partition}",
        title_justify="left",
        show_header=False,
        caption=MEANING,
        caption_justify="left",
    )
    for name, text in describe_clients(options, source, parts).items():
        table.add_row(name, text)
    for name, size in sizes.items():
        table.add_row("model", f"{name}, {describe_sizes(size)}")
    if options.folds > 1:
        text = f"{options.folds}, each example tests once; the counts are of fold 0"
        table.add_row("folds", text)
    test_fraction = options.test_fraction if options.test == "own" else 0.0
    fold = (0, options.folds) if options.folds > 1 else None
    rows = describe_each_client(
        source, parts, val=options.val, test_fraction=test_fraction, split=options.split, fold=fold
    )
    if command.out:
        # Before the table, which does not stand above the line of an error.
        files.create(command.out.parent, (), overwrite=True)
        if format == "csv":
            files.write_file(command.out, csv_text(list(rows), list(rows.values())))
        else:
            figure = draw_partition(source, parts, data_line(options))
            files.write_file(command.out, render(figure, format))
    console.print(table)
    console.print(table_of_clients(rows, source, is_own=bool(test_fraction)))
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
    kind = "events" if source.survival else "labels"
    names = (
        [kind]
        if source.survival
        else source.class_names or [str(label) for label in range(source.classes)]
    )
    few = 0 < len(names) <= LABELS
    about = f"{title}; {kind}: {' / '.join(parts)}" if few else title
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
