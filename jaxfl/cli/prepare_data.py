"""`jaxfl prepare`: published data sets, and one's own CSV files, series, texts and images."""

import dataclasses
import os
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from jaxfl.cli.command_options import (
    CsvFileOptions,
    CsvOptions,
    ImageOptions,
    OwnOptions,
    Prepare,
    PublishedOptions,
    TextOptions,
    WindowOptions,
)
from jaxfl.core.errors import InputError, check
from jaxfl.data.describe import describe_csv
from jaxfl.data.image_folder import prepare_images
from jaxfl.data.published.prepare_published import prepare as prepare_data
from jaxfl.data.published.recipes import file_stem
from jaxfl.data.sources import SOURCES, data_dir
from jaxfl.data.table.prepare import prepare_csv
from jaxfl.data.table.summary import Choices
from jaxfl.data.text_files import prepare_text
from jaxfl.experiment.config.composite import option

# In place of the name of a data set: the user's own files, and the options that each takes.
CSV, WINDOWS, TEXT, IMAGES = "csv", "windows", "text", "images"


def _names(*groups: type) -> list[str]:
    return [field.name for group in groups for field in dataclasses.fields(group)]


TABLE = _names(OwnOptions, CsvOptions, CsvFileOptions)
OPTIONS: dict[str, list[str]] = {
    CSV: TABLE,
    WINDOWS: [*TABLE, *_names(WindowOptions)],
    TEXT: [*_names(OwnOptions, TextOptions), "target", "owner", "columns", "encoding"],
    IMAGES: _names(OwnOptions, ImageOptions),
}
PUBLISHED = [*_names(PublishedOptions), "length", "tokenizer"]
SHOWN = 12  # sites whose sizes are told
NUMBERS = ("values", "missing", "median")  # columns of `describe_csv`


def prepare(command: Prepare, console: Console) -> None:
    """`jaxfl prepare`."""
    check(
        command.data not in SOURCES,
        f"{command.data} is embedded: --dataset {command.data} needs no preparation",
    )
    if command.describe:
        _check_options(command)
        describe_table(command, console)
        return
    folder = data_dir(command.data_dir)
    if folder is None:
        raise InputError("no folder to write to: give --data-dir DIR or set JAXFL_DATA_DIR")
    _check_options(command)
    if command.data in (CSV, WINDOWS):
        prepare_table(command, folder, console)
    elif command.data == TEXT:
        prepare_texts(command, folder, console)
    elif command.data == IMAGES:
        prepare_folder(command, folder, console)
    else:
        is_ready = os.path.exists(folder / f"{file_stem(command.data)}.npz")
        file = prepare_data(
            command.data,
            folder,
            manual_dir=command.tfds_manual_dir,
            words=command.words,
            length=command.length,
            tokenizer=command.tokenizer,
        )
        was_ready = " was there before and stays; remove it to prepare it anew" if is_ready else ""
        _say(console, f"{file}{was_ready}: --dataset {file.stem} --data-dir {folder}")


def _check_options(command: Prepare) -> None:
    """Raises an `InputError` if options are given that are for other data."""
    default = Prepare(data=command.data)
    check(
        command.data in OPTIONS or not command.files,
        f"{' '.join(map(str, command.files))}: files are for {', '.join(OPTIONS)}, not for jaxfl "
        f"prepare {command.data}; leave them out",
    )
    taken = OPTIONS.get(command.data, PUBLISHED)
    for name in dict.fromkeys([*OPTIONS[WINDOWS], *OPTIONS[TEXT], *OPTIONS[IMAGES], *PUBLISHED]):
        kinds = [kind for kind, names in OPTIONS.items() if name in names]
        check(
            name in taken or getattr(command, name) == getattr(default, name),
            f"{option(name)}: for {' and '.join(kinds) or 'published data sets'}, not for jaxfl "
            f"prepare {command.data}; leave it out",
        )


def describe_table(command: Prepare, console: Console) -> None:
    """`jaxfl prepare csv --describe`.

    Args:
      command: with the files.
      console: where to show the table.
    """
    found = describe_csv(
        command.files,
        owner=command.owner,
        missing=command.missing,
        columns=command.columns,
        encoding=command.encoding,
        decimal=command.decimal,
        thousands=command.thousands,
    )
    table = Table()
    for title in found:
        table.add_column(title, justify="right" if title in NUMBERS else "left", overflow="fold")
    rows = list(zip(*found.values(), strict=True))
    several = len(set(found["site"])) > 1
    for place, (name, *cells) in enumerate(rows):
        is_first = place == 0 or rows[place - 1][0] != name
        is_last = place + 1 == len(rows) or rows[place + 1][0] != name
        words = [name if is_first else "", *map(str, cells)]
        table.add_row(*map(Text, words), end_section=several and is_last)
    console.print(table)


