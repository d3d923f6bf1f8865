"""The commands of the board."""

import json
import sys
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg
from tyro.extras import subcommand_cli_from_dict

from experiments.board.other_tool import write_row
from experiments.board.page import page
from experiments.board.rows import check_row, read_row, run_row
from experiments.board.settings import write_data
from jaxfl.algorithms import ALGORITHMS
from jaxfl.core.errors import InputError, check, check_name
from jaxfl.experiment.store import files

ROWS = Path(__file__).parents[1] / "results" / "board"
PAGE = Path(__file__).parents[2] / "docs" / "results" / "board.md"


def run(methods: Positional[tuple[str, ...]] = (), out: Path = ROWS, again: bool = False) -> None:
    """Runs methods in all settings and writes a row for each.

    Args:
      methods: names; all that have no row if none is named.
      out: folder of the rows.
      again: run methods that have a row too.
    """
    for name in methods:
        check_name("method", name, ALGORITHMS)
    for name in methods or sorted(ALGORITHMS):
        file = out / f"{name}.json"
        if file.exists() and not again:
            if methods:
                print(f"{name} has a row, {file}: --again runs it once more")
            continue
        files.make_directory(out)
        row = run_row(name)
        check_row(row, name)
        # On one line: hundreds of numbers would be as many lines.
        files.write_file(file, json.dumps(row) + "\n")
        print(f"written to {file}", flush=True)


def data(setting: Positional[str], out: Annotated[Path, arg(metavar="DIR")]) -> None:
    """Writes the arrays of a setting, an npz file for each seed.

    Args:
      setting: its name on the board.
      out: folder to write.
    """
    for path in write_data(setting, out):
        print(f"written to {path}")


def check_files(rows: Positional[tuple[Path, ...]]) -> None:
    """Checks files of rows; what is wrong is said in one line, with exit code 2.

    Args:
      rows: JSON files.
    """
    check(bool(rows), "no file is named: give the JSON files of rows")
    for file in rows:
        row = read_row(file)
        print(f"{file}: {row['method']}, {len(row['settings'])} settings, sound")


def write_page(rows: Path = ROWS, out: Path = PAGE) -> None:
    """Writes the page of all rows.

    Args:
      rows: folder of the rows.
      out: file to write.
    """
    files.write_file(out, page([read_row(file) for file in sorted(rows.glob("*.json"))]))
    print(f"written to {out}")


COMMANDS = {
    "run": run,
    "data": data,
    "example": write_row,
    "check": check_files,
    "page": write_page,
}

if __name__ == "__main__":
    try:
        subcommand_cli_from_dict(COMMANDS, prog="python -m experiments.board")
    except InputError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
