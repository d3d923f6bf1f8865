"""The directory of a run: what is written, when, and what is never overwritten."""

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

from jaxfl.errors import InputError, check
from jaxfl.experiment import plots
from jaxfl.experiment.build import Built
from jaxfl.experiment.config import to_json
from jaxfl.experiment.metrics import History

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


def check_free(directory: Path, overwrite: bool) -> None:
    """Raises an `InputError` if the directory holds a run or a comparison, or cannot be one; creates nothing."""
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
        f"{directory} already holds a run ({', '.join(held[:2])}): choose another --out, or add --overwrite",
    )


def check_writable(directory: Path) -> None:
    """Raises an `InputError` if files cannot be written into the directory, or it cannot be made; creates nothing."""
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
    """Makes the directory for files of these names; with `overwrite`, removes earlier ones of these, and no others."""
    check_free(directory, overwrite)
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
    """What the system refuses to write is an `InputError` that names the path: a full disk, a read-only folder."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"cannot write {path} ({error.strerror or error}): free or choose a place with --out; what is written stays"
        ) from error


def write(file: Path, content: bytes | str) -> None:
    """Writes a file whole or not at all."""
    part = file.with_name(f".{file.name}.part")
    with writing(file):
        part.unlink(missing_ok=True)
        try:
            with part.open(
                "xb"
            ) as opened:  # a new file: a link that lies in its place is not followed
                opened.write(content.encode() if isinstance(content, str) else content)
            os.replace(part, file)
        except OSError:
            part.unlink(missing_ok=True)
            raise


def write_json(file: Path, content: Any) -> None:
    """Writes indented JSON."""
    write(file, json.dumps(content, indent=2, allow_nan=False) + "\n")


def write_npz(file: Path, arrays: dict[str, np.ndarray]) -> None:
    """Writes compressed arrays."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    write(file, buffer.getvalue())


def last_graph(directory: Path) -> tuple[np.ndarray, np.ndarray] | None:
    """The mixing weights of a run's last round [M, M] and its clients [M], of the first seed; None if it has none."""
    file = directory / "graph.npz"
    if not file.exists():
        return None
    with np.load(file, allow_pickle=False) as arrays:
        weights, ids = arrays["weights"], arrays["ids"]
    return (weights[-1], ids[-1]) if weights.ndim == 3 else (weights[0, -1], ids[0, -1])


def begin(directory: Path, built: Built, overwrite: bool) -> None:
    """Opens the directory of a run: the config and the picture of the partition."""
    create(directory, RUN_FILES, overwrite)
    write(
        directory / "partition.png",
        plots.partition(built.data.source, built.data.parts[0], built.config),
    )
    write(directory / "config.json", to_json(built.config))  # with it, the run can be resumed


def append(directory: Path, line: dict[str, Any]) -> None:
    """Adds a line to `metrics.jsonl`, whole or not at all."""
    path = directory / "metrics.jsonl"
    with writing(path), path.open("ab", buffering=0) as file:
        size, text = file.tell(), json_lines([line]).encode()
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


def finish(directory: Path, built: Built, history: History, compile_seconds: float) -> None:
    """Closes the directory of a run with its arrays, pictures and summary."""
    write_npz(directory / "clients.npz", history.clients())
    write(
        directory / "curves.png",
        plots.curves({built.config.algorithm: history.lines}, history.measure),
    )
    graph = history.graph()
    if graph is not None:
        write_npz(directory / "graph.npz", graph)
        several = built.config.seeds > 1
        weights, ids = (graph[name][0] if several else graph[name] for name in ("weights", "ids"))
        source, parts = built.data.source, built.data.parts[0]
        picture = plots.graph(weights[-1], ids[-1], source, parts, built.config, history.malicious)
        write(directory / "graph.png", picture)
    write_json(directory / "summary.json", history.summary(compile_seconds))
