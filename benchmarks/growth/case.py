"""One run of a size: milliseconds of a round, seconds of compiling, peak memory, bytes of files.

`python -m benchmarks.growth.case '{"method": "fedavg", "cohort": 30}'` prints JSON. Each run has a
process of its own, because the peak memory is that of a process.
"""

import json
import os
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from benchmarks.peers.work import peak_gib, print_json
from jaxfl.experiment import Config, gather, resolve
from jaxfl.experiment.session.build import build
from jaxfl.experiment.session.make_program import make_program
from jaxfl.experiment.session.run import record_run, silent
from jaxfl.experiment.session.run_directory import begin
from jaxfl.experiment.session.run_pictures import draw_run
from jaxfl.experiment.session.run_program import START
from jaxfl.simulation import mesh, processes

EXAMPLES = 20  # of a client
CLASSES = 10
REPEATS = 3  # stretches of rounds, of which the fastest counts


@dataclass(frozen=True)
class Case:
    """What is run; the defaults are the size around which each number grows alone."""

    method: str
    clients: int = 100
    cohort: int = 100
    features: int = 63
    rounds: int = 20
    seeds: int = 1

    @property
    def parameters(self) -> int:
        """Of the linear model, D."""
        return CLASSES * (self.features + 1)


def config_of(case: Case, folder: Path) -> Config:
    """The run of a case, whose data lie in the folder."""
    return Config(
        algorithm=case.method,
        dataset="random",
        data_dir=str(folder),
        partition="iid",
        clients=case.clients,
        participation=case.cohort / case.clients,
        model="linear",
        rounds=case.rounds,
        local_steps=5,
        batch_size=10,
        seeds=case.seeds,
        eval_every=case.rounds,
        devices=1,
        keep_models="none",
    )


def write_data(case: Case, folder: Path) -> None:
    """Random numbers with random labels."""
    rng = np.random.default_rng(0)
    rows = {"train": EXAMPLES * case.clients, "test": 100}
    arrays = {}
    for part, count in rows.items():
        arrays[f"x_{part}"] = rng.normal(size=(count, case.features)).astype(np.float32)
        arrays[f"y_{part}"] = np.arange(count) % CLASSES
    np.savez(folder / "random.npz", **arrays)


def measure(case: Case) -> dict[str, Any]:
    """What a run of the case takes."""
    with tempfile.TemporaryDirectory() as place:
        folder, out = Path(place), Path(place) / "run"
        write_data(case, folder)
        built = build(resolved := resolve(config_of(case, folder)), gather(resolved))
        program = make_program(built, out)
        leaves, structure = jax.tree.flatten(program.state)
        # On disk, because a run takes the memory of its state, and a copy would add to the peak.
        np.savez(folder / "start.npz", *leaves)
        del leaves
        begin(out, resolved.config, built, built.digests, overwrite=False, draw=draw_run)
        record_run(resolved.config, built, program, out, silent, draw_run)
        peak = peak_gib()
        files = [file for file in out.rglob("*") if file.is_file() and file.suffix != ".png"]
        size = sum(file.stat().st_size for file in files)
        with np.load(folder / "start.npz") as start:
            state = jax.tree.unflatten(structure, [start[name] for name in start.files])
        times = []
        with jax.set_mesh(mesh.make_mesh(1)):
            for _ in range(REPEATS):
                began = time.perf_counter()
                state, results = program.advance[case.rounds](state, START)
                jax.block_until_ready(results)
                times.append(time.perf_counter() - began)
    return {
        **asdict(case),
        "parameters": case.parameters,
        "ms": 1e3 * min(times) / case.rounds,
        "compile_s": program.seconds,
        "peak_mib": 1024 * peak,
        "files_mb": size / 1e6,
    }


if __name__ == "__main__":
    # XLA and NumPy start as many threads as there are cores.
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    jax.config.update("jax_enable_compilation_cache", False)
    processes.prepare_host(1)
    print_json(**measure(Case(**json.loads(sys.argv[1]))))
