"""The files of runs: what their names are, how they are written, and what is never overwritten."""

import errno
import itertools
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from jaxfl.core.errors import InputError, check
from jaxfl.core.file_locks import open_in_place
from jaxfl.simulation import processes

PICTURE_FORMATS = ("png", "pdf", "svg")  # of pictures that do not move


def _pictures(*names: str) -> tuple[str, ...]:
    """The files of pictures in every format."""
    return tuple(f"{name}.{format}" for name in names for format in PICTURE_FORMATS)


# The panels of pictures, which `jaxfl report --panels` writes as files of their own.
PANELS = {
    "partition": ("labels", "examples"),
    "curves": ("scores", "loss", "collaborators", "weights"),
    "graph": ("matrix", "network"),
    "comparison": ("rounds", "last"),
}
PANEL_NAMES = frozenset(name for names in PANELS.values() for name in names)


def _with_panels(*names: str) -> tuple[str, ...]:
    """The files of pictures and of their panels in every format."""
    panels = [f"{name}-{panel}" for name in names for panel in PANELS[name]]
    return _pictures(*names, *panels)


RUN_FILES = (
    "config.json",
    "metrics.jsonl",
    "summary.json",
    "clients.npz",
    "graph.npz",
    "models.npz",
    *_with_panels("curves", "graph", "partition"),
    *_pictures("graph_by_layer"),
    "graph.gif",
    *("worth.csv", "worth.png"),
)
COMPARISON_FILES = (
    *("comparison.json", "comparison.md", "comparison.tex", "scores.csv", "scores.json"),
    *("clients.md", "clients.tex", "clients.csv", "clients.json"),
    *_with_panels("comparison"),
)
PLAN = "search.json"  # of a search: what it is to try
TRIALS = "trials.jsonl"  # of a search that is under way: what it has tried
SWEEP_FILES = (PLAN, TRIALS, "sweep.json", "best.json", *_pictures("sweep"))
STATES = "clients"  # a directory of the states of clients on disk
CHECKPOINTS = "checkpoints"  # a directory beside the files of a run
ROUNDS = "rounds"  # a directory of what a run that is under way has kept of its rounds
SNAPSHOTS = "snapshots"  # a directory of the models that clients deployed after some rounds
CONFIGS = "configs.json"  # of a comparison that made its runs itself
INPUTS = "inputs.json"  # of a run or a comparison: the digests of what is read
GRAPHS = _pictures("graphs")  # the picture of their graphs
# All files that a new run, comparison or search removes under --overwrite.
EVERYTHING = (*RUN_FILES, *COMPARISON_FILES, *SWEEP_FILES, *GRAPHS, CONFIGS, INPUTS)
LOCK = ".lock"  # there while a process writes into the directory
LOGS = "logs"  # of a comparison: a directory of what its workers say


def check_empty(directory: Path, overwrite: bool) -> None:
    """Checks that files may be written into a directory; creates nothing.

    Raises:
      InputError: the directory holds a run or a comparison, or cannot be one.
    """
    check_writable(directory)
    try:
        names = [name for name in (*EVERYTHING, CHECKPOINTS) if (directory / name).exists()]
    except OSError as error:
        raise InputError(
            f"{directory} cannot be a directory ({error.strerror}): give another one with --out"
        ) from error
    was_run = any(name in names for name in (*RUN_FILES, CHECKPOINTS))
    for folder in (directory / ROUNDS, directory / SNAPSHOTS):
        check(
            was_run or not folder.is_dir() or not any(folder.iterdir()),
            f"{folder} is not of a run, and a run writes there: choose another --out, or move it "
            "away",
        )
    check(
        not names or overwrite,
        f"{directory} already holds a run ({', '.join(names[:2])}): choose another --out, or add "
        f"--overwrite; one that was stopped goes on by jaxfl resume {directory}",
    )


def check_writable(directory: Path, named_by: str = "--out") -> None:
    """Raises an `InputError` if files cannot be written into the directory; creates nothing."""
    check(
        "\0" not in str(directory),
        f"{str(directory)!r} cannot be a directory: give another one with {named_by}",
    )
    there = next(
        path for path in (directory, *directory.absolute().parents) if os.path.lexists(path)
    )
    check(there.is_dir(), f"{there} is a file: give a directory with {named_by}")
    check(
        os.access(there, os.W_OK | os.X_OK),
        f"{there} is read-only: give another directory with {named_by}",
    )


def create(directory: Path, names: tuple[str, ...], overwrite: bool) -> None:
    """Makes the directory for files of these names.

    With `overwrite`, earlier files of these names are removed, and no others. If these are all
    names, a run's checkpoints, its rounds, the states of its clients and its snapshots go with it.
    """
    check_empty(directory, overwrite)
    make_directory(directory)
    with _making(directory):
        was_run = any((directory / name).exists() for name in RUN_FILES)
        for name in names:
            (directory / name).unlink(missing_ok=True)
        if names == EVERYTHING and (was_run or checkpoints(directory)):
            for old in checkpoints(directory):
                shutil.rmtree(old)
            shutil.rmtree(directory / ROUNDS, ignore_errors=True)
            shutil.rmtree(directory / STATES, ignore_errors=True)
            shutil.rmtree(directory / SNAPSHOTS, ignore_errors=True)