def prepare_table(command: Prepare, folder: Path, console: Console) -> None:
    """`jaxfl prepare csv` and `jaxfl prepare windows`.

    Args:
      command: with the files.
      folder: of the data sets.
      console: where to say what has become of the columns.
    """
    check(
        (command.time is None) == (command.event is None),
        "--time and --event belong together: give both, or --target alone",
    )
    check(
        command.time is None or command.target is None,
        f"--time {command.time} is what is predicted, and --target names another: leave out one",
    )
    check(
        command.time is None or command.task is None,
        "--task says what --target holds, and --time holds times: leave it out",
    )
    target = command.target or command.time
    if target is None:
        raise InputError(
            f"jaxfl prepare {command.data} needs --target COLUMN, the column to predict, or --time "
            "and --event"
        )
    is_series = command.data == WINDOWS
    check(
        not is_series or command.steps is not None,
        f"jaxfl prepare {WINDOWS} needs --steps, rows of a window",
    )
    choices = Choices(
        target=target,
        event=command.event,
        id=command.id,
        owner=command.owner,
        group=command.group,
        leave_out=command.leave_out,
        categories=command.categories,
        missing=command.missing,
        task=command.task,
        steps=command.steps,
        stride=command.stride,
        series=command.series,
        order=command.order,
        weight=command.weight,
        split=command.split,
        scale=command.scale,
    )
    prepared = prepare_csv(
        command.files,
        folder,
        choices,
        name=command.name,
        columns=command.columns,
        encoding=command.encoding,
        decimal=command.decimal,
        thousands=command.thousands,
        overwrite=command.overwrite,
    )
    table = Table("column", "becomes")
    for name, words in prepared.columns.items():
        table.add_row(Text(name), Text(words))
    _say(console, _sizes(prepared.sites, WINDOWS if is_series else "rows"))
    console.print(table)
    of_window = f" at each of {command.steps} steps" if is_series else ""
    scaling = (
        " Means and standard deviations are those of all rows, also of those that a run tests on: "
        "they follow from each site's number, sum and sum of squares, which a federation can add "
        "up without showing a row."
    )
    count = f"{len(prepared.schema.features)} features{of_window}."
    _say(console, count + scaling * command.scale)
    file = prepared.file
    _say(
        console,
        f"written to {file} and {file.with_suffix('.json').name}: --dataset {file.stem} "
        f"--data-dir {folder}",
    )


def prepare_texts(command: Prepare, folder: Path, console: Console) -> None:
    """`jaxfl prepare text`.

    Args:
      command: with the files and the tokenizer.
      folder: of the data sets.
      console: where to say what has become of them.
    """
    if command.tokenizer is None:
        raise InputError(
            "jaxfl prepare text needs --tokenizer FILE, the tokenizer.json that lies beside the "
            "weights of the model"
        )
    prepared = prepare_text(
        command.files,
        folder,
        command.tokenizer,
        text=command.text,
        target=command.target,
        owner=command.owner,
        length=command.length,
        name=command.name,
        columns=command.columns,
        encoding=command.encoding,
        overwrite=command.overwrite,
    )
    _say(console, _sizes(prepared.sites, "texts"))
    if prepared.classes:
        _say(console, _classes(prepared.classes))
    else:
        _say(console, "the label of each id is the one after it")
    cut = f"; {prepared.cut:,} texts were longer and are cut" if prepared.cut else ""
    _say(console, f"{prepared.length} ids of each text, of {prepared.vocabulary:,}{cut}")
    file = prepared.file
    _say(console, f"written to {file}: --dataset {file.stem} --data-dir {folder}")


def _classes(classes: dict[str, int]) -> str:
    """How many classes there are, and how many examples of each."""
    first = ", ".join(f"{name} {count:,}" for name, count in list(classes.items())[:SHOWN])
    more = f" and {len(classes) - SHOWN} more" if len(classes) > SHOWN else ""
    return f"{len(classes)} classes: {first}{more}"


def prepare_folder(command: Prepare, folder: Path, console: Console) -> None:
    """`jaxfl prepare images`.

    Args:
      command: with the folder of the images.
      folder: of the data sets.
      console: where to say what has become of them.
    """
    check(
        len(command.files) == 1,
        f"jaxfl prepare {IMAGES} takes one folder, not {len(command.files)}: give the one that "
        "holds OWNER/CLASS/FILE",
    )
    prepared = prepare_images(
        command.files[0],
        folder,
        size=command.size,
        owner_table=command.owner_table,
        name=command.name,
        overwrite=command.overwrite,
    )
    _say(console, _sizes(prepared.sites, "images"))
    high, wide, channels = prepared.shape
    colours = "grey" if channels == 1 else "three channels"
    _say(console, f"{_classes(prepared.classes)}; {high}x{wide} pixels, {colours}")
    file = prepared.file
    _say(console, f"written to {file}: --dataset {file.stem} --data-dir {folder}")


def _sizes(sites: dict[str, int], examples: str) -> str:
    """How many examples there are, and how many of them each site has."""
    shown = ", ".join(f"{site} ({count:,})" for site, count in list(sites.items())[:SHOWN])
    more = f" and {len(sites) - SHOWN:,} more" if len(sites) > SHOWN else ""
    return f"{sum(sites.values()):,} {examples} of {len(sites):,} sites: {shown}{more}"


def _say(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False)
