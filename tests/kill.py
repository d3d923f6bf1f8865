"""Kills runs with SIGKILL at random moments, resumes them, and compares with undisturbed runs.

All numbers must be equal, bit for bit.

`python tests/kill.py [--kills 40] [--algorithms pfedgraph pfedgat ...] [--rounds 150] [--seed 0]`
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import orbax.checkpoint as ocp
import tyro

OPTIONS = ["--local-steps", "20", "--participation", "0.5", "--seeds", "2"]
OPTIONS += ["--eval-every", "4", "--keep", "checkpoints=3", "--model", "linear"]
# What the servers of the four systems learn.
HYPER = {
    "pfedgat": ["wire=gradient", "heads=2"],
    "gfedmtl": ["tau=learned", "servers=2", "clusters=2"],
}


def interrupt_after(lines, number=signal.SIGINT):
    """Follows a run and asks it to stop after so many lines."""
    seen = []

    def follow(config, line):
        seen.append(line)
        if sum(row is not None for row in seen) == lines:
            os.kill(os.getpid(), number)

    return follow


def start(arguments: list[str]) -> subprocess.Popen:
    """The command line in a process of its own, silent."""
    program = [sys.executable, "-c", "import sys; from jaxfl.cli import main; sys.exit(main())"]
    return subprocess.Popen(
        [*program, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )


def finish(process: subprocess.Popen) -> None:
    """Waits for the end of a process and raises an error if it failed."""
    errors = process.communicate()[1]
    assert process.returncode == 0, errors


def arguments(algorithm: str, out: Path, rounds: int, seed: int) -> list[str]:
    """The command that starts the run, or resumes it where it has begun."""
    if (out / "config.json").exists():
        return ["resume", str(out)]
    hyper = ["--hyper", *HYPER[algorithm]] if algorithm in HYPER else []
    numbers = ["--rounds", str(rounds), "--seed", str(seed)]
    return ["run", algorithm, *numbers, *OPTIONS, *hyper, "--out", str(out), "--overwrite"]


def wait_for_a_checkpoint(out: Path) -> None:
    """Waits until there is a new checkpoint, for two minutes at most."""
    before = checkpoints(out)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not checkpoints(out) - before:
        time.sleep(0.01)


def checkpoints(out: Path) -> set[Path]:
    """The folders of the finished checkpoints; one that is being written has another name."""
    return set((out / "checkpoints").glob("[0-9]*"))


def content(out: Path) -> dict[str, np.ndarray]:
    """Everything in the directory of a finished run, except times.

    These are the last state, the best models, scores, graphs and the lines of metrics.
    """
    newest = sorted((out / "checkpoints").iterdir())[-1]
    with ocp.StandardCheckpointer() as checkpointer:
        found = {
            f"state/{name}": x
            for name, x in checkpointer.restore(newest / "state")["state"].items()
        }
    for file in ("clients.npz", "graph.npz", "models.npz"):
        if (out / file).exists():
            with np.load(out / file, allow_pickle=False) as arrays:
                found |= {f"{file}/{name}": arrays[name] for name in arrays}
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    lines = json.dumps(
        [{key: value for key, value in row.items() if key != "seconds"} for row in rows]
    )
    return found | {"round": np.array(newest.name), "lines": np.array(lines)}


def same(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> bool:
    """Whether two runs have the same content, bit for bit."""
    return a.keys() == b.keys() and all(
        np.asarray(a[k]).tobytes() == np.asarray(b[k]).tobytes() for k in a
    )


def stage(out: Path) -> str:
    """How far a killed run has come."""
    if checkpoints(out):
        return "after a checkpoint"
    if (out / "config.json").exists():
        return "no checkpoint yet"
    return "nothing written"


def torture(
    algorithm: str,
    folder: Path,
    kills: int,
    chance: random.Random | None,
    rounds: int = 150,
    seed: int = 0,
) -> dict[str, int]:
    """Kills runs of one algorithm, resumes each, and compares the end with an undisturbed run.

    Args:
      algorithm: the name of the algorithm.
      folder: where the runs are written.
      kills: the number of processes to kill.
      chance: draws the moment of each kill within a run's duration. Without it, a process is killed
        as soon as it has written a new checkpoint.
      rounds: the number of rounds of a run.
      seed: the first of the two seeds of a run.

    Returns:
      The numbers of kills before anything was written, before the first checkpoint, and after a
      checkpoint; and the number of runs that finished, each equal to the undisturbed run.
    """
    undisturbed = folder / f"{algorithm}-whole"
    out = folder / algorithm
    began = time.monotonic()
    finish(start(arguments(algorithm, undisturbed, rounds, seed)))
    duration = time.monotonic() - began
    expected = content(undisturbed)
    stages = ("nothing written", "no checkpoint yet", "after a checkpoint", "finished and equal")
    found = dict.fromkeys(stages, 0)
    done = 0
    while done < kills or not found["finished and equal"] or (out / "config.json").exists():
        process = start(arguments(algorithm, out, rounds, seed))
        if done == kills:
            patience = None  # this one may finish
        elif chance is None:
            wait_for_a_checkpoint(out)
            patience = 0
        else:
            patience = chance.uniform(0, duration)
        try:
            process.wait(patience)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.communicate()
            done += 1
            found[stage(out)] += 1
            if not (out / "summary.json").exists():
                continue
        else:
            finish(process)
        assert same(content(out), expected), f"{algorithm}: a killed and resumed run differs"
        found["finished and equal"] += 1
        shutil.rmtree(out)
    return found


def main(
    kills: int = 40,
    algorithms: tuple[str, ...] = ("pfedgraph", "pfedgat", "fedcedar", "gfedmtl"),
    rounds: int = 150,
    seed: int = 0,
) -> None:
    """Prints one line for each algorithm: the numbers of kills by stage, and of equal runs.

    Args:
      kills: the number of kills, over all algorithms together.
      algorithms: the names of the algorithms.
      rounds: the number of rounds of a run; with more rounds, more kills come after a checkpoint.
      seed: of the random moments of the kills, and the first of the two seeds of the runs.
    """
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        for i, algorithm in enumerate(algorithms):
            count = kills // len(algorithms) + (i < kills % len(algorithms))
            print(
                algorithm, torture(algorithm, Path(folder), count, chance, rounds, seed), flush=True
            )


if __name__ == "__main__":
    tyro.cli(main)