def make_directory(directory: Path, named_by: str = "--out") -> None:
    """Makes the directory, and those above it, if it is not there."""
    with _making(directory, named_by):
        directory.mkdir(parents=True, exist_ok=True)


@contextmanager
def _making(directory: Path, named_by: str = "--out") -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(
            f"cannot write to {directory} ({error.strerror}): give another directory with "
            f"{named_by}"
        ) from error


def directory_name(label: str) -> str:
    """The name of the directory of a run with this label: letters that every file system takes."""
    return re.sub(r"[^A-Za-z0-9_.,=+-]+", "-", label).strip(".-") or "run"


@contextmanager
def new_directory(name: str) -> Iterator[Path]:
    """A directory that no other process uses: of this name, or with a number behind the name.

    It is removed again if nothing was written into it. Of several processes that run together, the
    first one chooses.

    Args:
      name: path of the directory, to which a number may be added.
    """
    if not processes.is_main_process():
        yield Path(processes.from_main_process(""))
        return
    parent = Path(name).parent
    unused = [] if parent.exists() else [parent]
    for number in itertools.count(1):
        path = Path(name if number == 1 else f"{name}-{number}")
        with _making(path), suppress(FileExistsError):
            path.mkdir(parents=True)
            break
    processes.from_main_process(str(path))
    try:
        yield path
    finally:
        for folder in (path, *unused):
            remove_empty(folder)


def checkpoints(directory: Path) -> list[Path]:
    """The checkpoints of a run, the oldest first."""
    return sorted(
        p for p in (directory / CHECKPOINTS).glob("*") if p.name.isdecimal() and p.is_dir()
    )


def lead_output(path: Path) -> None:
    """From now on what this process writes to standard output and standard error is in a file."""
    make_directory(path.parent)
    with writing(path), open_in_place(path, "a") as log:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
            os.dup2(log.fileno(), stream.fileno())


def pieces(folder: Path, until: int | None = None) -> list[Path]:
    """The pieces FIRST.npz of the rounds of a run, in their order.

    Args:
      folder: of the pieces.
      until: a round; only those that begin by then.
    """
    by_round = {int(p.stem): p for p in folder.glob("*.npz") if p.stem.isdecimal()}
    return [by_round[first] for first in sorted(by_round) if until is None or first <= until]


@contextmanager
def writing(path: Path, named_by: str = "--out") -> Iterator[None]:
    """Within, an error of the system, as a full disk, is an `InputError` that names the path.

    Args:
      path: of what is written.
      named_by: the option that names the place.
    """
    try:
        yield
    except OSError as error:
        raise InputError(
            f"cannot write {path} ({error.strerror or error}): free or choose a place with "
            f"{named_by}; what is written stays"
        ) from error


@contextmanager
def new_file(file: Path, named_by: str = "--out") -> Iterator[BinaryIO]:
    """Within, a file is written, which is there whole or not at all."""
    draft = file.with_name(f".{file.name}.part")
    with writing(file, named_by):
        draft.unlink(missing_ok=True)
        try:
            with draft.open("xb") as stream:  # a new file: a link in its place is not followed
                yield stream
            os.replace(draft, file)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise


def write_file(file: Path, content: bytes | str, named_by: str = "--out") -> None:
    """Writes a file whole or not at all."""
    with new_file(file, named_by) as stream:
        stream.write(content.encode() if isinstance(content, str) else content)


def remove(path: Path) -> None:
    """Removes a file or a directory of a run, if it is there."""
    with writing(path):
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def remove_empty(folder: Path) -> None:
    """Removes a folder if there is nothing in it."""
    with suppress(OSError):
        folder.rmdir()


def write_json(file: Path, content: Any) -> None:
    """Writes indented JSON."""
    write_file(file, json.dumps(content, indent=2, allow_nan=False) + "\n")


def write_npz(file: Path, arrays: dict[str, np.ndarray], *, compressed: bool = True) -> None:
    """Writes arrays; models are hardly smaller if compressed, and take long."""
    save = np.savez_compressed if compressed else np.savez
    by_name: dict[str, Any] = dict(arrays)
    with new_file(file) as stream:
        save(stream, **by_name)


def append_lines(path: Path, lines: Sequence[Mapping[str, object]]) -> None:
    """Adds lines of JSON to a file, all of them or none."""
    with writing(path), open_in_place(path, "ab", buffering=0) as file:
        size = file.tell()
        text = json_lines(lines).encode()
        try:
            if file.write(text) < len(text):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            file.truncate(size)
            raise


def json_lines(lines: Sequence[Mapping[str, object]]) -> str:
    """The text of `metrics.jsonl`: one JSON object a line."""
    return "".join(json.dumps(line, allow_nan=False) + "\n" for line in lines)


def read_arrays(file: Path, prefix: str = "") -> dict[str, np.ndarray]:
    """The arrays of an npz file whose names begin with the prefix.

    Raises:
      InputError: the file cannot be read.
    """
    try:
        with file.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays if name.startswith(prefix)}
    except Exception as error:  # NumPy raises a dozen types for a damaged or hostile file
        raise InputError(f"cannot read {file} ({error!r:.200}): run again") from error
