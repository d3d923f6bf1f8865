"""What the peers share that are programs in a cloned repository: they know whole epochs alone."""

import contextlib
import runpy
import subprocess
import sys
from pathlib import Path

from benchmarks.peers.work import Work


def whole_epochs(sizes: list[int], work: Work) -> tuple[int, int]:
    """The number of epochs, and the steps that all clients take in them.

    Epochs are as many as come nearest to `steps` steps of a client on average.

    Args:
      sizes: number of examples of each client.
      work: size of a round.
    """
    steps = sum(-(-size // work.batch) for size in sizes)
    epochs = max(1, round(work.steps * len(sizes) / steps))
    return epochs, epochs * steps


def run_program(program: Path, folder: Path, arguments: list[str]) -> None:
    """Runs `python PROGRAM ARGUMENTS` in the folder, within this process."""
    sys.argv[1:] = arguments
    with contextlib.chdir(folder):
        runpy.run_path(str(program), run_name="__main__")


def commit(folder: Path) -> str:
    """The short hash of the commit in a cloned folder."""
    command = ["git", "-C", folder, "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
