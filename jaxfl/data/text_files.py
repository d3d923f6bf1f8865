"""Turns texts in CSV files or in plain files into one `NAME.npz` of ids."""

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxfl.core.errors import InputError, check
from jaxfl.core.options import checked
from jaxfl.core.text import composed
from jaxfl.data.arrays import from_arrays
from jaxfl.data.table.fit import in_order
from jaxfl.data.table.prepare import check_new, common_name, sites_of_rows, warn_of_sites
from jaxfl.data.table.read import Sheet, check_column, formats, read_sheet, word_of
from jaxfl.data.table.schema import check_complete
from jaxfl.data.tokens import (
    check_length,
    encoded,
    padded,
    read_tokenizer,
    vocabulary_of,
)
from jaxfl.data.write import new_folder, write_npz

PLAIN = ".txt"


class Prepared(NamedTuple):
    """What has become of texts."""

    file: Path  # NAME.npz
    sites: dict[str, int]  # how many examples each has
    classes: dict[str, int]  # likewise; empty where each id has the one after it as its label
    length: int  # ids of an example
    vocabulary: int  # how many ids there are
    cut: int  # texts that were longer


class Texts(NamedTuple):
    """Texts with whose they are and what is to be predicted of them."""

    texts: list[str]
    owners: list[str]
    labels: list[str] | None  # None: the id after each one


@checked
def prepare_text(
    files: Sequence[Path],
    directory: str | os.PathLike,
    tokenizer: Path,
    *,
    text: str | None = None,
    target: str | None = None,
    owner: str | None = None,
    length: int = 128,
    name: str | None = None,
    columns: Sequence[str] = (),
    encoding: str | Sequence[str] = "utf-8",
    overwrite: bool = False,
) -> Prepared:
    """Writes `directory/NAME.npz` with the ids of texts [N, length], -1 where one has ended.

    A row of a CSV file is an example. Its label is a class, or without a target the id after each
    one. A plain file (.txt) is cut into windows of `length` ids, with the id after each one as its
    label. The longest text says how many ids are kept, up to `length`.

    Args:
      files: a file for each site, or with `owner` any CSV files.
      directory: the data folder; made if it does not exist.
      tokenizer: the tokenizer.json of the model.
      text: the column of the texts.
      target: the column of the classes.
      owner: the column that names the site.
      length: ids kept of a text, or of a window.
      name: of the data set; that of the folder of the files, or of the file, if None.
      columns: names of the columns, if the files do not begin with them.
      encoding: of the files; [VALUE, FILE=VALUE, ...] where one file has another.
      overwrite: replace a data set of this name.

    Raises:
      InputError: a file or a column holds no texts, the tokenizer cannot be read, the name is taken
        or the npz file cannot be written.
    """
    check(len(files) > 0, "no file to read: name those of the sites, as in sites/*.csv")
    check_length(length)
    name = common_name(files) if name is None else name
    written = Path(directory) / f"{name}.npz"
    check_new(name, [written], overwrite)
    reader = read_tokenizer(tokenizer)
    plain = [file for file in files if file.suffix == PLAIN]
    check(
        len(plain) in (0, len(files)),
        f"{', '.join(map(str, plain[:1]))} is a plain text and other files are not: give CSV files "
        "alone, or plain ones",
    )
    cut = 0
    if plain:
        for option, value in {"--text": text, "--target": target, "--owner": owner}.items():
            check(value is None, f"{option} {value}: a plain text has no columns, leave it out")
        found = _plain(files, encoding)
        whole = encoded(found.texts, reader, marks=False)
        short = [str(file) for file, ids in zip(files, whole, strict=True) if len(ids) < 2]
        check(
            not short,
            f"{', '.join(short[:3])} {'has' if len(short) == 1 else 'have'} less than two words: "
            "leave out files without a text",
        )
        rows, owners = _windows(whole, found.owners, length)
    else:
        found = _cells(files, text, target, owner, columns, encoding)
        owners = found.owners
        rows = encoded(found.texts, reader)
        cut = sum(len(row) > length for row in rows)
        if cut:
            rows = encoded(found.texts, reader, length=length)
    longest = max(map(len, rows))
    check(longest > 1, f"no text has more than {longest} ids: expected texts")
    ids = padded(rows, longest)
    counts = Counter(owners)
    sites = {site: counts[site] for site in in_order(counts)}
    hint = "give a file for each site" + ("" if plain else ", or say with --owner COLUMN whose")
    warn_of_sites(sites, "texts", hint)
    vocabulary = vocabulary_of(reader)
    number = {site: place for place, site in enumerate(sites)}
    arrays: dict[str, Any] = {
        "owners": np.array([number[site] for site in owners], np.int32),
        "owner_names": np.array(list(sites), str),
        "vocabulary": np.array([vocabulary]),
    }
    classes: dict[str, int] = {}
    if found.labels is None:
        x, y = ids[:, :-1], ids[:, 1:]
        arrays["classes"] = np.array(vocabulary)
    else:
        each = Counter(found.labels)
        classes = {word: each[word] for word in in_order(each)}
        check(
            len(classes) > 1,
            f"all texts are of the class {next(iter(classes))}: expected two classes or more",
        )
        label = {word: place for place, word in enumerate(classes)}
        x, y = ids, np.array([label[word] for word in found.labels], np.int32)
        arrays["class_names"] = np.array(list(classes), str)
    arrays |= {"x_train": x, "y_train": y}
    from_arrays(**arrays, name=f"data set {name}")  # refuses names that no reader would take
    with new_folder(written.parent):
        write_npz(written, arrays)
    return Prepared(written, sites, classes, x.shape[1], vocabulary, cut)


