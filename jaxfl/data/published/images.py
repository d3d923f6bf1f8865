"""Published files of colour images, read as plain arrays: CIFAR's binary version and SVHN's .mat.

As the readers of `originals`, each takes a folder and returns `x_train y_train x_test y_test`: x
uint8 [N, 32, 32, 3], y int32 [N]. A missing or damaged file raises an `InputError`.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from jaxfl.core.errors import InputError, check
from jaxfl.data.published.originals import Arrays, existing
from jaxfl.data.published.reading_progress import Track, no_progress

SIDE = 32
PIXELS = 3 * SIDE * SIDE

CIFAR10_TRAIN = tuple(f"data_batch_{i}.bin" for i in range(1, 6))
CIFAR10_TEST = "test_batch.bin"
CIFAR100_TRAIN = ("train.bin",)
CIFAR100_TEST = "test.bin"
SVHN_FILES = ("train_32x32.mat", "test_32x32.mat")


def read_cifar(
    folder: Path,
    track: Track = no_progress,
    *,
    train: Sequence[str],
    test: str,
    labels: Sequence[int],
) -> Arrays:
    """CIFAR-10 or CIFAR-100 in its binary version (https://www.cs.toronto.edu/~kriz/cifar.html).

    A file is a sequence of records: one byte for each kind of label, then the red, the green and
    the blue values of an image, row by row. The Python version of the sets is never read, because
    it would have to be unpickled.

    Args:
      folder: holds the files.
      track: shows progress.
      train: files with training examples.
      test: file with test examples.
      labels: number of values of each label byte: (10,), or (20, 100) of coarse and fine labels;
        the last one is the label of the example.

    Raises:
      InputError: a file is missing, is no sequence of whole records, or holds other labels.
    """
    parts = []
    for name in track((*train, test), "reading", len(train) + 1):
        parts.append(_read_records(folder / name, labels))
    return {
        "x_train": np.concatenate([x for x, _ in parts[:-1]]),
        "y_train": np.concatenate([y for _, y in parts[:-1]]),
        "x_test": parts[-1][0],
        "y_test": parts[-1][1],
    }


def _read_records(file: Path, labels: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """The images and labels of one binary file."""
    raw = np.frombuffer(existing(file).read_bytes(), np.uint8)
    size = len(labels) + PIXELS
    check(
        raw.size > 0 and raw.size % size == 0,
        f"{file} has {raw.size} bytes: expected a multiple of {size}, the bytes of a label and an "
        "image, download it again",
    )
    records = raw.reshape(-1, size)
    for place, classes in enumerate(labels):
        high = int(records[:, place].max())
        check(
            high < classes,
            f"{file} holds the label {high}: expected 0 to {classes - 1}, download it again",
        )
    x = records[:, len(labels) :].reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(x), records[:, len(labels) - 1].astype(np.int32)


def read_svhn(folder: Path, track: Track = no_progress) -> Arrays:
    """SVHN's cropped digits (http://ufldl.stanford.edu/housenumbers/), where 10 is the digit 0.

    `train_32x32.mat` and `test_32x32.mat` are MATLAB files with X uint8 [32, 32, 3, N] and y
    [N, 1] in 1 to 10.

    Raises:
      InputError: a file is missing or damaged, or holds other arrays or labels.
    """
    arrays = {}
    for split, name in zip(("train", "test"), track(SVHN_FILES, "reading", 2), strict=True):
        x, y = _read_mat(folder / name)
        arrays |= {f"x_{split}": x, f"y_{split}": y}
    return arrays


def _read_mat(file: Path) -> tuple[np.ndarray, np.ndarray]:
    """The images and labels of one MATLAB file; its text and its objects are not read."""
    from scipy.io import loadmat

    existing(file)
    try:
        arrays = loadmat(file, variable_names=("X", "y"))
    except Exception as error:  # SciPy raises a dozen types for a damaged or hostile file
        raise InputError(
            f"cannot read {file} as a MATLAB file ({error!r:.200}): download it again"
        ) from error
    x = arrays.get("X", np.zeros(0))
    y = arrays.get("y", np.zeros(0))
    check(
        x.ndim == 4
        and x.shape[:3] == (SIDE, SIDE, 3)
        and x.dtype == np.uint8
        and x.shape[3] > 0
        and y.shape == (x.shape[3], 1)
        and y.dtype.kind in "uif",
        f"{file} holds X {x.dtype} {x.shape} and y {y.dtype} {y.shape}: expected bytes "
        "(32, 32, 3, N) and numbers (N, 1), download it again",
    )
    check(
        bool(np.isin(y, np.arange(1, 11)).all()),
        f"{file} holds labels other than 1 to 10: download it again",
    )
    labels = y[:, 0].astype(np.int32) % 10
    return np.ascontiguousarray(x.transpose(3, 0, 1, 2)), labels
