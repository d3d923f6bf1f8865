"""Time of a client step and peak memory as clients grow; a section of docs/performance.md.

`python -m benchmarks.growth.client_step 1000` prints JSON. Each size has its own process, because
the peak memory is that of a process.
"""

import json
import subprocess
import sys

import jax.numpy as jnp
import numpy as np

import jaxfl
from benchmarks.measure import best_ms, compile_round, use_all_cores, without_evaluation
from benchmarks.peers import ROOT
from benchmarks.peers.work import peak_gib, print_json
from jaxfl.core.types import Dataset


def measure(clients: int, steps: int = 5, batch: int = 16) -> dict[str, float]:
    """Milliseconds of a client step and the peak memory of this process.

    Each client has a personal LeNet and 64 images.
    """
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.integers(0, 256, (clients, 64, 28, 28, 1), dtype=np.uint8))
    train = Dataset(
        x, jnp.asarray(rng.integers(0, 10, (clients, 64)), jnp.int32), jnp.ones((clients, 64), bool)
    )
    task = jaxfl.classification(
        jaxfl.models.lenet(10), x[0, 0], batch_size=batch, steps=steps, scale=255
    )
    one_round, _ = compile_round(jaxfl.algorithms.local(task), without_evaluation(train))
    ms = best_ms(one_round, max(2, 1_000 // clients)) / clients / steps
    return {"ms": ms, "peak_gib": peak_gib()}


def section(sizes: tuple[int, ...] = (10, 100, 1_000, 10_000)) -> str:
    """The table."""
    rows = []
    for clients in sizes:
        command = [sys.executable, "-m", "benchmarks.growth.client_step", str(clients)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
        found = json.loads(done.stdout.splitlines()[-1])
        rows.append(f"| {clients:,} | {found['ms']:.3f} | {found['peak_gib']:.2f} |")
    return TEXT.format(rows="\n".join(rows))


TEXT = """## Growth in clients

Local training with a personal LeNet of 44,426 parameters and 64 images 28x28 for each client, 5
steps of batch 16, in a process of its own; best of two rounds or more. The memory is the process's
peak, data and models included.

| clients | client step, ms | peak memory, GiB |
|---:|---:|---:|
{rows}

Other processors: [notebook](notebook.md#growth-in-clients-on-cpu).
"""


if __name__ == "__main__":
    with use_all_cores():
        print_json(**measure(int(sys.argv[1])))
