"""Files of arrays that a user gives."""

import io
import pickle
from pathlib import Path

import numpy as np
import pytest

from jaxfl.core.errors import InputError
from jaxfl.core.npy import read_npy


class Touch:
    """An object whose unpickling leaves a file behind."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (Path.touch, (self.path,))


def saved(array):
    content = io.BytesIO()
    np.save(content, array, allow_pickle=True)
    return content.getvalue()


def archive():
    content = io.BytesIO()
    np.savez(content, a=np.ones(3))
    return content.getvalue()


def test_what_is_pickled_in_a_file_does_not_run(tmp_path):
    trace = tmp_path / "trace"
    for content in (saved(np.array([Touch(trace)], object)), pickle.dumps(Touch(trace))):
        file = tmp_path / "parts.npy"
        file.write_bytes(content)
        with pytest.raises(InputError, match=r"the parts in .* cannot be read"):
            read_npy(file, "the parts")
        assert not trace.exists()
        # Whoever unpickles it does leave the trace.
        np.load(file, allow_pickle=True)
        assert trace.exists()
        trace.unlink()


@pytest.mark.parametrize(
    "content",
    [b"", b"1, 2, 3", b"PK\x03\x04 no archive", archive(), saved(np.ones(3))[:-4]],
    ids=["empty", "text", "damaged archive", "archive", "cut off"],
)
def test_a_file_without_an_array_is_refused_in_one_line(content, tmp_path):
    file = tmp_path / "parts.npy"
    file.write_bytes(content)
    with pytest.raises(InputError, match="expected an array of numbers") as error:
        read_npy(file, "the parts")
    assert "\n" not in str(error.value)


def test_a_file_that_is_missing_or_has_another_name_is_refused(tmp_path):
    np.save(tmp_path / "parts.npy", np.ones(3))
    (tmp_path / "parts.npy").rename(tmp_path / "parts.txt")
    for name in ("parts.npy", "parts.txt"):
        with pytest.raises(InputError, match=r"expected a \.npy file that exists"):
            read_npy(tmp_path / name, "the parts")
