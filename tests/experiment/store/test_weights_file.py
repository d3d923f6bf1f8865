"""Weights are read from safetensors files, and a hostile one is refused in one line."""

import json
import struct

import jax.numpy as jnp
import numpy as np
import pytest

from jaxfl.experiment.store.weights_file import read_weights


def written(folder, header, content=b"", length=None):
    """A file of a header, which may be bytes, and content, as the format says."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    file = folder / "x.safetensors"
    size = len(text) if length is None else length
    file.write_bytes(struct.pack("<Q", size) + text + content)
    return file


def array(dtype, shape, *offsets):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


def test_all_types_of_fractions_are_read(tmp_path):
    """The numbers are packed by `struct`; bfloat16 is the upper half of float32."""
    values = [1.5, -2.0, 0.25]
    upper = b"".join(struct.pack("<f", value)[2:] for value in values)
    content = struct.pack("<3d", *values) + struct.pack("<3f", *values)
    content += struct.pack("<3e", *values) + upper + struct.pack("<f", 7.0)
    header = {
        "__metadata__": {"format": "pt"},
        "b": array("BF16", (3,), 42, 48),
        "d": array("F64", (3, 1), 0, 24),
        "f": array("F32", (1, 3), 24, 36),
        "h": array("F16", (3,), 36, 42),
        "none": array("F32", (0, 2), 48, 48),
        "scalar": array("F32", (), 48, 52),
    }
    padded = json.dumps(header).encode() + b"   "
    weights = read_weights(written(tmp_path, padded, content))
    assert {name: one.shape for name, one in weights.items()} == {
        "b": (3,),
        "d": (3, 1),
        "f": (1, 3),
        "h": (3,),
        "none": (0, 2),
        "scalar": (),
    }
    for name in "bdfh":
        assert weights[name].astype(float).ravel().tolist() == values
    assert weights["scalar"] == 7.0
    assert weights["b"].dtype == jnp.bfloat16


GOOD = {"w": array("F32", (2,), 0, 8)}
HOSTILE = {
    "a header longer than the file": (GOOD, b"12345678", 2**63),
    "a header of 101 MB": (b"{}" + b" " * 101_000_000, b"", None),
    "no JSON": (b"{nothing", b"", None),
    "no text": (b"\xff\xfe\xfd", b"", None),
    "no object": ([1, 2], b"", None),
    "nested too deeply": (b"[" * 100_000, b"", None),
    "a type of code": ({"w": array("object", (2,), 0, 8)}, b"12345678", None),
    "whole numbers": ({"w": array("I64", (1,), 0, 8)}, b"12345678", None),
    "a type that is no text": ({"w": array(["F32"], (2,), 0, 8)}, b"12345678", None),
    "an array that is a number": ({"w": 3}, b"", None),
    "a shape of another size": ({"w": array("F32", (3,), 0, 8)}, b"12345678", None),
    "a negative shape": ({"w": array("F32", (-1, -2), 0, 8)}, b"12345678", None),
    "a shape of fractions": ({"w": array("F32", (2.0,), 0, 8)}, b"12345678", None),
    "a shape of a truth value": ({"w": array("F64", (True,), 0, 8)}, b"12345678", None),
    "a huge shape": ({"w": array("F32", (2**62, 2**62), 0, 8)}, b"12345678", None),
    "a hundred axes": ({"w": array("F64", (1,) * 100, 0, 8)}, b"12345678", None),
    "bytes behind the end": ({"w": array("F32", (2,), 8, 16)}, b"12345678", None),
    "bytes from the end on": ({"w": array("F32", (2,), 0, 8)}, b"1234", None),
    "an end before the beginning": ({"w": array("F32", (2,), 8, 0)}, b"12345678", None),
    "one offset": ({"w": array("F32", (2,), 8)}, b"12345678", None),
    "two arrays in one place": (
        {"v": array("F32", (2,), 0, 8), "w": array("F32", (2,), 0, 8)},
        b"12345678",
        None,
    ),
    "bytes of no array": (GOOD, b"123456789", None),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_refused_in_one_line(name, tmp_path):
    with pytest.raises(ValueError, match=r"^[^\n]{1,300}$"):
        read_weights(written(tmp_path, *HOSTILE[name]))


@pytest.mark.parametrize("name", ["a shape of fractions", "a hundred axes", "one offset"])
def test_what_is_no_shape_or_place_is_not_computed_with(name, tmp_path):
    with pytest.raises(ValueError, match="'w' has no shape, or no place in the file"):
        read_weights(written(tmp_path, *HOSTILE[name]))


@pytest.mark.parametrize("content", [b"", b"1234", b"\x02\0\0\0\0\0\0\0{"])
def test_a_cut_file_is_refused(content, tmp_path):
    (tmp_path / "x.safetensors").write_bytes(content)
    with pytest.raises(ValueError, match="its header would have"):
        read_weights(tmp_path / "x.safetensors")


def test_an_npz_file_with_code_is_refused(tmp_path):
    np.savez(tmp_path / "x.npz", w=np.array([{"a": 1}], object))
    with pytest.raises(ValueError, match="pickle"):
        read_weights(tmp_path / "x.npz")
    np.savez(tmp_path / "x.npz", w=np.arange(3))
    with pytest.raises(ValueError, match="it holds whole numbers alone, such as 'w'"):
        read_weights(tmp_path / "x.npz")
    np.savez(tmp_path / "x.npz", w=np.ones(3, complex))
    with pytest.raises(ValueError, match="'w' is complex128, and weights are fractions"):
        read_weights(tmp_path / "x.npz")


@pytest.mark.parametrize(("kind", "form"), [("I64", "q"), ("I32", "i"), ("U8", "B"), ("BOOL", "?")])
def test_counters_positions_and_masks_are_no_weights(kind, form, tmp_path):
    """PyTorch has a counter of batches beside the statistics of each BatchNorm."""
    size = struct.calcsize(f"<{form}")
    header = {
        "bn.num_batches_tracked": array(kind, (), 0, size),
        "bn.weight": array("F32", (1,), size, size + 4),
    }
    content = struct.pack(f"<{form}", 1) + struct.pack("<f", 0.5)
    weights = read_weights(written(tmp_path, header, content))
    assert {name: one.tolist() for name, one in weights.items()} == {"bn.weight": [0.5]}
    np.savez(tmp_path / "x.npz", **{"bn.num_batches_tracked": np.array(7), "w": np.ones(1)})
    assert list(read_weights(tmp_path / "x.npz")) == ["w"]


def test_it_reads_what_the_library_writes(tmp_path):
    library = pytest.importorskip("safetensors.numpy")
    weights = {"params/a": np.ones((2, 3), np.float32), "params/b": np.arange(4.0)}
    library.save_file(weights, tmp_path / "x.safetensors")
    read = read_weights(tmp_path / "x.safetensors")
    for name, one in weights.items():
        np.testing.assert_array_equal(read[name], one)
