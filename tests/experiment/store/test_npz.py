"""Arrays of npz files that are written and read part by part, compared with NumPy's own."""

import tracemalloc
import zipfile

import numpy as np
import pytest

from jaxfl.core.errors import InputError
from jaxfl.experiment.store import npz
from jaxfl.experiment.store.npz import Member

RNG = np.random.default_rng(0)
ARRAYS = {
    "weights": RNG.random((2, 3, 4, 4)).astype(np.float32),
    "weights_params/Dense_0": RNG.random((2, 3, 4, 4)),
    "ids": RNG.integers(0, 9, (2, 3, 4), np.int32),
    "lines": np.array([b"{}", b'{"round": 2}']),
    "nothing": np.zeros((0, 3), np.int64),
    "flags": np.array([True, False]),
    "number": np.array(7),
}


def test_numpy_reads_what_was_written_in_parts(tmp_path):
    members = {name: npz.whole(array) for name, array in ARRAYS.items()}
    matrices = (matrix for seed in ARRAYS["weights"] for matrix in seed)
    members["weights"] = Member((2, 3, 4, 4), np.dtype(np.float32), matrices)
    npz.write_parts(tmp_path / "x.npz", members)
    with np.load(tmp_path / "x.npz", allow_pickle=False) as stored:
        assert list(stored) == list(ARRAYS)
        for name, array in ARRAYS.items():
            assert stored[name].dtype == array.dtype
            np.testing.assert_array_equal(stored[name], array)
    assert [path.name for path in tmp_path.iterdir()] == ["x.npz"]


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_parts_of_what_numpy_wrote_are_those_of_the_array(tmp_path, save):
    file = tmp_path / "x.npz"
    save(file, **ARRAYS)
    shapes = npz.read_shapes(file)
    assert shapes == {name: (array.shape, array.dtype) for name, array in ARRAYS.items()}
    weights = ARRAYS["weights"]
    rounds = npz.read_parts(file, "weights", [0, 2], axes=2)  # of the first seed
    np.testing.assert_array_equal([*rounds], weights[0, [0, 2]])
    seeds = npz.read_parts(file, "weights")
    np.testing.assert_array_equal([*seeds], weights)


def test_what_numpy_could_only_unpickle_or_turn_is_refused(tmp_path):
    for number, array in enumerate([np.array([{}]), np.asfortranarray(np.ones((2, 3)))]):
        file = tmp_path / f"{number}.npz"
        np.savez(file, x=array)
        with pytest.raises(InputError, match=r"cannot read .*npz .*no plain elements"):
            npz.read_shapes(file)


def test_a_header_that_is_too_long_to_be_one_is_not_parsed(tmp_path):
    nested = b"(" * 10**5
    content = b"\x93NUMPY\x02\x00" + len(nested).to_bytes(4, "little") + nested
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("x.npy", content)
    with pytest.raises(InputError, match=r"cannot read .*npz .*a header of 100000 bytes"):
        npz.read_shapes(tmp_path / "x.npz")


def test_a_damaged_file_is_refused(tmp_path):
    file = tmp_path / "x.npz"
    npz.write_parts(file, {"x": npz.whole(np.zeros((9, 99)))})
    for content in (b"", b"no archive", file.read_bytes()[:-9]):
        file.write_bytes(content)
        with pytest.raises(InputError, match=r"cannot read .*x\.npz"):
            next(npz.read_parts(file, "x"))


def test_a_file_that_cannot_be_finished_leaves_the_one_before(tmp_path):
    def matrices():
        yield np.zeros(3)
        raise InputError("cannot read the second one")

    file = tmp_path / "x.npz"
    npz.write_parts(file, {"x": npz.whole(np.ones(3))})
    with pytest.raises(InputError, match="second"):
        npz.write_parts(file, {"x": Member((2, 3), np.dtype(float), matrices())})
    assert [path.name for path in tmp_path.iterdir()] == ["x.npz"]
    assert np.load(file, allow_pickle=False)["x"].tolist() == [1, 1, 1]


def test_memory_holds_one_part(tmp_path):
    file = tmp_path / "x.npz"
    shape = (64, 2**18)
    tracemalloc.start()
    rows = (np.full(shape[1], number, np.float32) for number in range(shape[0]))
    npz.write_parts(file, {"x": Member(shape, np.dtype(np.float32), rows)}, level=1)
    (last,) = npz.read_parts(file, "x", [shape[0] - 1])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert last.tolist() == [63.0] * shape[1]
    # The array has 64 MiB; reading over what is left out takes steps of 16 MiB.
    assert peak < 40 * 2**20
