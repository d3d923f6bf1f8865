"""Files of arrays: what is damaged is said in one line."""

import io

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs the extra flower: pip install 'jaxfl[flower]'")

from jaxfl.core.errors import InputError
from jaxfl.serve.state import read_arrays


def packed():
    buffer = io.BytesIO()
    np.savez(buffer, array=np.arange(2))
    return bytearray(buffer.getvalue())


def test_a_damaged_file_is_refused_in_one_line_whichever_byte_is_wrong(tmp_path):
    file, whole = tmp_path / "state.npz", packed()
    messages = []
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 0xFF
        file.write_bytes(damaged)
        try:
            read_arrays(file)
        except InputError as error:
            messages.append(str(error))
    assert all(message.startswith(f"{file} is damaged (") for message in messages)
    assert not any("\n" in message for message in messages)


def test_a_part_of_a_file_is_refused(tmp_path):
    file, whole = tmp_path / "state.npz", packed()
    for size in (0, 1, 4, 100, len(whole) - 1):
        file.write_bytes(whole[:size])
        with pytest.raises(InputError, match="is damaged"):
            read_arrays(file)
