"""Rows of an accelerator session: one JSON object a line, written as soon as they are measured."""

import datetime
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

FILE = "rows.jsonl"


class Session(NamedTuple):
    """Where rows are written, and until when."""

    folder: Path
    ends: float  # time.monotonic() after which no row is started
    peers: Path | None = None  # folder of the peers' environments
    smallest: bool = False  # sizes that a CPU computes in a second, to try the programs


def read_rows(folder: Path) -> list[dict]:
    """All rows; a last line that an abort has cut is left out."""
    file = folder / FILE
    if not file.exists():
        return []
    rows = []
    for line in file.read_text().splitlines():
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return rows


def write_row(folder: Path, part: str, case: dict, found: dict) -> None:
    """Appends a row and flushes it to the disk."""
    row = {"part": part, "case": case, "found": found, "date": str(datetime.date.today())}
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / FILE
    # A line that an abort has cut is ended first.
    cut = file.exists() and not file.read_text().endswith("\n")
    with file.open("a") as out:
        out.write("\n" * cut + json.dumps(row) + "\n")
        out.flush()


def is_measured(folder: Path, part: str, case: dict) -> bool:
    """Whether there is a row of this case without an error."""
    return any(
        row["part"] == part and row["case"] == case and "error" not in row["found"]
        for row in read_rows(folder)
    )


def measure_row(session: Session, part: str, case: dict, measure: Callable[[], dict]) -> None:
    """Measures a case and writes its row, unless it is there or the time is over.

    An error, such as too little memory, becomes a row of its own, and the next start tries again.
    """
    if time.monotonic() > session.ends or is_measured(session.folder, part, case):
        return
    try:
        found = measure()
    except Exception as error:
        lines = str(error).splitlines() or [type(error).__name__]
        found = {"error": lines[0][:200]}
    write_row(session.folder, part, case, found)
    print(part, *case.values(), json.dumps(found), flush=True)
