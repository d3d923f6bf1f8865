"""Weights by name in a file: safetensors, or npz. Nothing is unpickled.

A safetensors file is the length of a header (8 bytes, little-endian), the header as JSON, and the
bytes of the arrays: https://github.com/huggingface/safetensors#format.
"""

import json
import math
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxfl.experiment.config.json_text import parse_json

SUFFIX = ".safetensors"
LONGEST = 100_000_000  # bytes of a header, as the format says
# The types of the format that NumPy knows, by their names in the format. Whole numbers are no
# weights, but stand beside them: positions, masks, counters of batches.
FLOATS = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": jnp.bfloat16}
WHOLE = {f"{kind.upper()}{8 * size}": f"<{kind}{size}" for kind in "iu" for size in (1, 2, 4, 8)}
TYPES = FLOATS | WHOLE | {"BOOL": "?"}
MOST_AXES = 32
METADATA = "__metadata__"  # of the header, beside the arrays


def read_weights(file: Path) -> dict[str, np.ndarray]:
    """The weights of a file by their names, without arrays of whole numbers and of Booleans.

    Args:
      file: NAME.safetensors, or an npz file under another name.

    Raises:
      ValueError: the file cannot be read, is damaged or hostile, or holds no weights.
    """
    try:
        weights = read_safetensors(file) if file.suffix == SUFFIX else read_npz(file)
    except OSError as error:
        raise ValueError(error.strerror or str(error)) from error
    except Exception as error:  # NumPy raises a dozen types for a damaged or hostile file
        raise ValueError(f"{error!s:.200}") from error
    for name, array in weights.items():
        if array.dtype.kind not in "iub" and not jnp.issubdtype(array.dtype, jnp.floating):
            raise ValueError(f"{name!r:.80} is {array.dtype}, and weights are fractions")
    fractions = {n: x for n, x in weights.items() if jnp.issubdtype(x.dtype, jnp.floating)}
    if weights and not fractions:
        raise ValueError(f"it holds whole numbers alone, such as {next(iter(weights))!r:.80}")
    return fractions


def read_npz(file: Path) -> dict[str, np.ndarray]:
    """The arrays of an npz file by their names.

    Raises:
      OSError: the file cannot be read.
      Exception: it is no such file, or is damaged or hostile.
    """
    with file.open("rb") as stream:
        # Of a single array, or of text, NumPy would speak in other words.
        if not zipfile.is_zipfile(stream):
            raise ValueError("it is no npz file")
        stream.seek(0)
        with np.load(stream, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays}


def read_safetensors(file: Path) -> dict[str, np.ndarray]:
    """The arrays of a safetensors file by their names.

    Raises:
      OSError: the file cannot be read.
      ValueError: it is no such file, is cut or hostile, or an array has another type than `TYPES`.

    Example:
      >>> header = b'{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'
      >>> numbers = np.array([1.0, 2.0], "<f4").tobytes()
      >>> _ = Path("w.safetensors").write_bytes(
      ...     len(header).to_bytes(8, "little") + header + numbers
      ... )
      >>> read_safetensors(Path("w.safetensors"))
      {'w': array([1., 2.], dtype=float32)}
    """
    with file.open("rb") as stream:
        size = file.stat().st_size
        length = int.from_bytes(stream.read(8), "little")
        if size < 8 or length > min(size - 8, LONGEST):
            raise ValueError(f"its header would have {length} bytes, and the file has {size}")
        header = parse_json(stream.read(length).decode())
        content = stream.read()
    if not isinstance(header, dict):
        raise ValueError("its header is no object of JSON")
    places = {name: _place(name, one) for name, one in header.items() if name != METADATA}
    end = 0
    for begin, after, name in sorted((*place[2:], name) for name, place in places.items()):
        if begin != end:
            raise ValueError(f"the bytes of {name!r:.80} begin at {begin}, and not at {end}")
        end = after
    if end != len(content):
        raise ValueError(f"its arrays have {end} bytes, and it holds {len(content)}")
    return {
        name: np.frombuffer(content[begin:after], dtype).reshape(shape)
        for name, (dtype, shape, begin, after) in places.items()
    }


def safetensors_bytes(arrays: Mapping[str, np.ndarray]) -> bytes:
    """The content of a safetensors file with these arrays in float32.

    Example:
      >>> _ = Path("w.safetensors").write_bytes(safetensors_bytes({"w": np.ones((1, 2))}))
      >>> read_safetensors(Path("w.safetensors"))
      {'w': array([[1., 1.]], dtype=float32)}
    """
    header: dict[str, Any] = {METADATA: {"format": "pt"}}
    content = b""
    for name, array in arrays.items():
        begin = len(content)
        content += np.ascontiguousarray(array, "<f4").tobytes()
        offsets = [begin, len(content)]
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": offsets}
    words = json.dumps(header).encode()
    return len(words).to_bytes(8, "little") + words + content


def _place(name: str, one: Any) -> tuple[np.dtype, tuple[int, ...], int, int]:
    """The type, the shape, the first byte and the one after the last of an array of the header."""

    def are_counts(values: Any, most: int) -> bool:
        is_list = isinstance(values, list) and len(values) <= most
        return is_list and all(type(value) is int and value >= 0 for value in values)

    fields = one if isinstance(one, dict) else {}
    dtype: Any = fields.get("dtype")
    shape: Any = fields.get("shape")
    offsets: Any = fields.get("data_offsets")
    if not isinstance(dtype, str) or dtype not in TYPES:
        raise ValueError(f"{name!r:.80} is {dtype!r:.20}: expected one of {', '.join(TYPES)}")
    if not are_counts(shape, MOST_AXES) or not are_counts(offsets, 2) or len(offsets) != 2:
        raise ValueError(f"{name!r:.80} has no shape, or no place in the file")
    begin, after = offsets
    kind = np.dtype(TYPES[dtype])
    if after - begin != math.prod(shape) * kind.itemsize:
        raise ValueError(f"{name!r:.80} has {after - begin} bytes, which is not that of its shape")
    return kind, tuple(shape), begin, after
