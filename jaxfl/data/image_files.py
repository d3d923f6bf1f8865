"""Image files as arrays of one size."""

import warnings
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

from jaxfl.core.errors import InputError, check, warn

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
# Others, such as PostScript, are read by programs that Pillow starts.
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF", "PPM")
GREY = ("1", "L", "LA")
COLOURED = ("P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr", "HSV", "LAB")


def image_files(folder: Path) -> list[Path]:
    """The images of a folder and of those in it, in the order of their names.

    Hidden files are none, and others are left out with a warning.

    Raises:
      InputError: there is none.
    """
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    hidden = [any(n.startswith(".") for n in path.relative_to(folder).parts) for path in paths]
    found = [path for path, is_hidden in zip(paths, hidden, strict=True) if not is_hidden]
    images = [path for path in found if path.suffix.lower() in SUFFIXES]
    check(
        len(images) > 0,
        f"{folder} holds no image: expected files that end with one of {', '.join(SUFFIXES)}",
    )
    if len(images) < len(found):
        other = next(path for path in found if path not in set(images))
        warn(f"{len(found) - len(images)} files are no images by their names, as {other}: left out")
    return images


def read_images(files: Iterable[Path], size: int) -> np.ndarray:
    """Images as bytes [N, size, size, channels].

    There is one channel if all images are grey, and three otherwise.

    Args:
      files: one or more.
      size: pixels of a side.

    Raises:
      InputError: one cannot be read, its pixels are no bytes, or the size is not positive.
    """
    check_size(size)
    images = [_read(file, size) for file in files]
    if any(image.ndim == 3 for image in images):
        images = [image if image.ndim == 3 else np.stack([image] * 3, axis=2) for image in images]
    else:
        images = [image[..., None] for image in images]
    return np.stack(images)


def check_size(size: int) -> None:
    """Raises an `InputError` unless the pixels of a side are 1 to 2,048."""
    check(0 < size <= 2048, f"--size is {size}: expected 1 to 2,048 pixels of a side")


def _read(file: Path, size: int) -> np.ndarray:
    """An image as bytes [size, size], if it is grey, or [size, size, 3].

    Raises:
      InputError: it cannot be read, it has more pixels than a photo, or its pixels are no bytes.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(file, formats=FORMATS) as image:
                mode, frames = image.mode, getattr(image, "n_frames", 1)
                turned = ImageOps.exif_transpose(image)
                plain = turned.convert("L" if mode in GREY else "RGB")
                square = ImageOps.fit(plain, (size, size), Image.Resampling.BILINEAR)
    except (Image.DecompressionBombWarning, Image.DecompressionBombError) as error:
        raise InputError(
            f"{file} has more than {Image.MAX_IMAGE_PIXELS:,} pixels, as no photo has: "
            "save it smaller, or leave it out"
        ) from error
    except Exception as error:  # a damaged file raises a dozen types
        raise InputError(
            f"cannot read {file} as an image ({error!r:.80}): remove it or save it anew"
        ) from error
    check(
        mode in (*GREY, *COLOURED),
        f"{file} has pixels of mode {mode}, which are no bytes: save it with 8 bits a channel",
    )
    check(
        frames == 1,
        f"{file} holds {frames} images, as of a film or of pages: save each in a file of its own",
    )
    return np.asarray(square)
