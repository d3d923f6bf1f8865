"""Turns the CSV files of sites into one `NAME.npz`, with what its columns became beside it."""

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxfl.core.errors import check, warn
from jaxfl.core.options import checked
from jaxfl.core.text import composed
from jaxfl.data.arrays import from_arrays
from jaxfl.data.published.recipes import RECIPES, file_stem
from jaxfl.data.source import Source
from jaxfl.data.table.fit import (
    cells_of,
    fit,
    in_order,
    warn_of_case,
    warn_of_classes,
    warn_of_words,
)
from jaxfl.data.table.read import (
    Sheet,
    check_column,
    check_columns,
    formats,
    read_sheet,
    sheet_of_frame,
    without,
    word_of,
)
from jaxfl.data.table.schema import (
    Schema,
    check_complete,
    groups_of_rows,
    names_of,
    rows_that_test,
    to_json,
    weights_of_rows,
)
from jaxfl.data.table.summary import Choices
from jaxfl.data.table.table_warnings import (
    check_header_rows,
    warn_of_events,
    warn_of_groups,
    warn_of_ids,
    warn_of_numbers,
    warn_of_rows,
)
from jaxfl.data.table.windows import examples
from jaxfl.data.write import new_folder, write_npz, write_utf8

NAME = re.compile(r"\w[\w.,=+-]{0,99}")
PARTS = ("train", "training", "val", "valid", "validation", "dev", "test", "testing")
SMALL = 10  # examples; a natural partition leaves out smaller owners by default


class Prepared(NamedTuple):
    """What has become of CSV files."""

    file: Path  # NAME.npz
    schema: Schema
    sites: dict[str, int]  # how many examples each has: rows, or windows of rows
    columns: dict[str, str]  # what each column became, in words


@checked
def prepare_csv(
    files: Sequence[Path],
    directory: str | os.PathLike,
    choices: Choices,
    *,
    name: str | None = None,
    columns: Sequence[str] = (),
    encoding: str | Sequence[str] = "utf-8",
    decimal: str | Sequence[str] = ".",
    thousands: str | Sequence[str] | None = None,
    overwrite: bool = False,
) -> Prepared:
    """Writes `directory/NAME.npz`, and `NAME.json` with what each column became.

    With `choices.steps` the examples are windows of so many rows [N, steps, F].

    The npz holds `x_train y_train owners`, the names `owner_names class_names feature_names`, with
    `choices.weight` the `weights` of the rows, with `choices.group` their `groups` as numbers, with
    `choices.split` the rows that test (`own_test`), with `choices.event` that the targets are times
    (`survival`), and in `schema` the content of NAME.json, so that the two cannot part. The sites,
    owners of the rows, are numbered in the order of their names.

    Args:
      files: a CSV file for each site, or with `choices.owner` any CSV files.
      directory: the data folder; made if it does not exist.
      choices: what the user says of the columns.
      name: of the data set; that of the folder of the files, or of the file, if None.
      columns: names of the columns, if the files do not begin with them.
      encoding: of the files; [VALUE, FILE=VALUE, ...] where one file has another, as for the next.
      decimal: "," where 12,5 is a number.
      thousands: "," where 1,234 is a number.
      overwrite: replace a data set of this name.

    Raises:
      InputError: a file or a column is not what a model can learn from, the name is taken, or the
        files cannot be written.
    """
    sheets = read_sheets(
        files, columns=columns, encoding=encoding, decimal=decimal, thousands=thousands
    )
    if name is None:
        name = common_name(files)
    target = Path(directory) / f"{name}.npz"
    check_new(name, [target, target.with_suffix(".json")], overwrite)
    arrays, schema, sites, words = arrays_of(sheets, choices)
    from_arrays(**arrays, name=f"data set {name}")  # refuses names that no reader would take
    arrays["schema"] = np.array(to_json(schema))
    with new_folder(target.parent):
        # The npz file comes first: it holds the schema too, and the text alone is no data set.
        write_npz(target, arrays)
        write_utf8(target.with_suffix(".json"), to_json(schema) + "\n")
    return Prepared(target, schema, sites, words)


def read_sheets(
    files: Sequence[Path],
    *,
    columns: Sequence[str] = (),
    encoding: str | Sequence[str] = "utf-8",
    decimal: str | Sequence[str] = ".",
    thousands: str | Sequence[str] | None = None,
) -> list[Sheet]:
    """The cells of each file.

    Args:
      files: of the sites.
      columns: as in `prepare_csv`, and the others.
      encoding: likewise.
      decimal: likewise.
      thousands: likewise.

    Raises:
      InputError: there is no file, or one is no CSV file.
    """
    check(
        len(files) > 0,
        "no CSV file to read: name those of the sites, as in jaxfl prepare csv sites/*.csv",
    )
    each = formats(files, encoding=encoding, decimal=decimal, thousands=thousands)
    return [read_sheet(file, columns, *how) for file, how in zip(files, each, strict=True)]


