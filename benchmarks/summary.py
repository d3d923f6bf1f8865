"""What stands first on docs/performance.md, read from the tables of its sections."""

import re
import textwrap
from typing import NamedTuple

Sections = dict[str, str]
Rows = list[list[str]]


class Pair(NamedTuple):
    """A time of jaxfl, that of a peer, and their ratio: cells of a row of a section's table.

    The ratio may also stand in brackets behind the peer's time; then `times` is None.
    """

    work: str
    section: str
    row: str
    peer: str
    ours: int
    theirs: int
    times: int | None
    unit: str


PAIRS = (
    Pair(
        "one local step of a client, LeNet, batch 16",
        *("local_training", "lenet 32x32, batch 16", "PyTorch loop", 1, 3, 4, "ms"),
    ),
    Pair(
        "one local step of a client, FedCedar's six convolutions",
        *("local_training", "cedar6 32x32, batch 16", "PyTorch loop", 1, 3, 4, "ms"),
    ),
    Pair(
        "one local step of a client, adapters on a frozen ViT-Tiny, batch 16",
        *("adapters", "100 clients, batch 16", "PyTorch loop", 1, 3, 4, "ms"),
    ),
    Pair(
        "the server's step of pFedGraph, 100 clients",
        *("server_step", "100", "loops in NumPy", 2, 4, 5, "ms"),
    ),
    Pair(
        "a step of 100 clients of very different sizes",
        *(
            "unequal_clients",
            "100 clients, batch 16, Dirichlet .1",
            "PyTorch loop",
            3,
            6,
            None,
            "ms",
        ),
    ),
    Pair(
        "a round of 100 of 100,000 clients on disk",
        *("many_clients", "100,000", "FedJAX", 1, 3, None, "s"),
    ),
)


def rows_of(section: str) -> Rows:
    r"""The cells of all tables of a section, line by line.

    Example:
      >>> rows_of("| a | b |\\n|---|---|\\n| 1 | 2 |")
      [['a', 'b'], ['---', '---'], ['1', '2']]
    """
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def number(cell: str) -> float | None:
    """The first number of a cell; None if it has none, as where a peer did not run.

    Example:
      >>> number("1.88 (8.0)"), number("not run")
      (1.88, None)
    """
    found = re.match(r"[\d,]*\.?\d+", cell)
    return float(found[0].replace(",", "")) if found else None


def summary(sections: Sections) -> str:
    """The verdict, the table beside peers, the table beside the floor.

    Args:
      sections: the sections by name; what needs one that is missing is left out.
    """
    peers = beside_peers(sections)
    floor = beside_floor(sections)
    parts = [verdict(sections), PEERS.format(rows="\n".join(peers)) if peers else ""]
    parts.append(FLOOR.format(rows="\n".join(floor)) if floor else "")
    return "\n".join(part for part in parts if part)


def verdict(sections: Sections) -> str:
    """What the tables say, in two sentences."""
    times = [ratio for _, ratio in frameworks(sections)]
    floor = floor_rows(sections)
    said = ""
    if times:
        said += TRAINS.format(ours=ours_of(sections), low=min(times), high=max(times))
    if floor:
        few, many = floor[0], floor[-1]
        said += SERVES.format(first=few[0], few=few[-1], last=many[0], many=many[-1])
    return textwrap.fill(said, 100) + "\n" if said else ""


def frameworks(sections: Sections) -> list[tuple[str, float]]:
    """The peers of the round of federated averaging, and how many times longer they take."""
    rows = rows_of(sections.get("fedavg_round", ""))[3:]
    found = [(row[0], number(row[2])) for row in rows]
    return [(name, ratio) for name, ratio in found if ratio is not None]


def ours_of(sections: Sections) -> float | None:
    """Milliseconds of a client step in that round."""
    return number(rows_of(sections["fedavg_round"])[2][1])


def beside_peers(sections: Sections) -> list[str]:
    """A line for each tool of the round, and for each other pair."""
    lines = []
    rows = rows_of(sections.get("fedavg_round", ""))[2:]
    for row in rows[1:]:
        if number(row[1]) is not None:
            work = "one local step in a round of 100 clients, batch 16"
            lines.append(f"| {work} | {rows[0][1]} ms | {row[0]} | {row[1]} ms | {row[2]} |")
    for pair in PAIRS:
        rows = [row for row in rows_of(sections.get(pair.section, "")) if row[0] == pair.row]
        if not rows:
            continue
        # Where a section has two tables, peers stand in the last one.
        cells = rows[-1]
        theirs, _, brackets = cells[pair.theirs].partition(" (")
        if number(theirs) is not None:
            times = brackets.rstrip(")") if pair.times is None else cells[pair.times]
            both = f"{cells[pair.ours]} {pair.unit} | {pair.peer} | {theirs} {pair.unit}"
            lines.append(f"| {pair.work} | {both} | {times} |")
    return lines


def floor_rows(sections: Sections) -> Rows:
    """Models, floor, time on one device, and its ratio to the floor."""
    found = []
    for row in rows_of(sections.get("server_step", ""))[2:]:
        floor, ours = number(row[1]), number(row[2])
        if floor and ours:
            # A floor of few digits has no ratio of more.
            digits = 0 if floor < 1 else 1
            found.append([row[0], row[1], row[2], f"{ours / floor:.{digits}f}"])
    return found


def beside_floor(sections: Sections) -> list[str]:
    """A line for each number of models."""
    return [f"| {' | '.join(row)} |" for row in floor_rows(sections)]


TRAINS = (
    "On two CPU cores a local step of LeNet in a round of 100 clients takes {ours} ms, and {low} "
    "to {high} times as long in the other tools that were measured beside it. "
)
SERVES = (
    "The server's step of pFedGraph takes {few} times its floor with {first} models, and {many} "
    "times with {last}. On an NVIDIA H100 the distance to other tools is larger: "
    "[GPU and TPU](accelerators.md)."
)
PEERS = """## Beside other tools

Each line is a time of jaxfl and that of another tool for the same work on the same machine, and
how many times longer the other one takes.

| work | jaxfl | other tool | its time | times |
|---|---:|---|---:|---:|
{rows}
"""
FLOOR = """## Beside the floor

The floor of the server's step is its two products of matrices at the rate that this processor
reaches; the rest is what the step loses, most of it with few models, whose products are thin.

| models | floor, ms | jaxfl, ms | times the floor |
|---:|---:|---:|---:|
{rows}
"""
