"""The route through TensorFlow Datasets: on real files, and on small builders of every kind."""

import importlib.util
import os
import re
from pathlib import Path

import numpy as np
import pytest

from jaxfl.core.errors import InputError
from jaxfl.data.published import tfds
from jaxfl.data.published.prepare_published import prepare
from jaxfl.data.published.ratings import split_ratings
from jaxfl.data.published.recipes import RECIPES

MANUAL = os.environ.get("JAXFL_TFDS_MANUAL_DIR")
pytestmark = [
    pytest.mark.tfds,
    pytest.mark.filterwarnings("ignore"),  # those of TensorFlow are not ours
    pytest.mark.skipif(
        any(importlib.util.find_spec(package) is None for package in tfds.NEEDED),
        reason="TensorFlow Datasets is not installed: pip install 'jaxfl[tfds]'",
    ),
]


@pytest.mark.slow
@pytest.mark.skipif(
    not MANUAL,
    reason="JAXFL_TFDS_MANUAL_DIR is not set: a folder with mnist/ and fashion_mnist/ as published",
)
@pytest.mark.parametrize("name", ["fashion_mnist", "mnist"])
def test_real_files_give_the_same_bytes_as_without_tensorflow_datasets(tmp_path, name):
    ours = prepare(name, tmp_path, manual_dir=MANUAL)
    theirs = tfds.read(name, tmp_path / "work", manual_dir=Path(MANUAL) / name)
    with np.load(ours, allow_pickle=False) as arrays:
        assert set(arrays) == set(theirs) == {"x_train", "y_train", "x_test", "y_test"}
        for key, array in theirs.items():
            assert (array.dtype, array.shape) == (arrays[key].dtype, arrays[key].shape)
            assert array.tobytes() == arrays[key].tobytes()


RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (40, 6, 5, 3), np.uint8)
LABELS = RNG.integers(0, 4, 40)
RATINGS = [(u, i, (u * i) % 5 + 1) for u in range(1, 13) for i in range(1, 21)]
TEXTS = ["a cat", "the cat's größe", "dog " * 9, "a the the"]


def builder(name, features, parts, supervised=None):
    """Registers a set with TensorFlow Datasets; keys are strings, by which it would shuffle."""
    import tensorflow_datasets

    def info(self):
        return tensorflow_datasets.core.DatasetInfo(
            builder=self,
            features=tensorflow_datasets.features.FeaturesDict(features),
            supervised_keys=supervised,
        )

    def generators(self, downloads):
        return {
            part: ((f"key{i}", row) for i, row in enumerate(rows)) for part, rows in parts.items()
        }

    body = {"_info": info, "_split_generators": generators, "_generate_examples": None}
    version = {
        "VERSION": tensorflow_datasets.core.Version("1.0.0"),
        "pkg_dir_path": None,
        "__module__": __name__,
    }
    return type(name, (tensorflow_datasets.core.GeneratorBasedBuilder,), body | version)


@pytest.fixture(scope="module", autouse=True)
def toys():
    """Small sets of every kind: their builders are found by name."""
    import tensorflow_datasets

    kinds = tensorflow_datasets.features
    image, label, text = kinds.Image(shape=(6, 5, 3)), kinds.ClassLabel(num_classes=4), kinds.Text()
    images = [{"picture": x, "kind": int(y)} for x, y in zip(IMAGES, LABELS, strict=True)]
    posts = [{"text": text, "label": i % 2, "title": f"t{i}\\nnew"} for i, text in enumerate(TEXTS)]
    ratings = [
        {"user_id": str(u), "movie_id": str(i), "user_rating": r, "note": ""} for u, i, r in RATINGS
    ]
    unequal = [{"picture": IMAGES[0][:n], "kind": 0} for n in (6, 6, 5)]
    spec = {"picture": image, "kind": label}
    named = {"text": text, "label": label, "title": text}
    hidden = [row | {"label": -1} for row in posts]
    rating = {"user_id": np.str_, "movie_id": np.str_, "user_rating": np.float32, "note": np.str_}
    return [
        builder("ToyImages", spec, {"test": images[30:], "train": images[:30]}),
        builder("ToyTrainOnly", spec, {"train": images}),
        builder("ToyUnequal", {"picture": kinds.Image(), "kind": label}, {"train": unequal}),
        builder(
            "ToyDeep",
            {"picture": kinds.Image(shape=(6, 5, 3), dtype=np.uint16), "kind": label},
            {"train": [row | {"picture": row["picture"].astype(np.uint16)} for row in images]},
        ),
        builder("ToyTexts", named, {"train": posts, "test": posts[:1]}, ("text", "label")),
        builder(
            "ToyHidden",
            named,
            {"train": posts, "test": hidden, "validation": posts[2:]},
            ("text", "label"),
        ),
        builder("ToySecret", named, {"train": hidden}, ("text", "label")),
        builder("ToyUnclear", named, {"train": posts}),
        builder("ToyNoTrain", named, {"dev": posts}, ("text", "label")),
        builder("ToyRatings", rating, {"train": ratings}),
    ]


def loaded(file):
    with np.load(file, allow_pickle=False) as arrays:
        return dict(arrays)


