"""What to run when a GPU or a TPU is lent for a short time.

`python -m benchmarks.accelerators.session [PART ...]` measures what is worth most first. Each part
is a process of its own and takes ten minutes at most (`--budget`): `rates`, `rounds`, `steps`,
`peers`, `frozen`, `determinism`, `blazefl`, `table1` (`parts.py`). Rows are written one by one, so
an aborted session keeps what it has measured, and the next start goes on with what is missing.
Last, a page of all rows is written. `--smallest` tries the programs on a CPU.
"""

import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import tyro

from benchmarks.accelerators.rows import read_rows, write_row
from benchmarks.peers import ROOT

PARTS = {
    "rates": "Rates of the device",
    "rounds": "One round of federated averaging",
    "steps": "One local step of a LeNet, 32x32x3",
    "peers": "The same round by other tools",
    "frozen": "One local step of adapters on a frozen ViT-Tiny",
    "determinism": "The tests of docs/determinism.md",
    "blazefl": "BlazeFL's benchmark: 5 rounds over 100 clients",
    "table1": "pFedGraph's table 1",
}
SECONDS = {"s": 1, "m": 60, "h": 3600}
GRACE = 60  # seconds for the row that was started last
# Parts whose own programs need the memory of the device: JAX must not take most of it at the start.
SHARED = {"peers", "frozen", "determinism", "table1"}


def main(
    parts: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="PART")] = (),
    /,
    out: Path = Path("accelerator_session"),
    budget: str = "10m",
    peers: Path | None = None,
    docs: bool = False,
    smallest: bool = False,
) -> None:
    """Runs the parts one after another and writes a page of all rows.

    Args:
      parts: names of parts; all if none is given.
      out: folder of rows.jsonl and session.md.
      budget: time of each part, such as 90s or 10m.
      peers: folder of the peers' environments, see `benchmarks.peers`.
      docs: write the page to docs/accelerator_session.md, not to the folder.
      smallest: tiny sizes, to try the programs.
    """
    unknown = [part for part in parts if part not in PARTS]
    if unknown:
        sys.exit(f"there is no part {unknown[0]}: choose from {', '.join(PARTS)}")
    found = re.fullmatch(r"(\d+)([smh])", budget)
    if found is None:
        sys.exit(f"--budget is {budget!r}: expected a number with s, m or h, such as 10m")
    seconds = int(found[1]) * SECONDS[found[2]]
    write_row(out, "device", {}, device())
    for part in parts or PARTS:
        run_part(part, out, seconds, peers, smallest)
    file = ROOT / "docs" / "accelerator_session.md" if docs else out / "session.md"
    file.write_text(page(read_rows(out)))
    print(f"written to {file}")


def run_part(part: str, out: Path, seconds: int, peers: Path | None, smallest: bool) -> None:
    """Runs a part as a process of its own, and stops it if it takes too long."""
    command = [sys.executable, "-m", "benchmarks.accelerators.parts", part, "--out", out.absolute()]
    command += ["--seconds", str(seconds)]
    command += ["--peers", peers.absolute()] if peers else []
    command += ["--smallest"] if smallest else []
    shared = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"} if part in SHARED else {}
    try:
        subprocess.run(
            command, cwd=ROOT, timeout=seconds + GRACE, env=os.environ | shared, check=False
        )
    except subprocess.TimeoutExpired:
        print(f"{part}: stopped after {seconds + GRACE} s", flush=True)


def device() -> dict[str, str]:
    """The device and the versions, asked in a process that gives the device back."""
    asked = "jax.devices()[0].device_kind, jax.device_count(), jax.__version__"
    code = f"import jax; print({asked}, sep=' | ')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    kind, count, version = done.stdout.splitlines()[-1].split(" | ")
    return {"device": kind, "devices": count, "jax": version, "python": platform.python_version()}


def page(rows: list[dict]) -> str:
    """A page with a table for each part that has rows; of equal cases the latest row counts."""
    devices = [row for row in rows if row["part"] == "device"]
    where = "; ".join(
        dict.fromkeys(
            f"{row['date']}, {row['found']['devices']} x {row['found']['device']}, "
            f"jax {row['found']['jax']}, Python {row['found']['python']}"
            for row in devices
        )
    )
    sections = [TEXT.format(where=where)]
    for part, title in PARTS.items():
        latest = {str(row["case"]): row for row in rows if row["part"] == part}
        if latest:
            sections.append(f"## {title}\n\n{table(latest.values())}\n")
    return "\n".join(sections)


def table(rows: Iterable[dict]) -> str:
    """A table with a column for each name in the cases and in what was found."""
    merged = [row["case"] | row["found"] for row in rows]
    columns = list(dict.fromkeys(name for row in merged for name in row))
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(cell(row.get(name)) for name in columns) + " |" for row in merged]
    return "\n".join(lines)


def cell(value: object) -> str:
    """A value in a table: four digits of a float."""
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value).replace("|", "\\|")


TEXT = """# A session on an accelerator

Measured by `python -m benchmarks.accelerators.session`: {where}.
The best of several calls, compiling apart. A row with an error was not measured.
"""


if __name__ == "__main__":
    tyro.cli(main)
