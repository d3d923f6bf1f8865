"""The page of growth, written from measured.jsonl: tables with exponents."""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.growth.case import Case
from benchmarks.peers import ROOT

ROWS = Path(__file__).parent / "measured.jsonl"
PAGE = ROOT / "docs" / "growth.md"
# Where the kept rows were measured; it goes with them.
PLACE = "one of two cores of an Intel Xeon, short measurements on the other one"
METHODS = ("pfedgraph", "fedcedar", "gfedmtl", "pfedgat", "fedavg", "gossip", "learned_graph")
Rows = list[dict[str, Any]]


class Axis(NamedTuple):
    """What grows, while all else stays."""

    title: str
    # of a row
    name: str
    sizes: tuple[dict[str, int], ...]
    # what stays
    fixed: str
    # other than the defaults of a case
    base: dict[str, int] | None = None


AXES = (
    Axis(
        "Clients, with a cohort of 100",
        "clients",
        tuple({"clients": count} for count in (100, 300, 1000, 3000)),
        "100 clients a round, 640 parameters, 20 rounds",
    ),
    Axis(
        "Clients that all take part",
        "cohort",
        tuple({"clients": count, "cohort": count} for count in (30, 100, 300, 1000)),
        "640 parameters, 20 rounds",
    ),
    Axis(
        "Parameters",
        "parameters",
        tuple({"features": count} for count in (63, 639, 6399, 63999)),
        "30 clients, 20 rounds",
        {"clients": 30, "cohort": 30},
    ),
    Axis(
        "Rounds",
        "rounds",
        tuple({"rounds": count} for count in (20, 60, 200, 600)),
        "100 clients, 640 parameters",
    ),
    Axis(
        "Seeds of one run",
        "seeds",
        tuple({"seeds": count} for count in (1, 2, 4, 8)),
        "30 clients, 640 parameters, 20 rounds",
        {"clients": 30, "cohort": 30},
    ),
)


def read_rows() -> Rows:
    """All rows of the file."""
    return [json.loads(line) for line in ROWS.read_text().splitlines()] if ROWS.exists() else []


def cases() -> list[Case]:
    """All cases of the page, each once."""
    every = [case for axis in AXES for method in METHODS for case in cases_of(axis, method)]
    return list(dict.fromkeys(every))


def cases_of(axis: Axis, method: str) -> list[Case]:
    """The cases of a method along an axis, the smallest first."""
    return [replace(Case(method), **{**(axis.base or {}), **size}) for size in axis.sizes]


def page(rows: Rows) -> str:
    """The page of all rows.

    Raises:
      IndexError: a row is missing.
    """
    sections = [section(axis, rows) for axis in AXES]
    return "\n".join([head(rows), *sections, how(rows)])


def head(rows: Rows) -> str:
    """What stands before the tables, with numbers of the rows."""
    clients, cohort, _, rounds, _ = AXES
    sizes = [size["cohort"] for size in cohort.sizes]
    graphs = [rows_of(cohort, method, rows) for method in METHODS if method != "fedavg"]
    powers = [float(exponent(sizes, [row["ms"] for row in measured])) for measured in graphs]
    return HEAD.format(
        lowest=min(powers),
        highest=max(powers),
        slower=max(ratio(rows_of(clients, method, rows), "ms") for method in METHODS),
        larger=100
        * (max(ratio(rows_of(rounds, method, rows), "peak_mib") for method in METHODS) - 1),
    )


def how(rows: Rows) -> str:
    """What stands behind the tables."""
    dates = " and ".join(sorted({row["date"] for row in rows}))
    return HOW.format(dates=dates, place=PLACE)


def ratio(rows: Rows, name: str) -> float:
    """The largest size's number over the smallest size's."""
    return rows[-1][name] / rows[0][name]


def section(axis: Axis, rows: Rows) -> str:
    """The tables of an axis."""
    found = {method: rows_of(axis, method, rows) for method in METHODS}
    sizes = [getattr(case, axis.name) for case in cases_of(axis, METHODS[0])]
    names = [f"{size:,}" for size in sizes]
    times = [
        f"## {axis.title}",
        "",
        f"{axis.fixed}. Milliseconds of a round:",
        "",
        f"| method | {' | '.join(names)} | exponent |",
        "|---|" + "---:|" * (len(names) + 1),
    ]
    others = [
        "",
        f"Compiling, memory and files, from {names[0]} to {names[-1]}:",
        "",
        "| method | compiling, s | peak memory, MiB | exponent | files, MB | exponent |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for method, measured in found.items():
        if len(measured) < len(sizes):
            continue
        ms = [row["ms"] for row in measured]
        cells = [*(digits(value) for value in ms), exponent(sizes, ms)]
        times.append(f"| {method} | {' | '.join(cells)} |")
        cells = [ends(measured, "compile_s")]
        for name in ("peak_mib", "files_mb"):
            values = [row[name] for row in measured]
            cells += [ends(measured, name), exponent(sizes, values)]
        others.append(f"| {method} | {' | '.join(cells)} |")
    return "\n".join([*times, *others, ""])


def rows_of(axis: Axis, method: str, rows: Rows) -> Rows:
    """What was measured along an axis, the smallest first."""
    found = []
    for case in cases_of(axis, method):
        names = Case.__dataclass_fields__
        found += [row for row in rows if all(row[name] == getattr(case, name) for name in names)]
    return found


def exponent(sizes: Sequence[int], values: Sequence[float]) -> str:
    """The exponent of growth between the two largest sizes."""
    ratio = values[-1] / values[-2]
    return f"{math.log(ratio) / math.log(sizes[-1] / sizes[-2]):.2f}"


def ends(rows: Rows, name: str) -> str:
    """The smallest and the largest size's number."""
    return f"{digits(rows[0][name])} to {digits(rows[-1][name])}"


def digits(value: float) -> str:
    """A number with three digits, or all digits before the point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


HEAD = """# How runs grow

A round takes time in proportion to the clients that take part, to the parameters and to the seeds,
whatever the number of rounds; compiling takes about as long for each size. With a cohort of 100, a
round of 3,000 clients takes at most {slower:.1f} times as long as one of 100.
The graph costs more where all clients take part: most methods work on a matrix with a row and a
column for each of them, and from 300 to 1,000 clients the rounds of all but fedavg grow with an
exponent of {lowest:.1f} to {highest:.1f}. The memory grows by what the models of the clients hold,
and by at most {larger:.0f} % from 20 to 600 rounds.

`python -m benchmarks.growth` makes this page; [how it is measured](#how-it-is-measured) stands at
its end.
"""
HOW = """## How it is measured

One run after another, each with a cold start on one core: random data, 20 examples a client, a
linear model, 5 steps of batch 10, one evaluation at the end. Measured on {dates}, on {place}.
The time of a round is that of the best of three segments of all rounds. Compiling is all that a
run compiles before its first round, with no program kept from earlier runs. The memory is the peak
of the process, of which Python, JAX and its compiler take some 400 MiB. Files are all files of the
run's directory but pictures; they are compressed, so that weights that become equal, as pFedGraph's
do on these data, take little. The exponent is that between the two largest sizes.
`pfedgraph`, `pfedgat` and `learned_graph` mix by a dense matrix and compare all pairs, which has
the exponent 2: [notebook](notebook.md#rounds-of-1000-clients-on-cpu). The core's speed changes by
half within seconds, as the neighbours of this virtual machine allow: single numbers are off by as
much.
"""
