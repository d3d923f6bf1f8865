"""Classification sets and MovieLens ratings of TensorFlow Datasets, as plain arrays.

TensorFlow Datasets downloads and prepares a set once, as array_record files in the published order;
these are read through `as_data_source`, without tf.data.
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

from jaxfl.data.originals import Arrays, Track, rated, untracked
from jaxfl.errors import InputError, check

RATING = ("user_id", "movie_id", "user_rating")
NEEDED = ("tensorflow_datasets", "tensorflow", "importlib_resources", "array_record")
CHUNK = 1024  # rows read at once


def read(
    name: str,
    work: Path,
    *,
    manual_dir: Path | None = None,
    fields: Sequence[str] = (),
    track: Track = untracked,
) -> Arrays:
    """Prepares a set and reads it.

    Args:
      name: of a builder with `train` examples of one class label and one image or text, or of
        ratings; also `NAME/CONFIG`.
      work: folder for downloads and prepared files, which are of no more use afterwards.
      manual_dir: folder with the files that the builder would download, under their published
        names; checked by their sha256.
      fields: text features to join, if not the builder's own choice of one.
      track: shows progress.

    Returns:
      `x_train y_train x_test y_test`, texts as lists of strings; of ratings also `vocabulary` and
      `owners`. What tests is the set's `test`, else its `validation` part, else a fifth of `train`.

    Raises:
      InputError: no such builder, other features, a wrong checksum, no network, or packages that
        are not installed.
    """
    missing = [package for package in NEEDED if importlib.util.find_spec(package) is None]
    check(
        not missing,
        f"{name} is made by TensorFlow Datasets ({', '.join(missing)}): pip install 'jaxfl[tfds]'",
    )
    with quiet():
        track((), "starting TensorFlow Datasets", None)
        tfds = start()
        builder = find(tfds, name, work)
        columns = choose(tfds, name, builder, fields)
        track((), "downloading and preparing", None)
        make(tfds, name, builder, manual_dir)
        return arrays(name, builder, columns, track)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keeps what TensorFlow and TensorFlow Datasets tell of their progress off the terminal."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    logging.getLogger("urllib3").setLevel(
        logging.ERROR
    )  # its threads may outlive a failed download
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        logging.disable(before)


def start() -> Any:
    """The module `tensorflow_datasets`, set up."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import tensorflow_datasets
    from tensorflow_datasets.core.download import downloader

    downloader.MAX_RETRIES = 4  # without a network its 10 take minutes
    tensorflow_datasets.disable_progress_bar()
    return tensorflow_datasets


def find(tfds: Any, name: str, work: Path) -> Any:
    """The builder of that name; it will keep the published order of the examples."""
    try:
        builder = tfds.builder(name, data_dir=work, file_format="array_record", try_gcs=False)
    except Exception as error:
        known = tfds.list_builders(with_community_datasets=False)
        nearest = get_close_matches(name.split("/")[0], known, n=3, cutoff=0.5)
        if name.split("/")[0] in known:
            hint = f"({one_line(error)})"
        elif nearest:
            hint = f"did you mean {' or '.join(nearest)}?"
        else:
            hint = "see https://www.tensorflow.org/datasets/catalog"
        raise InputError(
            f"TensorFlow Datasets {tfds.__version__} has no set {name!r}: {hint}"
        ) from error
    builder.info.as_proto.disable_shuffling = (
        True  # else it would order them by a hash of their keys
    )
    for url, info in files(builder).items():  # by these names files are found in the manual folder
        info.filename = info.filename or url.rsplit("/", 1)[-1]
    return builder


def files(builder: Any) -> dict[str, Any]:
    """What is known of the files that the builder may download: their names and checksums by URL."""
    return builder.url_infos or {}


def choose(tfds: Any, name: str, builder: Any, fields: Sequence[str]) -> tuple[str, Sequence[str]]:
    """The name of the label, and of the image or the texts; or nothing and the three columns of ratings."""
    features = builder.info.features
    features = dict(features.items()) if isinstance(features, tfds.features.FeaturesDict) else {}
    if all(column in features for column in RATING):
        return "", RATING
    supervised = builder.info.supervised_keys or ()

    def only(kind: type) -> str | None:
        """The feature of that kind: the one that the builder names for supervised learning, else if there is one."""
        found = [key for key, feature in features.items() if isinstance(feature, kind)]
        preferred = [key for key in found if key in supervised]
        return preferred[0] if preferred else found[0] if len(found) == 1 else None

    label, image, text = (
        only(kind) for kind in (tfds.features.ClassLabel, tfds.features.Image, tfds.features.Text)
    )
    if image and text:  # a text beside an image is its name, unless the builder says otherwise
        image, text = (
            (None, text) if text in supervised and image not in supervised else (image, None)
        )
    columns = tuple(fields) or tuple(filter(None, (image or text,)))
    check(
        bool(label) and bool(columns),
        f"{name} has the features {', '.join(features)}: expected one ClassLabel and one Image or Text; "
        "choose a set for classification, or write the arrays to an npz yourself",
    )
    if image:
        kind = np.dtype(features[image].np_dtype)
        check(
            kind == np.uint8,
            f"the images of {name} are of type {kind}: expected bytes, choose another set",
        )
    return label, columns


