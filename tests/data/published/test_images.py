"""Readers of CIFAR's binary version and of SVHN's .mat, on small files of the published format."""

import re
import struct

import numpy as np
import pytest
import scipy.io

from jaxfl.core.errors import InputError
from jaxfl.data import list_data_sets, load
from jaxfl.data.published.images import read_svhn
from jaxfl.data.published.prepare_published import prepare

CIFAR10 = "cifar-10-batches-bin"
CIFAR100 = "cifar-100-binary"


def fails(read, message):
    """The reader raises an `InputError` of one line."""
    with pytest.raises(InputError, match=re.escape(message)) as caught:
        read()
    assert "\n" not in str(caught.value)


def record(labels, image):
    """One record, byte by byte: the labels, then all red values, all green and all blue ones."""
    out = bytearray(labels)
    for channel in range(3):
        for row in range(32):
            for column in range(32):
                out += struct.pack("B", image[row, column, channel])
    return bytes(out)


def draw(examples, seed):
    return np.random.default_rng(seed).integers(0, 256, (examples, 32, 32, 3), np.uint8)


@pytest.fixture
def cifar10(tmp_path):
    """A data folder with CIFAR-10's six files of two records each; the images and the labels."""
    folder = tmp_path / CIFAR10
    folder.mkdir()
    names = [f"data_batch_{i}.bin" for i in (1, 2, 3, 4, 5)] + ["test_batch.bin"]
    images, labels = draw(12, 0), np.array([3, 9, 0, 1, 2, 4, 5, 6, 7, 8, 0, 9])
    for place, name in enumerate(names):
        rows = [2 * place, 2 * place + 1]
        (folder / name).write_bytes(b"".join(record([labels[i]], images[i]) for i in rows))
    (folder / "batches.meta.txt").write_text("airplane\n")
    return tmp_path, images, labels


def test_cifar10(cifar10):
    root, images, labels = cifar10
    assert "cifar10" in list_data_sets(root)
    source = load("cifar10", root)
    np.testing.assert_array_equal(source.x_train, images[:10])
    np.testing.assert_array_equal(source.y_train, labels[:10])
    np.testing.assert_array_equal(source.x_test, images[10:])
    np.testing.assert_array_equal(source.y_test, labels[10:])
    assert (source.x_train.dtype, source.y_train.dtype, source.mirrors) == ("uint8", "int32", True)
    assert (root / "cifar10.npz").exists()


def test_cifar100_has_the_fine_labels(tmp_path):
    folder = tmp_path / "by_hand" / CIFAR100
    folder.mkdir(parents=True)
    images = draw(5, 1)
    fine = [99, 0, 47, 1, 19]
    coarse = [19, 0, 3, 1, 2]
    rows = [record(labels, x) for *labels, x in zip(coarse, fine, images, strict=True)]
    (folder / "train.bin").write_bytes(b"".join(rows[:3]))
    (folder / "test.bin").write_bytes(b"".join(rows[3:]))
    for manual in (folder, folder.parent):
        target = tmp_path / manual.name
        with np.load(prepare("cifar100", target / "out", manual_dir=manual)) as arrays:
            np.testing.assert_array_equal(arrays["x_train"], images[:3])
            np.testing.assert_array_equal(arrays["y_train"], fine[:3])
            np.testing.assert_array_equal(arrays["x_test"], images[3:])
            np.testing.assert_array_equal(arrays["y_test"], fine[3:])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda raw: raw[:-1], "has 6145 bytes: expected a multiple of 3073"),
        (lambda raw: b"", "has 0 bytes: expected a multiple of 3073"),
        (lambda raw: b"\x0a" + raw[1:], "holds the label 10: expected 0 to 9"),
    ],
)
def test_cifar_damaged(cifar10, damage, message):
    root, *_ = cifar10
    file = root / CIFAR10 / "data_batch_3.bin"
    file.write_bytes(damage(file.read_bytes()))
    fails(lambda: prepare("cifar10", root), f"{file} {message}")
    assert not (root / "cifar10.npz").exists()


def test_cifar_missing(cifar10):
    root, *_ = cifar10
    (root / CIFAR10 / "data_batch_5.bin").unlink()
    fails(
        lambda: prepare("cifar10", root),
        f"{root / CIFAR10 / 'data_batch_5.bin'} is missing: expected it in its published form",
    )


def write_svhn(folder, compress=True, **changes):
    """SVHN's two files with 4 and 3 images; `changes` of the arrays of the training set."""
    folder.mkdir(parents=True, exist_ok=True)
    held = {}
    for part, examples, labels in (("train", 4, [10, 1, 9, 10]), ("test", 3, [5, 10, 2])):
        images = draw(examples, examples)
        arrays = {"X": images.transpose(1, 2, 3, 0), "y": np.array(labels, np.uint8)[:, None]}
        if part == "train":
            arrays |= changes
        scipy.io.savemat(folder / f"{part}_32x32.mat", arrays, do_compression=compress)
        held[part] = (images, np.array(labels) % 10)
    return held


@pytest.mark.parametrize("compress", [True, False])
def test_svhn(tmp_path, compress):
    held = write_svhn(tmp_path / "svhn", compress)
    arrays = read_svhn(tmp_path / "svhn")
    for part, (images, labels) in held.items():
        np.testing.assert_array_equal(arrays[f"x_{part}"], images)
        np.testing.assert_array_equal(arrays[f"y_{part}"], labels)
    assert (arrays["x_train"].dtype, arrays["y_train"].dtype) == (np.uint8, np.int32)
    assert arrays["y_train"].tolist() == [0, 1, 9, 0]
    assert prepare("svhn_cropped", tmp_path) == tmp_path / "svhn_cropped.npz"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y": np.zeros((4, 1), np.uint8)}, "holds labels other than 1 to 10"),
        ({"y": np.full((4, 1), 11, np.uint8)}, "holds labels other than 1 to 10"),
        ({"y": np.full((4, 1), np.nan)}, "holds labels other than 1 to 10"),
        ({"y": np.ones((3, 1), np.uint8)}, "expected bytes (32, 32, 3, N) and numbers (N, 1)"),
        ({"X": np.ones((32, 32, 3, 4))}, "holds X float64 (32, 32, 3, 4)"),
        ({"X": "text"}, "expected bytes (32, 32, 3, N)"),
        ({"X": {"field": 1}}, "expected bytes (32, 32, 3, N)"),
    ],
)
def test_svhn_of_another_kind(tmp_path, changes, message):
    write_svhn(tmp_path, **changes)
    fails(lambda: read_svhn(tmp_path), message)


@pytest.mark.parametrize("damage", [lambda raw: raw[:200], lambda raw: b"", lambda raw: b"x" * 999])
def test_svhn_damaged(tmp_path, damage):
    write_svhn(tmp_path)
    file = tmp_path / "test_32x32.mat"
    file.write_bytes(damage(file.read_bytes()))
    fails(lambda: read_svhn(tmp_path), f"cannot read {file} as a MATLAB file")


def test_svhn_missing_or_without_arrays(tmp_path):
    write_svhn(tmp_path)
    scipy.io.savemat(tmp_path / "test_32x32.mat", {"z": 1})
    fails(lambda: read_svhn(tmp_path), f"{tmp_path / 'test_32x32.mat'} holds X float64 (0,)")
    (tmp_path / "train_32x32.mat").unlink()
    fails(lambda: read_svhn(tmp_path), f"{tmp_path / 'train_32x32.mat'} is missing")
