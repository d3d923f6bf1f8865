"""Runs the benchmarks beside their peers and writes docs/performance.md.

`python -m benchmarks.report [SECTION ...] [--peers DIR]`: DIR holds an environment for each tool,
`DIR/torch`, `DIR/fedjax`, `DIR/pfl`, `DIR/flower`, `DIR/blazefl`, `DIR/flbench` and `DIR/pfllib`,
made as described in `benchmarks/peers/NAME.py`. The tables say which peers are missing or failed.
All sections take about half an hour on two cores; nothing else should run. Sections that are named
are made anew, and the others stay as they are.
"""

import datetime
import os
import platform
from collections.abc import Callable
from pathlib import Path

import jax
import tyro

from benchmarks.growth import client_step
from benchmarks.measure import product_gflops, use_all_cores
from benchmarks.peers import ROOT
from benchmarks.rounds import (
    adapters,
    adapters_memory,
    fedavg_round,
    gradient_through_rounds,
    local_training,
    many_clients,
    network,
    pfedgraph_round,
    server_step,
    sparse_step,
    unequal_clients,
)
from benchmarks.summary import summary
from jaxfl.core.errors import check_name

PAGE = ROOT / "docs" / "performance.md"
# In the order of the page: a function of the folder of the peers' environments and of the speed of
# matrix products in GFLOP/s.
SECTIONS: dict[str, Callable[[Path | None, float], str]] = {
    "local_training": lambda peers, floor: local_training.section(peers),
    "adapters": lambda peers, floor: adapters.section(peers),
    "adapters_memory": lambda peers, floor: adapters_memory.section(),
    "fedavg_round": lambda peers, floor: fedavg_round.section(peers),
    "pfedgraph_round": lambda peers, floor: pfedgraph_round.section(peers),
    "server_step": server_step.section,
    "sparse_step": lambda peers, floor: sparse_step.section(floor),
    "network": lambda peers, floor: network.section(),
    "unequal_clients": lambda peers, floor: unequal_clients.section(peers),
    "unequal_memory": lambda peers, floor: unequal_clients.memory_section(),
    "gradient_through_rounds": lambda peers, floor: gradient_through_rounds.section(),
    "growth": lambda peers, floor: client_step.section(),
    "many_clients": lambda peers, floor: many_clients.section(peers),
}


def processor() -> str:
    """The processor's name, or its architecture if the system does not tell the name."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def caches() -> str:
    """The sizes of the first core's caches, the smallest first, as far as the system tells them."""
    places = Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")
    kept = [place for place in places if (place / "type").read_text().strip() != "Instruction"]
    found = sorted((place / "level", place / "size") for place in kept)
    return "".join(
        f", L{level.read_text().strip()} {size.read_text().strip()}" for level, size in found
    )


def main(sections: tyro.conf.Positional[tuple[str, ...]] = (), peers: Path | None = None) -> None:
    """Runs benchmarks and writes their sections of the page.

    Args:
      sections: which ones; all if none is named.
      peers: folder of the peers' environments.
    """
    for name in sections:
        check_name("section", name, SECTIONS)
    with use_all_cores():
        floor = product_gflops()
        made = {name: SECTIONS[name](peers, floor) for name in sections or SECTIONS}
    measured = MEASURED.format(
        date=datetime.date.today(),
        machine=f"{os.cpu_count()} cores, {processor()}{caches()}",
        software=f"Python {platform.python_version()}, "
        f"jax {jax.__version__} ({jax.default_backend()})",
        floor=floor,
    )
    PAGE.write_text(page(PAGE.read_text() if sections else "", made, measured))


def page(before: str, made: dict[str, str], measured: str) -> str:
    """The page with the sections that were made, and the others as they were before.

    A section is known by the comment in front of it.

    Args:
      before: the page before.
      made: the sections by name.
      measured: when and on what they were measured.
    """
    _, *parts = before.split("<!-- ")
    known = dict(part.split(" -->\n", 1) for part in parts)
    for name, text in made.items():
        heading, _, rest = text.partition("\n")
        known[name] = f"{heading}\n\n{measured}{rest.rstrip()}\n\n"
    found = [f"<!-- {name} -->\n{known[name]}" for name in SECTIONS if name in known]
    return f"{HEAD}{summary(known)}\n{HOW}{''.join(found).rstrip()}\n"


HEAD = """# Performance

"""
HOW = """## How it is measured

`python -m benchmarks.report` makes each of the sections below, which say when. Each side runs
several times and the best counts, compiling and start-up apart; nothing else runs, for PyTorch's
threads suffer from company. Processors of different generations have the same name here; the rate
of matrix products tells them apart.

"""
MEASURED = """*{date}: {machine}, {software};
matrix products of 2048x2048 reach {floor:.0f} GFLOP/s in the same run.*
"""


if __name__ == "__main__":
    tyro.cli(main)
