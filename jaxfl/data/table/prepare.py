"""Turns the CSV files of sites into one `NAME.npz`, with what its columns became beside it."""

import os
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxfl.core.errors import check, warn
from jaxfl.core.options import checked
from jaxfl.data.arrays import from_arrays
from jaxfl.data.published.recipes import RECIPES, file_stem
from jaxfl.data.table.fit import Choices, fit, in_order, warn_of_case, warn_of_ids
from jaxfl.data.table.read import Decimal, Sheet, check_column, check_columns, read_sheet
from jaxfl.data.table.schema import Schema, check_complete, numbers, to_json, word_of
from jaxfl.data.table.windows import examples
from jaxfl.data.write import new_folder, write_npz, write_utf8

NAME = re.compile(r"\w[\w.,=+-]*")
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
    encoding: str = "utf-8",
    decimal: Decimal = ".",
    overwrite: bool = False,
) -> Prepared:
    """Writes `directory/NAME.npz`, and `NAME.json` with what each column became.

    With `choices.steps` the examples are windows of so many rows [N, steps, F].

    The npz holds `x_train y_train owners`, the names `owner_names class_names feature_names`, with
    `choices.weight` the `weights` of the rows, and in `schema` the content of NAME.json, so that
    the two cannot part. The sites, owners of the rows, are numbered in the order of their names.

    Args:
      files: a CSV file for each site, or with `choices.owner` any CSV files.
      directory: the data folder; made if it does not exist.
      choices: what the user says of the columns.
      name: of the data set; that of the folder of the files, or of the file, if None.
      columns: names of the columns, if the files do not begin with them.
      encoding: of the files.
      decimal: "," where 12,5 is a number.
      overwrite: replace a data set of this name.

    Raises:
      InputError: a file or a column is not what a model can learn from, the name is taken, or the
        files cannot be written.
    """
    check(
        len(files) > 0,
        "no CSV file to read: name those of the sites, as in jaxfl prepare csv sites/*.csv",
    )
    if name is None:
        name = _common_name(files)
    target = Path(directory) / f"{name}.npz"
    check_new(name, [target, target.with_suffix(".json")], overwrite)
    _check_steps(choices)
    check(
        choices.weight is None or not choices.steps,
        f"--weight {choices.weight} weighs rows, and an example is a window of {choices.steps} "
        "rows: leave it out",
    )
    sheets = [read_sheet(file, columns, encoding, decimal) for file in files]
    needed = (choices.target, choices.id, choices.owner, choices.series, choices.weight)
    check_columns(sheets, [one for one in choices.leave_out if one not in needed])
    owners = _owners(sheets, choices.owner, choices.absent)
    schema, words = fit(sheets, choices)
    found = [examples(schema, sheet) for sheet in sheets]
    sites_of_rows = np.split(np.array(owners), np.cumsum([len(s.lines) for s in sheets])[:-1])
    owners_of_examples = np.concatenate(
        [names[each.rows] for names, each in zip(sites_of_rows, found, strict=True)]
    )
    y = np.concatenate([each.y for each in found if each.y is not None])
    counts = Counter(owners_of_examples.tolist())
    sites = {site: counts[site] for site in in_order(set(owners))}
    warn_of_sites(
        sites,
        "windows" if choices.steps else "rows",
        "give a file for each site, or say with --owner COLUMN whose each row is",
    )
    if choices.steps:
        _check_windows(sites, y, schema, choices)
    if choices.id is not None:
        ids = [cell for sheet in sheets for cell in sheet.columns[choices.id]]
        warn_of_ids(ids, owners, choices.id)
    number = {site: place for place, site in enumerate(sites)}
    arrays: dict[str, Any] = {
        "x_train": np.concatenate([each.x for each in found]),
        "y_train": y,
        "owners": np.array([number[site] for site in owners_of_examples], np.int32),
        "owner_names": np.array(list(sites), str),
        "feature_names": np.array(schema.features, str),
    }
    if schema.target.classes:
        arrays["class_names"] = np.array(schema.target.classes, str)
    if choices.weight is not None:
        arrays["weights"] = np.concatenate(
            [weights_of_rows(choices.weight, sheet, choices.absent) for sheet in sheets]
        )
    from_arrays(**arrays, name=f"data set {name}")  # refuses names that no reader would take
    arrays["schema"] = np.array(to_json(schema))
    with new_folder(target.parent):
        # The npz file comes first: it holds the schema too, and the text alone is no data set.
        write_npz(target, arrays)
        write_utf8(target.with_suffix(".json"), to_json(schema) + "\n")
    return Prepared(target, schema, sites, words)


def weights_of_rows(name: str, sheet: Sheet, missing: tuple[str, ...]) -> np.ndarray:
    """What each row of a file weighs [N].

    Args:
      name: of the column.
      sheet: the file.
      missing: cells that hold no value.

    Raises:
      InputError: a cell holds something else than a number of at least 0.
    """
    values = numbers(name, sheet, missing)
    for row, value in enumerate(values):
        check(
            value >= 0,
            f"the weight {name} is {sheet.columns[name][row]!r:.40} in {sheet.place(row)}: "
            "expected a number of at least 0",
        )
    return values


def check_new(name: str, written: Sequence[Path], overwrite: bool) -> None:
    """Raises an `InputError` if a data set of one's own cannot have this name.

    Args:
      name: of the data set.
      written: files that would be written.
      overwrite: whether they may be there.
    """
    check(
        NAME.fullmatch(name) is not None,
        f"{name!r:.60} is no name of a data set: give one of letters, digits, - and _ (--name)",
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
    if choices.stride and choices.stride < (choices.steps or 0):
        warn(
            f"windows of {choices.steps} steps begin every {choices.stride}, so that windows of "
            "the training and of the test part share steps and scores are too good: leave out "
            "--stride"
        )


def _common_name(files: Sequence[Path]) -> str:
    """The name of the folder of several files, or that of a single file."""
    if len(files) == 1:
        return files[0].stem
    folder = os.path.commonpath([file.absolute().parent for file in files])
    return Path(folder).name or "sites"


def _owners(sheets: Sequence[Sheet], owner: str | None, missing: tuple[str, ...]) -> list[str]:
    """The site of each row: by a column, or by the names of the files, or else of their folders.

    Raises:
      InputError: a row names no site, or two files have one name.
    """
    if owner is not None:
        check_column("--owner", owner, sheets[0].columns)
        for sheet in sheets:
            check_complete("site", owner, sheet, missing, "name the site of each row")
        return [word_of(cell) for sheet in sheets for cell in sheet.columns[owner]]
    names = [sheet.file.stem for sheet in sheets]
    if len(sheets) > 1 and len(set(names)) == 1:
        names = [sheet.file.absolute().parent.name for sheet in sheets]
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
    small = [f"{site} ({count})" for site, count in sites.items() if count < SMALL]
    if small:
        warn(
            f"{len(small)} of {len(sites)} sites have fewer than {SMALL} {examples}: "
            f"{', '.join(small[:8])}; a run leaves them out, unless --smallest 1 keeps them"
        )
