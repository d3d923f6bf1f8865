"""The same work done by other people's tools: each file is a program of its own, run where its tool is installed.

An environment stands in a folder of environments under the name that its row of `PLACES` gives;
each file's docstring says what to install in it.
"""

import json
import subprocess
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PLACES = {
    "torch_loop": "torch",
    "torch_fedavg": "torch",
    "torch_round": "torch",
    "server_loops": "torch",
    "fedjax": "fedjax",
    "pfl": "pfl",
    "flower": "flower",
    "blazefl": "blazefl",
}


def ask(environments: Path | None, peer: str, *arguments: object) -> dict | str:
    """What the peer tells of its run, or in words why it did not run."""
    if environments is None:
        return "not run"
    python = environments.absolute() / PLACES[peer] / "bin" / "python"
    if not python.exists():
        return f"not run: no environment {PLACES[peer]}"
    command = [python, "-m", f"benchmarks.peers.{peer}", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    if done.returncode:
        return f"did not run: {(done.stderr.strip() or 'no message').splitlines()[-1]}"
    return json.loads(done.stdout.splitlines()[-1])


def best(runs: list[dict | str], key: str = "ms") -> dict | str:
    """The run with the lowest number, or why there is none."""
    told = [run for run in runs if isinstance(run, dict)]
    return min(told, key=lambda run: run[key]) if told else runs[0]


def against(found: dict | str, ours: float, key: str = "ms", digits: int = 2) -> str:
    """Two cells: the peer's number, and how many times ours it is."""
    return (
        f"{found} | "
        if isinstance(found, str)
        else f"{found[key]:.{digits}f} | {found[key] / ours:.1f}"
    )
