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


def step_row(torch: str, case: tuple) -> tuple[str, str]:
    """A row of the first table, and the peer's version. Both sides run twice in turn and the better time counts."""
    runs = [(torch_step(torch, *case), client_step_ms(*case)) for _ in range(2)]
    ours = min(own["ms"] for _, own in runs)
    compiling = min(own["compile_seconds"] for _, own in runs)
    (first, version), (second, _) = (peer for peer, _ in runs)
    times = [ms for ms in (first, second) if ms is not None]
    peer = f"{min(times):.2f} | {min(times) / ours:.1f}" if times else f"did not run: {version} | "
    name = f"{case[0]} {case[1]}x{case[1]}, batch {case[2]}"
    return f"| {name} | {ours:.2f} | {peer} | {compiling:.1f} |", version


def server_row(clients: int) -> str:
    """A row of the second table."""
    ours, loops = jaxfl_ms(clients), loops_ms(clients)
    return f"| {clients} | {ours:.2f} | {loops:.0f} | {loops / ours:.0f} |"


def processor() -> str:
    """The processor's name, as far as the system tells it."""
    info = Path("/proc/cpuinfo")
    names = [line.split(":")[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")]
    return names[0] if names else platform.machine()


def main(torch: str) -> None:
    """Measures, and writes the page."""
    floor = product_gflops()
    steps, versions = zip(*(step_row(torch, case) for case in STEPS), strict=True)
    servers = [server_row(clients) for clients in (10, 50, 100)]
    machine = f"{os.cpu_count()} cores, {processor()}"
    software = (
        f"Python {platform.python_version()}, jax {jax.__version__} ({jax.default_backend()}), torch {versions[0]}"
    )
    PAGE.write_text(
        TEXT.format(
            date=datetime.date.today(),
            machine=machine,
            software=software,
            floor=floor,
            steps="\n".join(steps),
            servers="\n".join(servers),
        )
    )


TEXT = """# Performance

Measured on {date} by `python -m benchmarks.report`: {machine},
{software}. Both sides run twice in turn, best of several
calls each, compile time apart. A matrix product of 2048x2048 reaches {floor:.0f} GFLOP/s in the same run.

## One local SGD step of one client

Momentum .9, weight decay 1e-5; 4 clients, 20 steps each in one call. The peer is a PyTorch loop over clients and
steps without a data loader (`benchmarks/peers/torch_loop.py`), with its own threads. `lenet` has two convolutions 5x5,
`three` has three with 32, 64 and 64 channels.

| step | jaxfl, ms | torch, ms | times faster | compiling, s |
|---|---:|---:|---:|---:|
{steps}

The convolution is patches and one matrix product with its own gradient (`jaxfl/models/conv.py`), clients run one at a
time (`chunk="auto"`), and batches in parts of 16 (`micro`).

## The server step of pFedGraph

Cosines, collaboration weights and mixing of M models of 62,006 parameters. The peer is the way of reference scripts
(`benchmarks/server_step.py`): a NumPy cosine a pair, a quadratic program a row (SciPy), a sum a pair.

| M | jaxfl, ms | loops, ms | times faster |
|---:|---:|---:|---:|
{servers}
"""


if __name__ == "__main__":
    main(sys.argv[sys.argv.index("--torch") + 1] if "--torch" in sys.argv else sys.executable)
