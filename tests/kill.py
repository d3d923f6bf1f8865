"""Kills runs with SIGKILL at random moments, resumes them, and compares with runs that nobody disturbed, bit for bit.

`python tests/kill.py [--kills 30] [--algorithms pfedgraph ditto fedadam] [--rounds 150] [--seed 0]`
"""

import json
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
OPTIONS += ["--eval-every", "4", "--checkpoint-every", "3", "--model", "linear"]


def start(arguments: list[str]) -> subprocess.Popen:
    """The command line in a process of its own, silent."""
    program = [sys.executable, "-c", "import sys; from jaxfl.cli import main; sys.exit(main())"]
    return subprocess.Popen(
        [*program, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )


def finish(process: subprocess.Popen) -> None:
    """Waits for a process that is to succeed."""
    errors = process.communicate()[1]
    assert process.returncode == 0, errors


def arguments(algorithm: str, out: Path, rounds: int) -> list[str]:
    """What to start: the run, or what is left of it."""
    if (out / "config.json").exists():
        return ["resume", str(out)]
    return ["run", algorithm, "--rounds", str(rounds), *OPTIONS, "--out", str(out), "--overwrite"]


def wait_for_a_checkpoint(out: Path) -> None:
    """Waits until there is one more than before, for two minutes at most."""
    before, until = set((out / "checkpoints").glob("[0-9]*")), time.monotonic() + 120
    while time.monotonic() < until and not set((out / "checkpoints").glob("[0-9]*")) - before:
        time.sleep(0.01)


def content(out: Path) -> dict[str, np.ndarray]:
    """All that a finished run holds but its times: the last state, the best models, scores, graphs, lines."""
    newest = sorted((out / "checkpoints").iterdir())[-1]
    with ocp.StandardCheckpointer() as checkpointer:
        found = {
            f"state/{name}": x
            for name, x in checkpointer.restore(newest / "state")["state"].items()
        }
    for file in ("clients.npz", "graph.npz"):
        if (out / file).exists():
            with np.load(out / file, allow_pickle=False) as arrays:
                found |= {f"{file}/{name}": arrays[name] for name in arrays}
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    lines = json.dumps(
        [{key: value for key, value in row.items() if key != "seconds"} for row in rows]
    )
    return found | {"round": np.array(newest.name), "lines": np.array(lines)}


def same(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> bool:
    """Whether two runs hold the same, bit for bit."""
    return a.keys() == b.keys() and all(
        np.asarray(a[k]).tobytes() == np.asarray(b[k]).tobytes() for k in a
    )


def torture(
    algorithm: str, folder: Path, kills: int, chance: random.Random | None, rounds: int = 150
) -> dict[str, int]:
    """One algorithm: so many kills, each at a random moment of a run's life; then resumed to the end and compared.

    Without chance, when a new checkpoint is there.

    Returns:
      How many kills came before anything was written, before the first checkpoint, and after one;
      and how many runs came to their end, each equal to the undisturbed one.
    """
    whole, out = folder / f"{algorithm}-whole", folder / algorithm
    began = time.monotonic()
    finish(start(arguments(algorithm, whole, rounds)))
    life = time.monotonic() - began
    expected = content(whole)
    found = dict.fromkeys(
        ("nothing written", "no checkpoint yet", "after a checkpoint", "finished and equal"), 0
    )
    done = 0
    while done < kills or not found["finished and equal"] or (out / "config.json").exists():
        process = start(arguments(algorithm, out, rounds))
        if chance is None and done < kills:
            wait_for_a_checkpoint(out)
        try:
            process.wait(None if done == kills else chance.uniform(0, life) if chance else 0)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.communicate()
            done += 1
            begun, saved = (out / "config.json").exists(), any((out / "checkpoints").glob("[0-9]*"))
            found[
                "after a checkpoint"
                if saved
                else "no checkpoint yet"
                if begun
                else "nothing written"
            ] += 1
            if not (out / "summary.json").exists():
                continue
        else:
            finish(process)
        assert same(content(out), expected), (
            f"{algorithm}: a run that was killed and resumed differs"
        )
        found["finished and equal"] += 1
        shutil.rmtree(out)
    return found


def main(
    kills: int = 30,
    algorithms: tuple[str, ...] = ("pfedgraph", "ditto", "fedadam"),
    rounds: int = 150,
    seed: int = 0,
) -> None:
    """Prints what happened, an algorithm a line.

    Args:
      kills: of all algorithms together.
      algorithms: which ones.
      rounds: of a run; the more, the more kills come after a checkpoint.
      seed: of the moments.
    """
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        for i, algorithm in enumerate(algorithms):
            share = kills // len(algorithms) + (i < kills % len(algorithms))
            print(algorithm, torture(algorithm, Path(folder), share, chance, rounds), flush=True)


if __name__ == "__main__":
    tyro.cli(main)
