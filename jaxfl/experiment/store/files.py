"""The files of runs: what their names are, how they are written, and what is never overwritten."""

import errno
import io
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from jaxfl import mesh
from jaxfl.errors import InputError, check

RUN_FILES = (
    "config.json",
    "metrics.jsonl",
    "summary.json",
    "clients.npz",
    "graph.npz",
    "curves.png",
    "graph.png",
    "partition.png",
)
COMPARISON_FILES = ("comparison.json", "comparison.md", "comparison.png")
SWEEP_FILES = ("sweep.json", "sweep.png", "best.json")
CHECKPOINTS = "checkpoints"  # a directory beside the files of a run
GRAPHS = "graphs.png"  # beside them, where the runs were made


def check_free(directories: list[Path], overwrite: bool) -> None:
    """Checks, in the process that will write, that files may be written; creates nothing.

    Raises:
      InputError: a directory holds a run or a comparison, or cannot be one.
    """
    if mesh.is_main_process():
        for directory in directories:
            _check_free(directory, overwrite)


def _check_free(directory: Path, overwrite: bool) -> None:
    check_writable(directory)
    try:
        names = (*RUN_FILES, *COMPARISON_FILES, *SWEEP_FILES, GRAPHS, CHECKPOINTS)
        held = [name for name in names if (directory / name).exists()]
    except OSError as error:
        raise InputError(
            f"{directory} cannot be a directory ({error.strerror}): give another one with --out"
        ) from error
    check(
        not held or overwrite,
        f"{directory} already holds a run ({', '.join(held[:2])}): choose another --out, or add "
        "--overwrite",
    )


def check_writable(directory: Path) -> None:
    """Raises an `InputError` if files cannot be written into the directory; creates nothing."""
    check(
        "\0" not in str(directory),
        f"{str(directory)!r} cannot be a directory: give another one with --out",
    )
    there = next(
        path for path in (directory, *directory.absolute().parents) if os.path.lexists(path)
    )
    check(there.is_dir(), f"{there} is a file: give a directory with --out")
    check(
        os.access(there, os.W_OK | os.X_OK),
        f"{there} is read-only: give another directory with --out",
    )


def create(directory: Path, names: tuple[str, ...], overwrite: bool) -> None:
    """Makes the directory for files of these names.

    With `overwrite`, earlier files of these names are removed, and no others.
    """
    _check_free(directory, overwrite)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name in names:
            (directory / name).unlink(missing_ok=True)
        if names == RUN_FILES:
            for old in checkpoints(directory):
                shutil.rmtree(old)
    except OSError as error:
        raise InputError(
            f"cannot write to {directory} ({error.strerror}): give another directory with --out"
        ) from error


def checkpoints(directory: Path) -> list[Path]:
    """The checkpoints of a run, the oldest first."""
    return sorted(
        p for p in (directory / CHECKPOINTS).glob("*") if p.name.isdecimal() and p.is_dir()
    )


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Within, an error of the system, as a full disk, is an `InputError` that names the path."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"cannot write {path} ({error.strerror or error}): free or choose a place with --out; "
            "what is written stays"
        ) from error


def write_file(file: Path, content: bytes | str) -> None:
    """Writes a file whole or not at all."""
    part = file.with_name(f".{file.name}.part")
    with writing(file):
        part.unlink(missing_ok=True)
        try:
            with part.open("xb") as opened:  # a new file: a link in its place is not followed
                opened.write(content.encode() if isinstance(content, str) else content)
            os.replace(part, file)
        except OSError:
            part.unlink(missing_ok=True)
            raise


def write_json(file: Path, content: Any) -> None:
    """Writes indented JSON."""
    write_file(file, json.dumps(content, indent=2, allow_nan=False) + "\n")


def write_npz(file: Path, arrays: dict[str, np.ndarray]) -> None:
    """Writes compressed arrays."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    write_file(file, buffer.getvalue())


def append_line(directory: Path, line: dict[str, Any]) -> None:
    """Adds a line to `metrics.jsonl`, whole or not at all."""
    path = directory / "metrics.jsonl"
    with writing(path), path.open("ab", buffering=0) as file:
        size = file.tell()
        text = json_lines([line]).encode()
        try:
            if file.write(text) < len(text):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            file.truncate(size)
            raise


def json_lines(lines: list[dict[str, Any]]) -> str:
    """The text of `metrics.jsonl`: one JSON object a line."""
    return "".join(json.dumps(line, allow_nan=False) + "\n" for line in lines)


def read_json_lines(file: Path) -> list[dict[str, Any]]:
    """What `json_lines` wrote."""
    return [json.loads(line) for line in file.read_text().splitlines()]
