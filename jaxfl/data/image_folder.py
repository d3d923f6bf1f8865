"""Turns a folder of image files into one `NAME.npz`."""

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
from jaxfl.data.image_files import check_size, image_files, read_images
from jaxfl.data.table.fit import in_order
from jaxfl.data.table.prepare import check_new, warn_of_sites
from jaxfl.data.table.read import Sheet, check_column, read_sheet
from jaxfl.data.write import new_folder, write_npz


class Photo(NamedTuple):
    """An image file, whose it is, and what it shows."""

    file: Path
    owner: str
    label: str


class Prepared(NamedTuple):
    """What has become of a folder of images."""

    file: Path  # NAME.npz
    shape: tuple[int, ...]  # of an image: height, width, channels
    sites: dict[str, int]  # how many images each has
    classes: dict[str, int]  # likewise


@checked
def prepare_images(
    folder: Path,
    directory: str | os.PathLike,
    *,
    size: int = 32,
    owner_table: Path | None = None,
    name: str | None = None,
    overwrite: bool = False,
) -> Prepared:
    """Writes `directory/NAME.npz` with the images of a folder as bytes [N, size, size, channels].

    The files are `OWNER/CLASS/FILE`, or `CLASS/FILE` with a table of owners. An image is turned as
    its camera says, cut to the square at its centre and made `size` pixels high and wide. There is
    one channel if all images are grey, and three otherwise; transparency is left out.

    Args:
      folder: of the images.
      directory: the data folder; made if it does not exist.
      size: pixels of a side.
      owner_table: a CSV file with the columns `file`, as it is named within the folder or by its
        last part alone, and `owner`.
      name: of the data set; that of the folder if None.
      overwrite: replace a data set of this name.

    Raises:
      InputError: the folder has another form, a file is no image, the name is taken, or the npz
        file cannot be written.
    """
    check_size(size)
    name = folder.absolute().name if name is None else name
    target = Path(directory) / f"{name}.npz"
    check_new(name, [target], overwrite)
    photos = _photos(folder, owner_table)
    sites = _counted(photo.owner for photo in photos)
    classes = _counted(photo.label for photo in photos)
    check(
        len(classes) > 1,
        f"all images of {folder} are in the class {next(iter(classes))}: expected two classes or "
        "more, each a folder of its own",
    )
    hint = "put the images into OWNER/CLASS/FILE, or give a table of owners (--owner-table)"
    warn_of_sites(sites, "images", hint)
    images = read_images((photo.file for photo in photos), size)
    owner_of, label_of = ({word: i for i, word in enumerate(words)} for words in (sites, classes))
    arrays: dict[str, Any] = {
        "x_train": images,
        "y_train": np.array([label_of[photo.label] for photo in photos], np.int32),
        "owners": np.array([owner_of[photo.owner] for photo in photos], np.int32),
        "owner_names": np.array(list(sites), str),
        "class_names": np.array(list(classes), str),
    }
    from_arrays(**arrays, name=f"data set {name}")  # refuses names that no reader would take
    with new_folder(target.parent):
        write_npz(target, arrays)
    return Prepared(target, images.shape[1:], sites, classes)


def _counted(words) -> dict[str, int]:
    counts = Counter(words)
    return {word: counts[word] for word in in_order(counts)}


def _photos(folder: Path, owner_table: Path | None) -> list[Photo]:
    """The images of a folder, in the order of their names.

    Raises:
      InputError: there is none, or one is elsewhere than where images belong.
    """
    check(folder.is_dir(), f"{folder} is no folder: give the one that holds the images")
    sheet = None if owner_table is None else read_sheet(owner_table, encoding=None)
    images = image_files(folder)
    form = "OWNER/CLASS/FILE" if sheet is None else "CLASS/FILE"
    hint = ", or CLASS/FILE and a table of owners (--owner-table FILE.csv)"
    parts = [path.relative_to(folder).parts for path in images]
    for path, names in zip(images, parts, strict=True):
        check(
            len(names) == form.count("/") + 1,
            f"{path} does not stand where an image belongs: expected {folder}/{form}"
            f"{hint if sheet is None else ''}",
        )
    if sheet is None:
        owners = [composed(names[0]) for names in parts]
    else:
        owners = _owners(sheet, owner_table, ["/".join(names) for names in parts])
    labels = [composed(names[-2]) for names in parts]
    return [Photo(*each) for each in zip(images, owners, labels, strict=True)]


def _owners(sheet: Sheet, table: Path | None, names: Sequence[str]) -> list[str]:
    """The owner of each image by a table.

    Raises:
      InputError: it lacks a column or an image, or names an image twice.
    """
    for column in ("file", "owner"):
        check_column(f"{table} lacks", column, sheet.columns)
    owner_of: dict[str, str] = {}
    cells = [[cell or "" for cell in sheet.columns[column]] for column in ("file", "owner")]
    for row, (file, owner) in enumerate(zip(*cells, strict=True)):
        check(bool(owner), f"the owner is missing in {sheet.place(row)}: name the owner of each")
        check(
            owner_of.setdefault(file, owner) == owner,
            f"{sheet.place(row)} gives {file} to {owner}, an earlier one to {owner_of[file]}: "
            "name the owner of a file once",
        )
    lasts = Counter(name.rsplit("/", 1)[-1] for name in names)
    owners = []
    for name in names:
        last = name.rsplit("/", 1)[-1]
        owner = owner_of.get(name) or (owner_of.get(last) if lasts[last] == 1 else None)
        if owner is None:
            raise InputError(
                f"{table} does not name the owner of {name}: give it a row, with the file as it "
                "is named here"
            )
        owners.append(owner)
    return owners