def _cells(
    files: Sequence[Path],
    text: str | None,
    target: str | None,
    owner: str | None,
    columns: Sequence[str],
    encoding: str | Sequence[str],
) -> Texts:
    """The texts of CSV files, a row each."""
    each = formats(files, encoding=encoding)
    sheets = [read_sheet(file, columns, *how) for file, how in zip(files, each, strict=True)]
    if text is None:
        raise InputError(
            "CSV files of texts need --text COLUMN, the column of the texts: the columns are "
            f"{', '.join(list(sheets[0].columns)[:8])}"
        )
    texts = [one for sheet in sheets for one in _column("--text", text, sheet)]
    labels = None
    if target is not None:
        labels = [word_of(one) for sheet in sheets for one in _column("--target", target, sheet)]
    return Texts(texts, sites_of_rows(sheets, owner), labels)


def _column(option: str, name: str, sheet: Sheet) -> list[str]:
    """The cells of a column, of which none is empty."""
    check_column(option, name, sheet.columns)
    cells = [cell or None for cell in sheet.columns[name]]
    what = option.strip("-")
    return check_complete(what, name, sheet._replace(columns={name: cells}), "remove these rows")


def _plain(files: Sequence[Path], encoding: str | Sequence[str]) -> Texts:
    """The content of plain files, each of which is a site."""
    texts = []
    for file, how in zip(files, formats(files, encoding=encoding), strict=True):
        try:
            texts.append(file.read_text(how.encoding))
        except (OSError, UnicodeError, LookupError) as error:
            raise InputError(
                f"cannot read {file} ({error!s:.100}): give a text in {how.encoding}, or say which "
                "--encoding it has"
            ) from error
    owners = [composed(file.stem) for file in files]
    twice = [name for name, count in Counter(owners).items() if count > 1]
    check(not twice, f"two files would be the site {', '.join(twice[:1])}: name them otherwise")
    return Texts(texts, owners, None)


def _windows(
    texts: Sequence[list[int]], owners: Sequence[str], length: int
) -> tuple[list[list[int]], list[str]]:
    """Windows of long texts, and whose they are; the last id of one is the first of the next.

    Example:
      >>> _windows([[1, 2, 3, 4, 5]], ["ann"], 2)
      ([[1, 2, 3], [3, 4, 5]], ['ann', 'ann'])
    """
    pairs = [
        (ids[at : at + length + 1], owner)
        for ids, owner in zip(texts, owners, strict=True)
        for at in range(0, max(len(ids) - 1, 1), length)
    ]
    return [ids for ids, _ in pairs], [owner for _, owner in pairs]
