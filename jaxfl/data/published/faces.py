"""CelebA: faces of celebrities, each of whom is a natural client."""

from collections import defaultdict
from pathlib import Path

import numpy as np

from jaxfl.core.errors import check, check_name
from jaxfl.data.image_files import read_images
from jaxfl.data.published import leaf
from jaxfl.data.published.originals import Arrays, existing
from jaxfl.data.published.owners import by_owner
from jaxfl.data.published.progress import Track, no_progress

IMAGES = "img_align_celeba"
IDENTITIES = "identity_CelebA.txt"
ATTRIBUTES = "list_attr_celeba.txt"
SMILING = "Smiling"  # the target of LEAF's files
FILES = (IMAGES, f"raw/{IMAGES}")  # one of these is enough


def read_celeba(
    folder: Path, track: Track = no_progress, *, size: int = 32, attribute: str | None = None
) -> Arrays:
    """CelebA: whether a face has an attribute, whose owners are the celebrities.

    Liu et al., 2015, https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html. Who is on an image and what
    it shows is read from the publisher's `identity_CelebA.txt` and `list_attr_celeba.txt`, else
    from the files that LEAF makes of them, which have only some of the celebrities. An image is
    cut to the square at its centre.

    Args:
      folder: with `img_align_celeba` and the lists; or that LEAF calls `data`, where they are in
        `raw`.
      track: shows progress.
      size: pixels of a side.
      attribute: to predict, one of the publisher's 40; `Smiling` if None.

    Returns:
      x uint8 [N, size, size, 3], and the arrays of `by_owner`.

    Raises:
      InputError: a file is missing or damaged, an image is missing, or there is no such attribute.
    """
    raw = folder if (folder / IMAGES).exists() else folder / "raw"
    photos = existing(raw / IMAGES)
    attribute = SMILING if attribute is None else attribute
    if (raw / IDENTITIES).exists() or (raw / ATTRIBUTES).exists():
        shown = _from_lists(raw, attribute)
    else:
        check(
            attribute == SMILING,
            f"--attribute {attribute:.40}: LEAF's files hold {SMILING} alone, put {IDENTITIES} and "
            f"{ATTRIBUTES} into {raw}",
        )
        shown = _from_leaf(folder, track)
    names = list(shown)
    for name in names:
        check(
            Path(name).name == name and (photos / name).is_file(),
            f"the image {name!r:.60} is not in {photos}: expected all that the lists name",
        )
    files = track([photos / name for name in names], "reading images", len(names))
    images = read_images(files, size, coloured=True)
    rows = defaultdict(list)
    for row, (owner, _) in enumerate(shown.values()):
        rows[owner].append(row)
    y = np.array([label for _, label in shown.values()], np.int32)
    parts = {owner: [(images[mine], y[mine])] for owner, mine in rows.items()}
    return by_owner(parts, [f"not {attribute}", attribute])


def _from_lists(folder: Path, attribute: str) -> dict[str, tuple[str, int]]:
    """Who is on each image, and whether it has the attribute, by the publisher's lists."""
    file = folder / IDENTITIES
    pairs = [line.split() for line in existing(file).read_text("latin-1").splitlines()]
    pairs = [pair for pair in pairs if pair]
    check(
        all(len(pair) == 2 and pair[1].isdecimal() for pair in pairs),
        f"{file} does not hold lines of an image and a number of its celebrity: download it again",
    )
    owner_of = dict(pairs)
    file = folder / ATTRIBUTES
    lines = [line.split() for line in existing(file).read_text("latin-1").splitlines()]
    rows = [line for line in lines[2:] if line]
    check(
        len(lines) > 2 and lines[0] == [str(len(rows))],
        f"{file} has {len(rows)} lines of images: expected as many as its first line says, "
        "download it again",
    )
    check_name("attribute", attribute, lines[1])
    place = 1 + lines[1].index(attribute)
    shown = {}
    for row in rows:
        check(
            len(row) == 1 + len(lines[1]) and row[place] in ("-1", "1") and row[0] in owner_of,
            f"{file} holds {' '.join(row)!r:.60}: expected an image that {IDENTITIES} has, and 1 "
            f"or -1 for each of {len(lines[1])} attributes",
        )
        shown[row[0]] = (owner_of[row[0]], int(row[place] == "1"))
    return shown


def _from_leaf(folder: Path, track: Track) -> dict[str, tuple[str, int]]:
    """Who is on each image, and whether it smiles, by LEAF's files."""
    shown = {}
    for file, user, x, y in leaf.read_users(folder, track):
        where = f"{file}, user {user!r:.60},"
        check(all(isinstance(name, str) for name in x), f"{where} holds no names of images in x")
        for name, label in zip(x, leaf.labels(y, 2, where).tolist(), strict=True):
            shown[name] = (user, label)
    return shown