def test_images_keep_their_order(tmp_path):
    arrays = loaded(prepare("toy_images", tmp_path))
    np.testing.assert_array_equal(arrays["x_train"], IMAGES[:30])
    np.testing.assert_array_equal(arrays["x_test"], IMAGES[30:])
    np.testing.assert_array_equal(arrays["y_train"], LABELS[:30])
    np.testing.assert_array_equal(arrays["y_test"], LABELS[30:])
    assert (arrays["x_train"].dtype, arrays["y_train"].dtype) == (np.uint8, np.int32)
    assert os.listdir(tmp_path) == ["toy_images.npz"]


def test_without_a_test_set_a_fifth_tests(tmp_path):
    arrays = loaded(prepare("toy_train_only", tmp_path))
    assert (len(arrays["x_train"]), len(arrays["x_test"])) == (32, 8)
    both = np.concatenate([arrays["x_train"], arrays["x_test"]])
    assert sorted(x.tobytes() for x in both) == sorted(x.tobytes() for x in IMAGES)
    labels = {x.tobytes(): y for x, y in zip(IMAGES, LABELS, strict=True)}
    for part in ("train", "test"):
        assert [labels[x.tobytes()] for x in arrays[f"x_{part}"]] == arrays[f"y_{part}"].tolist()


def test_texts(tmp_path):
    arrays = loaded(prepare("toy_texts", tmp_path, words=3, length=4))
    assert arrays["words"].tolist() == ["dog", "the", "a"]
    np.testing.assert_array_equal(
        arrays["x_train"], [[4, 1, 0, 0], [3, 1, 1, 0], [2, 2, 2, 2], [4, 3, 3, 0]]
    )
    np.testing.assert_array_equal(arrays["x_test"], [[4, 1, 0, 0]])
    np.testing.assert_array_equal(arrays["y_train"], [0, 1, 0, 1])


def test_fields_are_joined(tmp_path):
    assert tfds.read("toy_texts", tmp_path, fields=("title", "text"))["x_test"] == ["t0 new a cat"]
    assert RECIPES["ag_news_subset"].fields == ("title", "description")


def test_hidden_labels_do_not_test(tmp_path):
    arrays = tfds.read("toy_hidden", tmp_path)
    assert arrays["x_test"] == TEXTS[2:]
    np.testing.assert_array_equal(arrays["y_test"], [0, 1])


def test_ratings(tmp_path):
    arrays = loaded(prepare("toy_ratings", tmp_path))
    user, item, rating = np.array(RATINGS).T
    for key, array in split_ratings(user, item, rating).items():
        np.testing.assert_array_equal(arrays[key], array)
        assert arrays[key].dtype == array.dtype


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "toy_unequal",
            "images of toy_unequal have shapes (6, 5, 3) and (5, 5, 3): expected one size for all",
        ),
        ("toy_deep", "the images of toy_deep are of type uint16: expected bytes"),
        (
            "toy_unclear",
            "toy_unclear has the features text, label, title: "
            "expected one ClassLabel and one Image or",
        ),
        ("toy_no_train", "toy_no_train has the parts dev: expected a part 'train'"),
        ("toy_secret", "the labels of toy_secret are hidden"),
        ("toy_imags", "has no set 'toy_imags': did you mean toy_images"),
        ("toy_images/nothing", "has no set 'toy_images/nothing'"),
        ("qqqqqqqqqqqqqqqq", "see https://www.tensorflow.org/datasets/catalog"),
    ],
)
def test_what_cannot_be_prepared_is_told_in_one_line(tmp_path, name, message):
    with pytest.raises(InputError, match=re.escape(message)) as caught:
        prepare(name, tmp_path)
    assert "\n" not in str(caught.value)
    assert os.listdir(tmp_path) == []


def test_an_interruption_leaves_nothing(tmp_path, toys, monkeypatch):
    def rows():
        yield "0", {"picture": IMAGES[0], "kind": 0}
        raise KeyboardInterrupt

    monkeypatch.setattr(toys[0], "_split_generators", lambda self, downloads: {"train": rows()})
    with pytest.raises(KeyboardInterrupt):
        prepare("toy_images", tmp_path)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("mnist", RECIPES["mnist"].files),
        ("svhn_cropped", [f"{part}_32x32.mat" for part in ("train", "test", "extra")]),
    ],
)
def test_files_fetched_by_hand_are_found_and_their_checksums_looked_at(tmp_path, name, published):
    for file in published:
        (tmp_path / file).write_bytes(b"not as published")
    with pytest.raises(InputError, match=f"a file of {name} has a wrong checksum") as caught:
        tfds.read(name, tmp_path / "work", manual_dir=tmp_path)
    assert "\n" not in str(caught.value)


def test_without_a_network_the_file_and_the_option_are_told(tmp_path, monkeypatch):
    import requests

    def send(self, request, **more):
        raise requests.ConnectionError("no network", request=request)

    monkeypatch.setattr(requests.adapters.HTTPAdapter, "send", send)
    with pytest.raises(
        InputError, match=r"cannot download ag_news_csv.tar.gz .* --tfds-manual-dir FILES"
    ) as caught:
        prepare("ag_news_subset", tmp_path)
    assert "\n" not in str(caught.value)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", [name for name, recipe in RECIPES.items() if recipe.tfds])
def test_the_sets_of_the_table_are_there(tmp_path, name):
    builder = tfds.find_builder(tfds.import_tfds(), name, tmp_path)
    assert tfds.choose_columns(tfds.import_tfds(), name, builder, RECIPES[name].fields)[1]
