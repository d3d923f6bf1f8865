"""Runs what is missing in measured.jsonl, and writes docs/growth.md.

`python -m benchmarks.growth` takes 40 minutes of one core; nothing else should run. A second
call goes on with what is missing; `--again` measures all anew.
"""

import json
import os
import subprocess
import sys
from dataclasses import asdict

import tyro

from benchmarks.growth.case import Case
from benchmarks.growth.page import PAGE, ROWS, cases, page, read_rows
from benchmarks.peers import ROOT


def main(again: bool = False, only: tuple[str, ...] = ()) -> None:
    """Runs the cases one after another, each in a process of its own on one core.

    Args:
      again: measure what is there too.
      only: methods to run; all if none is named.
    """
    if again:
        ROWS.unlink(missing_ok=True)
    known = {case_of(row) for row in read_rows()}
    for case in cases():
        if case in known or (only and case.method not in only):
            continue
        command = [sys.executable, "-m", "benchmarks.growth.case", json.dumps(asdict(case))]
        environment = os.environ | {"JAX_PLATFORMS": "cpu"}
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)
        if done.returncode:
            print(f"{case} failed: {done.stderr.strip().splitlines()[-1:]}", flush=True)
            continue
        with ROWS.open("a") as file:
            file.write(done.stdout.splitlines()[-1] + "\n")
        print(done.stdout.splitlines()[-1], flush=True)
    PAGE.write_text(page(read_rows()))


def case_of(row: dict) -> Case:
    """The case of a row."""
    return Case(**{name: row[name] for name in Case.__dataclass_fields__})


if __name__ == "__main__":
    tyro.cli(main)