def from_frames(
    frames: Any,
    target: str,
    *,
    owner: str | None = None,
    **options: Any,
) -> Source:
    """A data set of data frames: what `jaxfl prepare csv` makes of files with the same cells.

    Args:
      frames: of pandas: one for each site, by its name or in a list, whose sites are named 0, 1,
        ...; or one with a column that names the site of each row.
      target: the column to predict.
      owner: the column that names the site.
      **options: the other fields of `jaxfl.data.table.summary.Choices`, such as `id` and
        `categories`.

    Returns:
      The data set, whose owners are the sites; partition it by `natural(source.owners)`.

    Raises:
      InputError: a column is not what a model can learn from.

    Example:
      >>> import pandas
      >>> rows = pandas.DataFrame({"age": [61, 75, 43, 50] * 5, "ill": ["no", "yes"] * 10})
      >>> source = jaxfl.data.from_frames({"north": rows, "south": rows[::-1]}, "ill")
      >>> source.x_train.shape, source.owner_names, source.class_names
      ((40, 1), ('north', 'south'), ('no', 'yes'))
    """
    choices = Choices(target, owner=owner, **options)
    if hasattr(frames, "columns"):
        check(owner is not None, "one data frame is given: name the column of its sites as owner")
        frames = {"all": frames}
    if not isinstance(frames, Mapping):
        frames = {str(place): frame for place, frame in enumerate(frames)}
    sheets = [sheet_of_frame(frame, name) for name, frame in frames.items()]
    arrays, schema, _, _ = arrays_of(sheets, choices)
    return from_arrays(**arrays, name="the data frames")._replace(schema=to_json(schema))


def arrays_of(
    sheets: Sequence[Sheet], choices: Choices
) -> tuple[dict[str, Any], Schema, dict[str, int], dict[str, str]]:
    """The arrays of `from_arrays`, the schema, and sites and columns as `Prepared` has them.

    Raises:
      InputError: as `prepare_csv`.
    """
    check(len(sheets) > 0, "there is no table to read: give one for each site")
    _check_steps(choices)
    check(
        choices.weight is None or not choices.steps,
        f"--weight {choices.weight} weighs rows, and an example is a window of {choices.steps} "
        "rows: leave it out",
    )
    check(
        choices.split is None or not choices.steps,
        f"--split {choices.split} divides rows, and an example is a window of {choices.steps} "
        "rows: leave it out",
    )
    needed = (choices.target, choices.id, choices.owner, choices.series, choices.order)
    needed = (*needed, choices.weight, choices.event, choices.group, choices.split)
    check_columns(sheets, [one for one in choices.leave_out if one not in needed])
    check_header_rows(sheets)
    sheets = [without(sheet, choices.absent) for sheet in sheets]
    owners = sites_of_rows(sheets, choices.owner)
    schema, words = fit(sheets, choices)
    found = [examples(schema, sheet) for sheet in sheets]
    ends = np.cumsum([len(sheet.lines) for sheet in sheets])[:-1]

    def of_examples(each_row: Sequence[Any] | np.ndarray) -> np.ndarray:
        of_sheets = np.split(np.array(each_row), ends)
        return np.concatenate([some[one.rows] for some, one in zip(of_sheets, found, strict=True)])

    owners_of_examples = of_examples(owners)
    y = np.concatenate([each.y for each in found if each.y is not None])
    counts = Counter(owners_of_examples.tolist())
    sites = {site: counts[site] for site in in_order(set(owners))}
    warn_of_sites(
        sites,
        "windows" if choices.steps else "rows",
        "give a file for each site, or say with --owner COLUMN whose each row is",
    )
    if not choices.steps:
        warn_of_rows(sheets, owners, schema)
        warn_of_numbers(np.concatenate([one.x for one in found]), y, owners_of_examples, schema)
    categories = [column.name for column in schema.columns if column.words]
    for name in [*categories, *[schema.target.name] * bool(schema.target.classes)]:
        words_of: dict[str, Counter[str]] = {}
        for site, cell in zip(owners, cells_of(sheets, name), strict=True):
            if cell is not None:
                words_of.setdefault(site, Counter())[word_of(cell)] += 1
        warn_of_words(name, words_of)
        if name == schema.target.name:
            warn_of_classes(name, words_of)
    if choices.steps:
        _check_windows(sites, y, schema, choices)
    if choices.id is not None and choices.id != choices.group:
        warn_of_ids(cells_of(sheets, choices.id), owners, choices.id)
    number = {site: place for place, site in enumerate(sites)}
    arrays: dict[str, Any] = {
        "x_train": np.concatenate([each.x for each in found]),
        "y_train": y,
        "owners": np.array([number[site] for site in owners_of_examples], np.int32),
        "owner_names": np.array(list(sites), str),
        **names_of(schema),
    }
    if choices.event is not None:
        arrays["survival"] = np.array(True)
        warn_of_events(y, arrays["owners"], list(sites), choices.event)
    if choices.group is not None:
        groups = [word for sheet in sheets for word in groups_of_rows(choices.group, sheet)]
        warn_of_groups(groups, owners, choices.group)
        arrays["groups"] = of_examples(np.unique(groups, return_inverse=True)[1])
    if choices.weight is not None:
        arrays["weights"] = np.concatenate(
            [weights_of_rows(choices.weight, sheet) for sheet in sheets]
        )
    if choices.split is not None:
        tests = [rows_that_test(choices.split, sheet) for sheet in sheets]
        arrays["own_test"] = np.concatenate(tests)
    return arrays, schema, sites, words


