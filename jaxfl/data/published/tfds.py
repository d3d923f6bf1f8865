"""Classification sets and MovieLens ratings of TensorFlow Datasets, as plain arrays.

TensorFlow Datasets downloads and prepares a set once, as array_record files in the published order.
These are read through `as_data_source`, without tf.data.
"""

import contextlib
import importlib.util
import io
import logging
import os
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np

from jaxfl.core.errors import InputError, check
from jaxfl.data.published.originals import Arrays
from jaxfl.data.published.ratings import split_ratings
from jaxfl.data.published.reading_progress import Track, no_progress

RATING = ("user_id", "movie_id", "user_rating")
NEEDED = ("tensorflow_datasets", "tensorflow", "importlib_resources", "array_record")
CHUNK = 1024  # rows read at once


def read(
    name: str,
    work: Path,
    *,
    manual_dir: Path | None = None,
    fields: Sequence[str] = (),
    track: Track = no_progress,
) -> Arrays:
    """Prepares a set and reads it.

    Args:
      name: of a builder, or `NAME/CONFIG`. Its `train` examples have one class label and one image
        or text, or they are ratings.
      work: folder for downloads and prepared files, which are not needed afterwards.
      manual_dir: folder with the files that the builder would download, under their published
        names; their sha256 is checked.
      fields: text features to join; the builder's own text feature if empty.
      track: shows progress.

    Returns:
      `x_train y_train x_test y_test`, where texts are lists of strings; ratings also have
      `vocabulary` and `owners`. The test set is the set's `test` part, else its `validation` part,
      else a fifth of `train`.

    Raises:
      InputError: there is no such builder, it has other features, a checksum is wrong, there is no
        network, or packages are not installed.
    """
    missing = [package for package in NEEDED if importlib.util.find_spec(package) is None]
    check(
        not missing,
        f"{name} needs TensorFlow Datasets, but {', '.join(missing)} is not installed: "
        "pip install 'jaxfl[tfds]'",
    )
    with _quiet():
        track((), "starting TensorFlow Datasets", None)
        tfds = import_tfds()
        builder = find_builder(tfds, name, work)
        columns = choose_columns(tfds, name, builder, fields)
        track((), "downloading and preparing", None)
        _download_and_prepare(tfds, name, builder, manual_dir)
        return _read_arrays(name, builder, columns, track)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keeps the logs and progress bars of TensorFlow and TensorFlow Datasets off the terminal."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    # The threads of urllib3 may outlive a failed download.
    logging.getLogger("urllib3").setLevel(logging.ERROR)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        logging.disable(before)


