"""The same things in different kinds of images: Office-Caltech and DomainNet."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from jaxfl.core.errors import check
from jaxfl.data.image_files import SUFFIXES, read_images
from jaxfl.data.published.originals import Arrays, existing
from jaxfl.data.published.owners import by_owner
from jaxfl.data.published.progress import Track, no_progress

OFFICE_CALTECH = ("amazon", "caltech", "dslr", "webcam")
DOMAINNET = ("clipart", "infograph", "painting", "quickdraw", "real", "sketch")
DOMAINNET_FILES = tuple(f"{domain}_train.txt" for domain in DOMAINNET)  # one of these is enough
# Those of FedBN, Li et al., 2021, https://arxiv.org/abs/2102.07623.
TEN = (
    "bird",
    "feather",
    "headphones",
    "ice_cream",
    "teapot",
    "tiger",
    "whale",
    "windmill",
    "wine_glass",
    "zebra",
)


def read_office_caltech(folder: Path, track: Track = no_progress, *, size: int = 32) -> Arrays:
    """Office-Caltech: ten things of an office, whose owners are four kinds of images.

    Gong et al., 2012, https://doi.org/10.1109/CVPR.2012.6247911. The files are
    DOMAIN/CLASS/FILE, or DOMAIN/images/CLASS/FILE.

    Args:
      folder: with `amazon`, `caltech`, `dslr` and `webcam`.
      track: shows progress.
      size: pixels of a side.

    Returns:
      x uint8 [N, size, size, 3], and the arrays of `by_owner`.

    Raises:
      InputError: a domain is missing, has other classes than the others, or a file is no image.
    """
    places = {}
    for domain in OFFICE_CALTECH:
        place = existing(folder / domain)
        places[domain] = place / "images" if (place / "images").is_dir() else place
    names = [{one.name for one in place.iterdir() if one.is_dir()} for place in places.values()]
    for domain, classes in zip(places, names, strict=True):
        check(
            len(classes) > 1 and classes == names[0],
            f"{places[domain]} has {len(classes)} folders of classes, and {OFFICE_CALTECH[0]} has "
            f"{len(names[0])}: expected two or more, the same in all domains",
        )
    classes = sorted(names[0])
    shown = {
        domain: [
            (file, label)
            for label, name in enumerate(classes)
            for file in sorted((place / name).iterdir())
            if file.suffix.lower() in SUFFIXES
        ]
        for domain, place in places.items()
    }
    return _images(shown, classes, size, track)


def read_domainnet(
    folder: Path, track: Track = no_progress, *, size: int = 32, classes: Sequence[str] = ()
) -> Arrays:
    """DomainNet: things of 345 classes, whose owners are six kinds of images.

    Peng et al., 2019, https://ai.bu.edu/M3SDA. The lists `DOMAIN_train.txt` and `DOMAIN_test.txt`
    are read together. Domains that have no list are left out.

    Args:
      folder: with the lists, and the folders of the images beside them.
      track: shows progress.
      size: pixels of a side.
      classes: to read; all if none are given.

    Returns:
      x uint8 [N, size, size, 3], and the arrays of `by_owner`.

    Raises:
      InputError: a list or an image is missing or damaged, or there is one domain alone.
    """
    shown: dict[str, list[tuple[Path, int]]] = {}
    names: dict[int, str] = {}
    for domain in DOMAINNET:
        if not (folder / f"{domain}_train.txt").exists():
            continue
        images = shown[domain] = []
        for split in ("train", "test"):
            file = existing(folder / f"{domain}_{split}.txt")
            for number, line in enumerate(file.read_text("latin-1").splitlines(), start=1):
                path, _, label = line.strip().rpartition(" ")
                parts = path.split("/")
                check(
                    len(parts) == 3
                    and parts[0] == domain
                    and not {"", ".", ".."} & set(parts)
                    and label.isascii()
                    and label.isdecimal()
                    and len(label) < 5
                    and names.setdefault(int(label), parts[1]) == parts[1],
                    f"{file}, line {number}: expected {domain}/CLASS/FILE and the number of the "
                    f"class, always the same, not {line!r:.60}",
                )
                if not classes or parts[1] in classes:
                    images.append((folder / path, int(label)))
    check(
        len(shown) > 1,
        f"{folder} holds the lists of {len(shown)} domain: expected two or more of "
        f"{', '.join(DOMAINNET)}",
    )
    all_names = [names.get(label, "") for label in range(max(names, default=0) + 1)]
    return _images(shown, all_names, size, track)


def _images(
    shown: dict[str, list[tuple[Path, int]]], classes: Sequence[str], size: int, track: Track
) -> Arrays:
    """The images of each domain and their labels."""
    parts = {}
    for domain, images in shown.items():
        check(bool(images), f"the domain {domain} holds no image: download it again")
        for file, _ in images:
            check(file.is_file(), f"{file} is missing: expected all images that are listed")
        files = track([file for file, _ in images], f"reading {domain}", len(images))
        y = np.array([label for _, label in images], np.int32)
        parts[domain] = [(read_images(files, size, coloured=True), y)]
    return by_owner(parts, classes)