def check_new(name: str, written: Sequence[Path], overwrite: bool) -> None:
    """Raises an `InputError` if a data set of one's own cannot have this name.

    Args:
      name: of the data set.
      written: files that would be written.
      overwrite: whether they may be there.
    """
    check(
        NAME.fullmatch(name) is not None,
        f"{name!r:.60} is no name of a data set: give one of at most 100 letters, digits, "
        "- and _ (--name)",
    )
    check(
        name not in {"digits", *map(file_stem, RECIPES)},
        f"{name} is the name of a published data set: give yours another one (--name)",
    )
    for file in written:
        check(
            overwrite or not os.path.lexists(file),
            f"{file} exists: choose another --name, or add --overwrite",
        )


def _check_steps(choices: Choices) -> None:
    """Raises an `InputError` unless the sizes of windows are numbers from 1."""
    for option, value in (("--steps", choices.steps), ("--stride", choices.stride)):
        check(value is None or value > 0, f"{option} is {value}: expected 1 or more")


def _check_windows(sites: dict[str, int], y: np.ndarray, schema: Schema, choices: Choices) -> None:
    """Raises an `InputError` if a site or a class has no window; warns of windows that overlap."""
    empty = [site for site, count in sites.items() if not count]
    check(
        not empty,
        f"{len(empty)} of {len(sites)} sites have no window of {choices.steps} steps, such as "
        f"{', '.join(empty[:3])}: give fewer --steps, or leave out their rows",
    )
    found = set(y.tolist())
    never = [word for label, word in enumerate(schema.target.classes) if label not in found]
    check(
        not never,
        f"the target {schema.target.name} is in no window of {choices.steps} steps most often "
        f"{', '.join(never[:1])}: give fewer --steps, or leave out these rows",
    )
    if choices.stride and choices.stride < (choices.steps or 0) and choices.group is None:
        warn(
            f"windows of {choices.steps} steps begin every {choices.stride}, so that windows of "
            "the training and of the test part share steps and scores are too good: leave out "
            "--stride, or keep the windows of one person together by --group COLUMN"
        )


def common_name(files: Sequence[Path]) -> str:
    """The name of the folder of several files, or that of a single file."""
    if len(files) == 1:
        return composed(files[0].stem)
    folder = os.path.commonpath([file.absolute().parent for file in files])
    return Path(folder).name or "sites"


def sites_of_rows(sheets: Sequence[Sheet], owner: str | None) -> list[str]:
    """The site of each row: by a column, or by the names of the files, or else of their folders.

    Raises:
      InputError: a row names no site, or two files have one name.
    """
    if owner is not None:
        for sheet in sheets:
            check_column("--owner", owner, sheet.columns)
        mend = "name the site of each row, or remove these rows"
        cells = [cell for sheet in sheets for cell in check_complete("site", owner, sheet, mend)]
        return list(map(word_of, cells))
    files = [sheet.file for sheet in sheets]
    names = [composed(file.stem if isinstance(file, Path) else str(file)) for file in files]
    if len(sheets) > 1 and len(set(names)) == 1:
        names = [composed(Path(str(file)).absolute().parent.name) for file in files]
    twice = [name for name, count in Counter(names).items() if count > 1]
    check(
        not twice,
        f"two files would be the site {', '.join(twice[:1])}: give each file a name of its own, "
        "or say with --owner COLUMN whose each row is",
    )
    return [name for name, sheet in zip(names, sheets, strict=True) for _ in sheet.lines]


def warn_of_sites(sites: dict[str, int], examples: str, hint: str) -> None:
    """Warns of a single site, of small ones and of names that are almost the same.

    Args:
      sites: how many examples each has.
      examples: what they are called.
      hint: how several sites are told.
    """
    warn_of_case("two sites have the names", list(sites))
    if len(sites) == 1:
        warn(f"all {examples} are of one site, {next(iter(sites))}: {hint}")
    parts = [site for site in sites if site.lower() in PARTS]
    check(
        len(parts) < 2,
        f"the sites {' and '.join(parts[:3])} have the names of parts of one data set, which are "
        f"no clients: {hint}",
    )
    small = [f"{site} ({count})" for site, count in sites.items() if count < SMALL]
    more = f" and {len(small) - 8} more" if len(small) > 8 else ""
    if small:
        warn(
            f"{len(small)} of {len(sites)} sites have fewer than {SMALL} {examples}: "
            f"{', '.join(small[:8])}{more}; a run leaves them out, unless --partition "
            "natural:least=1 keeps them"
        )
