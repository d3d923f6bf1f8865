"""What the peers share that are programs in a cloned repository: they know whole epochs alone."""

import contextlib
import runpy
import subprocess
import sys
from pathlib import Path

from benchmarks.peers.work import ROUNDS, Work, ms, print_json


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


def print_rounds(seconds: list[float], steps: int, folder: Path, torch_version: str) -> None:
    """Prints the milliseconds of a client step in the best round.

    Args:
      seconds: of each round.
      steps: of all clients in a round.
      folder: the clone, whose commit is part of the version.
      torch_version: which PyTorch ran.
    """
    assert len(seconds) == ROUNDS
    command = ["git", "-C", folder, "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    print_json(
        ms=ms(seconds, Work(clients=1, batch=1, steps=steps)),
        version=f"commit {commit}, torch {torch_version}",
    )
