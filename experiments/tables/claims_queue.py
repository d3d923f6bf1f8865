"""The cells that open claims wait for, the cheapest decision first."""

import json
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from statistics import median

from rich.console import Console

from experiments.tables import claims, results
from experiments.tables.claims import Finding
from experiments.tables.fill import fill
from experiments.tables.specification import Cell

# Options that decide how long a run takes, beside the method; the first is the least to share.
ALIKE = (
    *("dataset", "partition", "clients", "rounds", "local_steps", "epochs", "batch_size"),
    *("participation", "model"),
)


def seconds(cell: Cell, folder: Path = results.FOLDER) -> float:
    """About how long a cell takes on a CPU, by the runs that are like it.

    The median of all runs with the same data, rounds and steps; else of those with the same data;
    else of all.
    """
    options = results.complete(cell.config)
    every = _measured(folder)
    for names in (ALIKE, ALIKE[:1], ()):
        alike = [
            took
            for known, took in every
            if all(known.get(name) == options.get(name) for name in names)
        ]
        if alike:
            return median(alike)
    return 600.0


@cache
def _measured(folder: Path) -> list[tuple[dict, float]]:
    """Options and seconds of a seed of all runs that were made on a CPU."""
    found = []
    for file in folder.glob("**/*.json"):
        result = json.loads(file.read_text())
        device = result.get("versions", {}).get("device", "") if isinstance(result, dict) else ""
        if "config" in result and "seconds" in result and "NVIDIA" not in device:
            found.append((result["config"], result["seconds"] / len(result.get("seeds", "0"))))
    return found


def cost(finding: Finding, folder: Path = results.FOLDER) -> float:
    """Seconds of all cells that a claim waits for; one strong rival may decide it before."""
    return sum(seconds(cell, folder) for cell in finding.missing)


def waiting(findings: Sequence[Finding], folder: Path = results.FOLDER) -> list[Finding]:
    """The open claims, the cheapest first."""
    still = [finding for finding in findings if finding.missing]
    return sorted(still, key=lambda finding: cost(finding, folder))


def run(ends: float, console: Console) -> list[str]:
    """Runs one cell after another while there is time; what is known by then chooses the next.

    Args:
      ends: when the time is over, as `time.time` has it.
      console: where each result is printed.

    Returns:
      What kept cells from being run, a line each.
    """
    errors: list[str] = []
    tried = set()  # files of cells that this call has run, or another process runs
    while time.time() < ends:
        findings = [claims.find(claim) for claim in claims.load()]
        cells = [cell for finding in waiting(findings) for cell in finding.missing]
        cell = next((one for one in cells if results.file_of(one.config) not in tried), None)
        if cell is None:
            break
        tried.add(results.file_of(cell.config))
        errors += fill([cell], ends, console)
    return errors