def import_tfds() -> Any:
    """The module `tensorflow_datasets`, without progress bars and long retries."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    # The tfds extra, which a type checker need not have.
    import tensorflow_datasets  # pyright: ignore[reportMissingImports]
    from tensorflow_datasets.core.download import (  # pyright: ignore[reportMissingImports]
        downloader,
    )

    downloader.MAX_RETRIES = 4  # without a network the default of 10 takes minutes
    tensorflow_datasets.disable_progress_bar()
    return tensorflow_datasets


def find_builder(tfds: Any, name: str, work: Path) -> Any:
    """The builder of that name, set up to keep the published order of the examples."""
    try:
        builder = tfds.builder(name, data_dir=work, file_format="array_record", try_gcs=False)
    except Exception as error:
        names = tfds.list_builders(with_community_datasets=False)
        nearest = get_close_matches(name.split("/")[0], names, n=3, cutoff=0.5)
        if name.split("/")[0] in names:
            hint = f"({_one_line(error)})"
        elif nearest:
            hint = f"did you mean {' or '.join(nearest)}?"
        else:
            hint = "see https://www.tensorflow.org/datasets/catalog"
        raise InputError(
            f"TensorFlow Datasets {tfds.__version__} has no set {name!r}: {hint}"
        ) from error
    # By default examples are ordered by a hash of their keys.
    builder.info.as_proto.disable_shuffling = True
    # Files in the manual folder are found by these names.
    for url, info in _downloads(builder).items():
        info.filename = info.filename or url.rsplit("/", 1)[-1]
    return builder


def _downloads(builder: Any) -> dict[str, Any]:
    """Names and checksums of the files that the builder may download, by URL."""
    return builder.url_infos or {}


def choose_columns(
    tfds: Any, name: str, builder: Any, fields: Sequence[str]
) -> tuple[str, Sequence[str]]:
    """The name of the label feature, and those of the inputs: an image, or texts.

    For ratings the label is "" and the inputs are the three columns of `RATING`.

    Raises:
      InputError: the features do not include one class label and one image or text.
    """
    features = builder.info.features
    features = dict(features.items()) if isinstance(features, tfds.features.FeaturesDict) else {}
    if all(column in features for column in RATING):
        return "", RATING
    supervised = builder.info.supervised_keys or ()

    def only(kind: type) -> str:
        """The feature of that kind for supervised learning, or the only one of that kind, or ""."""
        keys = [key for key, feature in features.items() if isinstance(feature, kind)]
        preferred = [key for key in keys if key in supervised]
        if preferred:
            return preferred[0]
        return keys[0] if len(keys) == 1 else ""

    label, image, text = (
        only(kind) for kind in (tfds.features.ClassLabel, tfds.features.Image, tfds.features.Text)
    )
    # A text beside an image is its name, unless the builder says otherwise.
    if image and text in supervised and image not in supervised:
        image = ""
    inputs = tuple(fields) or tuple(filter(None, (image or text,)))
    check(
        bool(label) and bool(inputs),
        f"{name} has the features {', '.join(features)}: "
        "expected one ClassLabel and one Image or Text; "
        "choose a set for classification, or write the arrays to an npz yourself",
    )
    if image:
        kind = np.dtype(features[image].np_dtype)
        check(
            kind == np.uint8,
            f"the images of {name} are of type {kind}: expected bytes, choose another set",
        )
    return label, inputs


def _download_and_prepare(tfds: Any, name: str, builder: Any, manual_dir: Path | None) -> None:
    """Downloads and prepares the set; a failure raises an `InputError` of one line."""
    import requests

    config = tfds.download.DownloadConfig(manual_dir=manual_dir, try_download_gcs=False)
    try:
        builder.download_and_prepare(download_config=config)
    except Exception as error:
        again = (
            "put the files as published into a folder FILES "
            "and repeat the command with --tfds-manual-dir FILES"
        )
        for cause in _causes(error):
            if isinstance(cause, requests.ConnectionError | requests.Timeout):
                url = cause.request.url if cause.request else ""
                files = [
                    info.filename for address, info in _downloads(builder).items() if address == url
                ]
                where = f"{' '.join(files)} from {url}" if files else url or "its files"
                raise InputError(
                    f"cannot download {where} for {name}: without a network, {again}"
                ) from error
            if type(cause).__name__ == "NonMatchingChecksumError":
                raise InputError(
                    f"a file of {name} has a wrong checksum ({_one_line(cause)}): download it again"
                ) from error
        raise InputError(
            f"TensorFlow Datasets cannot prepare {name} ({_one_line(error)}): {again}"
        ) from error


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """The exception and those that led to it."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _one_line(error: BaseException) -> str:
    """The type of an exception and the start of its message."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


def _read_arrays(
    name: str, builder: Any, columns: tuple[str, Sequence[str]], track: Track
) -> Arrays:
    """Reads the prepared set."""
    label, inputs = columns
    parts = tuple(builder.info.splits)
    check("train" in parts, f"{name} has the parts {', '.join(parts)}: expected a part 'train'")
    if not label:
        user, item, rating = zip(*_rows(builder, "train", inputs, track), strict=True)
        return split_ratings(
            np.array(user, np.int64), np.array(item, np.int64), np.array(rating, np.float32)
        )
    x, y = _examples(name, builder, "train", label, inputs, track)
    check(bool((y >= 0).all()), f"the labels of {name} are hidden: choose a set for classification")
    for split in ("test", "validation"):
        if split in parts:
            x_test, y_test = _examples(name, builder, split, label, inputs, track)
            if (y_test >= 0).all():  # the hidden labels of a competition are -1
                return {"x_train": x, "y_train": y, "x_test": x_test, "y_test": y_test}

    # Without a test part, a random fifth of the training examples is the test set.
    order = np.random.default_rng(0).permutation(len(y))
    test = np.sort(order[: len(y) // 5])
    train = np.sort(order[len(y) // 5 :])

    def take(rows: np.ndarray) -> np.ndarray | list[str]:
        return [x[i] for i in rows] if isinstance(x, list) else x[rows]

    return {"x_train": take(train), "y_train": y[train], "x_test": take(test), "y_test": y[test]}


def _rows(builder: Any, split: str, columns: Sequence[str], track: Track) -> Iterator[list[Any]]:
    """The named columns of each example."""
    source = builder.as_data_source(split=split)
    starts = range(0, len(source), CHUNK)
    for first in track(starts, f"reading {split}", len(starts)):
        for row in source.__getitems__(list(range(first, min(first + CHUNK, len(source))))):
            yield [row[column] for column in columns]


def _examples(
    name: str, builder: Any, split: str, label: str, inputs: Sequence[str], track: Track
) -> tuple[np.ndarray | list[str], np.ndarray]:
    """Images uint8 [N, h, w, channel] or texts, and labels int32 [N]."""
    xs = []
    labels = []
    for value, *values in _rows(builder, split, (label, *inputs), track):
        labels.append(value)
        if isinstance(values[0], np.ndarray):
            expected = xs[0] if xs else values[0]
            check(
                values[0].shape == expected.shape,
                f"images of {name} have shapes {expected.shape} and {values[0].shape}: "
                "expected one size for all",
            )
            xs.append(values[0])
        else:
            passage = " ".join(text.decode(errors="replace") for text in values)
            # Yelp's reviews and AG's news write a line break as a backslash and an n.
            xs.append(passage.replace("\\n", " "))
    check(bool(xs), f"the part {split!r} of {name} is empty: choose another set")
    return np.stack(xs) if isinstance(xs[0], np.ndarray) else xs, np.array(labels, np.int32)
