"""Runs the benchmarks beside their peers and writes docs/performance.md.

`python -m benchmarks.report [--torch PYTHON]`; PYTHON is an interpreter that has torch, this one if not given. A peer
that cannot run is named as such in the table.
"""

import datetime
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import jax

from benchmarks.local_training import client_step_ms
from benchmarks.server_step import jaxfl_ms, loops_ms, product_gflops

PAGE = Path(__file__).parent.parent / "docs" / "performance.md"
STEPS = (
    ("lenet", 32, 16),
    ("lenet", 32, 64),
    ("lenet", 28, 16),
    ("lenet", 28, 64),
    ("three", 32, 16),
    ("three", 32, 64),
)


def torch_step(interpreter: str, *case: object) -> tuple[float | None, str]:
    """The peer's milliseconds and version, or None and what failed."""
    command = [interpreter, "-m", "benchmarks.peers.torch_loop", *map(str, case)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=PAGE.parent.parent)
    if done.returncode:
        return None, done.stderr.strip().splitlines()[-1]
    found = json.loads(done.stdout)
    return found["ms"], found["version"]


def main(torch: str) -> None:
    """Measures, and writes the page."""
    floor = product_gflops()
    rows, version = [], ""
    for case in STEPS:
        # Peer before and after, so that a slow moment of the machine does not fall on one side only.
        before, version = torch_step(torch, *case)
        ours = client_step_ms(*case)
        after, _ = torch_step(torch, *case)
        peers = [ms for ms in (before, after) if ms is not None]
        peer = f"{min(peers):.2f} | {min(peers) / ours['ms']:.1f}" if peers else f"did not run: {version} | "
        rows.append(
            f"| {case[0]} {case[1]}x{case[1]}, batch {case[2]} | {ours['ms']:.2f} | {peer} | {ours['compile_seconds']:.1f} |"
        )
        print(rows[-1], flush=True)
    servers = []
    for clients in (10, 50, 100):
        ours, loops = jaxfl_ms(clients), loops_ms(clients)
        servers.append(f"| {clients} | {ours:.2f} | {loops:.0f} | {loops / ours:.0f} |")
        print(servers[-1], flush=True)
    processor = next(
        (line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), ""
    )
    PAGE.write_text(f"""# Performance

Measured on {datetime.date.today()} by `python -m benchmarks.report`: {os.cpu_count()} cores, {processor or platform.machine()},
Python {platform.python_version()}, jax {jax.__version__} ({jax.default_backend()}), torch {version}. Best of several calls,
compile time apart; the peer runs before and after ours, its better time counts. A matrix product of 2048x2048 reaches
{floor:.0f} GFLOP/s in the same run.

## One local SGD step of one client

Momentum .9, weight decay 1e-5; 4 clients, 20 steps each in one call. The peer is a PyTorch loop over clients and steps
without a data loader (`benchmarks/peers/torch_loop.py`), with its own threads. `lenet` has two convolutions 5x5, `three`
has three with 32, 64 and 64 channels.

| step | jaxfl, ms | torch, ms | times faster | compiling, s |
|---|---:|---:|---:|---:|
{chr(10).join(rows)}

The convolution is patches and one matrix product with its own gradient (`jaxfl/models/conv.py`), clients run one at a
time (`chunk="auto"`) and batches in parts of 16 (`micro`), so that the work of a step stays in the cache. What limits these
rows: gathering patches, which moves each pixel up to 25 times, not arithmetic.

## The server step of pFedGraph

Cosines, collaboration weights and mixing of M models of 62,006 parameters. The peer is the way of reference scripts
(`benchmarks/server_step.py`): a NumPy cosine a pair, a quadratic program a row (SciPy), a sum a pair.

| M | jaxfl, ms | loops, ms | times faster |
|---:|---:|---:|---:|
{chr(10).join(servers)}
""")


if __name__ == "__main__":
    main(sys.argv[sys.argv.index("--torch") + 1] if "--torch" in sys.argv else sys.executable)
