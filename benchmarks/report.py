"""Runs the benchmarks beside their peers and writes docs/performance.md.

`python -m benchmarks.report [--peers DIR]`: DIR holds an environment for each tool, `DIR/torch`,
`DIR/fedjax`, `DIR/pfl`, `DIR/flower` and `DIR/blazefl`, made as described in
`benchmarks/peers/NAME.py`. The tables say which peers are missing or failed. It takes about half an
hour on two cores; nothing else should run.
"""

import datetime
import os
import platform
from pathlib import Path

import jax
import tyro

from benchmarks import (
    fedavg_round,
    gradient_through_rounds,
    growth,
    local_training,
    pfedgraph_round,
    server_step,
)
from benchmarks.measure import product_gflops, use_all_cores
from benchmarks.peers import ROOT


def processor() -> str:
    """The processor's name, or its architecture if the system does not tell the name."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def main(peers: Path | None = None) -> None:
    """Runs all benchmarks and writes the page.

    Args:
      peers: folder of the peers' environments.
    """
    with use_all_cores():
        floor = product_gflops()
        sections = [
            local_training.section(peers),
            fedavg_round.section(peers),
            pfedgraph_round.section(peers),
            server_step.section(peers, floor),
        ]
    head = TEXT.format(
        date=datetime.date.today(),
        machine=f"{os.cpu_count()} cores, {processor()}",
        software=f"Python {platform.python_version()}, "
        f"jax {jax.__version__} ({jax.default_backend()})",
        floor=floor,
    )
    sections += [gradient_through_rounds.section(), growth.section()]
    page = "\n".join([head, *sections])
    (ROOT / "docs" / "performance.md").write_text(page)


TEXT = """# Performance

Measured on {date} by `python -m benchmarks.report`: {machine}, {software}.
Each side runs several times and the best counts, compiling and start-up apart; nothing else ran,
for PyTorch's threads suffer from company. Matrix products of 2048x2048 reach {floor:.0f} GFLOP/s in
the same run.
"""


if __name__ == "__main__":
    tyro.cli(main)