def make(tfds: Any, name: str, builder: Any, manual_dir: Path | None) -> None:
    """Downloads and prepares, with the causes of a failure in one line."""
    import requests

    config = tfds.download.DownloadConfig(manual_dir=manual_dir, try_download_gcs=False)
    try:
        builder.download_and_prepare(download_config=config)
    except Exception as error:
        again = "put the files as published into a folder FILES and repeat the command with --tfds-manual-dir FILES"
        for cause in causes(error):
            if isinstance(cause, requests.ConnectionError | requests.Timeout):
                url = cause.request.url if cause.request else ""
                wanted = [info.filename for known, info in files(builder).items() if known == url]
                where = f"{' '.join(wanted)} from {url}" if wanted else url or "its files"
                raise InputError(
                    f"cannot download {where} for {name}: without a network, {again}"
                ) from error
            if type(cause).__name__ == "NonMatchingChecksumError":
                raise InputError(
                    f"a file of {name} has a wrong checksum ({one_line(cause)}): fetch it again"
                ) from error
        raise InputError(
            f"TensorFlow Datasets cannot prepare {name} ({one_line(error)}): {again}"
        ) from error


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """The exception and those that led to it."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def one_line(error: BaseException) -> str:
    """The kind of an exception and the start of what it says."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


def arrays(name: str, builder: Any, columns: tuple[str, Sequence[str]], track: Track) -> Arrays:
    """Reads the prepared set."""
    label, inputs = columns
    parts = tuple(builder.info.splits)
    check("train" in parts, f"{name} has the parts {', '.join(parts)}: expected a part 'train'")
    if not label:
        user, item, rating = zip(*rows(builder, "train", inputs, track), strict=True)
        return rated(
            np.array(user, np.int64), np.array(item, np.int64), np.array(rating, np.float32)
        )
    x, y = examples(name, builder, "train", label, inputs, track)
    check(bool((y >= 0).all()), f"the labels of {name} are hidden: choose a set for classification")
    for part in ("test", "validation"):
        if part in parts:
            x_test, y_test = examples(name, builder, part, label, inputs, track)
            if (y_test >= 0).all():  # those of a competition's test set are -1
                return {"x_train": x, "y_train": y, "x_test": x_test, "y_test": y_test}
    order = np.random.default_rng(0).permutation(len(y))
    test, train = np.sort(order[: len(y) // 5]), np.sort(order[len(y) // 5 :])
    pick = (lambda rows: [x[i] for i in rows]) if isinstance(x, list) else (lambda rows: x[rows])
    return {"x_train": pick(train), "y_train": y[train], "x_test": pick(test), "y_test": y[test]}


def rows(builder: Any, part: str, columns: Sequence[str], track: Track) -> Iterator[list[Any]]:
    """The named columns of each example."""
    source = builder.as_data_source(split=part)
    starts = range(0, len(source), CHUNK)
    for first in track(starts, f"reading {part}", len(starts)):
        for row in source.__getitems__(list(range(first, min(first + CHUNK, len(source))))):
            yield [row[column] for column in columns]


def examples(
    name: str, builder: Any, part: str, label: str, inputs: Sequence[str], track: Track
) -> tuple[np.ndarray | list[str], np.ndarray]:
    """Images uint8 [N, h, w, channel] or texts, and labels int32 [N]."""
    xs, labels = [], []
    for value, *values in rows(builder, part, (label, *inputs), track):
        labels.append(value)
        if isinstance(values[0], np.ndarray):
            expected = xs[0] if xs else values[0]
            check(
                values[0].shape == expected.shape,
                f"images of {name} have shapes {expected.shape} and {values[0].shape}: expected all of one size",
            )
            xs.append(values[0])
        else:
            joined = " ".join(text.decode(errors="replace") for text in values)
            xs.append(
                joined.replace("\\n", " ")
            )  # as the reviews of Yelp have it, published like AG's news
    check(bool(xs), f"the part {part!r} of {name} is empty: choose another set")
    return np.stack(xs) if isinstance(xs[0], np.ndarray) else xs, np.array(labels, np.int32)
