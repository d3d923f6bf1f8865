"""The same work done by other tools: each file is a program that runs where its tool is installed.

A tool's environment is a folder inside a folder of environments, with the name in `PLACES`. Each
file's docstring says what to install in it.
"""

import json
import subprocess
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PLACES = {
    "torch_loop": "torch",
    "torch_adapters": "torch",
    "torch_fedavg": "torch",
    "torch_round": "torch",
    "torch_vmap": "torch",
    "torch_unequal": "torch",
    "torch_same_start": "torch",
    "server_loops": "torch",
    "fedjax": "fedjax",
    "fedjax_unequal": "fedjax",
    "fedjax_stored": "fedjax",
    "pfl": "pfl",
    "pfl_stored": "pfl",
    "flower": "flower",
    "blazefl": "blazefl",
    "fl_bench": "flbench",
    "pfllib": "pfllib",
    "htfllib": "pfllib",
}


def run_peer(environments: Path | None, peer: str, *arguments: object) -> dict | str:
    """The results of the peer's run, or the reason why it did not run."""
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


def fastest(runs: list[dict | str], key: str = "ms") -> dict | str:
    """The run with the lowest number, or the reason why there is none."""
    finished = [run for run in runs if isinstance(run, dict)]
    return min(finished, key=lambda run: run[key]) if finished else runs[0]


def peer_cell(found: dict | str, ours: float, key: str = "ms", digits: int = 2) -> str:
    """A cell of a table: the peer's number and, in brackets, its ratio to ours."""
    if isinstance(found, str):
        return found
    return f"{found[key]:.{digits}f} ({found[key] / ours:.1f})"


def peer_cells(found: dict | str, ours: float, key: str = "ms", digits: int = 2) -> str:
    """Two cells of a table: the peer's number, and its ratio to ours."""
    return (
        f"{found} | "
        if isinstance(found, str)
        else f"{found[key]:.{digits}f} | {found[key] / ours:.1f}"
    )
