"""The table of what a session on an H100 measured: h100.jsonl, rows of `session`."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROWS = Path(__file__).parent / "h100.jsonl"
PEERS = {"torch_fedavg": "PyTorch loop", "flower": "Flower", "blazefl": "BlazeFL"}
MODELS = {"lenet": "LeNet", "resnet8": "ResNet-8", "mlp": "MLP"}
Rows = list[dict[str, Any]]


def read_rows() -> Rows:
    """All rows of the file."""
    return [json.loads(line) for line in ROWS.read_text().splitlines()]


def headline(rows: Rows) -> str:
    """The round of 100 LeNets in words."""
    work = ("lenet", 100, 64)
    (found,) = [
        row["found"]
        for row in rows
        if row["part"] == "rounds" and (*work, "patches") == tuple(row["case"].values())
    ]
    ours = 1e3 * found["client step ms"]
    ratios = {peer: time / ours for peer in PEERS if (time := time_of(rows, peer, work))}
    return HEADLINE.format(ms=found["round ms"], **ratios)


def section(rows: Rows) -> str:
    """The tables of rounds, beside other tools and by the way of convolution."""
    rates = found_of(rows, "rates", "product")
    (copy,) = found_of(rows, "rates", "copy").values()
    (device,) = [row["found"] for row in rows if row["part"] == "device"]
    versions = sorted({f"{PEERS[n]} {v}" for n, v in versions_of(rows)})
    return TEXT.format(
        beside="\n".join(beside_others(rows)),
        convolutions="\n".join(by_convolution(rows)),
        versions="; ".join(versions),
        device=device,
        date=rows[0]["date"],
        copy=copy["GB/s"],
        **{name: rate["TFLOP/s"] for name, rate in rates.items()},
    )


def found_of(rows: Rows, part: str, name: str) -> dict[str, dict[str, Any]]:
    """What was found in a part's cases that have a name, by its value."""
    return {
        row["case"][name]: row["found"]
        for row in rows
        if row["part"] == part and name in row["case"]
    }


def versions_of(rows: Rows) -> Iterable[tuple[str, str]]:
    """Each peer with the version that ran."""
    peers = [row for row in rows if row["part"] == "peers"]
    return ((row["case"]["peer"], row["found"]["version"]) for row in peers)


def beside_others(rows: Rows) -> list[str]:
    """A row for each model, number of clients and batch; patches are jaxfl's default here."""
    lines = [
        "| model | clients | batch | jaxfl, a round, ms | a client step, µs "
        + "".join(f"| {name}, µs | times jaxfl " for name in PEERS.values())
        + "| compiling, s |",
        "|---|---:|---:|---:|---:|" + "---:|---:|" * len(PEERS) + "---:|",
    ]
    cases = [row for row in rows if row["part"] == "rounds"]
    for row in sorted(cases, key=lambda row: order(row["case"])):
        case, found = row["case"], row["found"]
        if case["convolution"] == "grouped":
            continue
        work = (case["model"], case["clients"], case["batch"])
        cells = [MODELS[case["model"]], f"{case['clients']:,}", str(case["batch"])]
        ours = 1e3 * found["client step ms"]
        cells += [f"{found['round ms']:.1f}", f"{ours:.1f}"]
        for peer in PEERS:
            theirs = time_of(rows, peer, work)
            cells += ["", ""] if theirs is None else [f"{theirs:,.0f}", f"{theirs / ours:.0f}"]
        lines.append(f"| {' | '.join(cells)} | {found['compile s']:.0f} |")
    return lines


def time_of(rows: Rows, peer: str, work: tuple[str, int, int]) -> float | None:
    """Microseconds of a client step by a peer; None if it was not measured."""
    for row in rows:
        case = row["case"]
        if row["part"] == "peers" and (peer, *work) == tuple(case.values()):
            return 1e3 * row["found"]["ms"]
    return None


def by_convolution(rows: Rows) -> list[str]:
    """A row for each round that was measured with both ways of convolution."""
    lines = [
        "| model | clients | batch | patches, a round, ms | grouped, a round, ms | times patches |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    times: dict[tuple, dict[str, float]] = {}
    cases = [row for row in rows if row["part"] == "rounds"]
    for row in sorted(cases, key=lambda row: order(row["case"])):
        case = row["case"]
        work = (MODELS[case["model"]], f"{case['clients']:,}", case["batch"])
        times.setdefault(work, {})[case["convolution"]] = row["found"]["round ms"]
    for (model, clients, batch), ms in times.items():
        if {"patches", "grouped"} <= ms.keys():
            ratio = ms["grouped"] / ms["patches"]
            cells = f"{ms['patches']:.1f} | {ms['grouped']:.1f} | {ratio:.1f}"
            lines.append(f"| {model} | {clients} | {batch} | {cells} |")
    return lines


def order(case: dict[str, Any]) -> tuple:
    """Cases by model, clients and batch."""
    return list(MODELS).index(case["model"]), case["clients"], case["batch"]


HEADLINE = """On one NVIDIA H100, a round of federated averaging with 100 clients (LeNet, batches of
64, 10 local steps) takes {ms:.1f} ms. This is {flower:.0f} times faster than Flower, {blazefl:.0f}
times faster than BlazeFL and {torch_fedavg:.0f} times faster than a PyTorch loop over the clients
on the same card."""
TEXT = """## Measured on an H100

Federated averaging, images of 32x32x3, 10 local steps of each client in a round, all data on the
card, TF32 on all sides. µs of one client step in the best of three rounds, with everything that
belongs to a round; compiling and a first round apart.

{beside}

A model of its own for each client costs little on this card as long as all clients train in one
program. With 100 LeNets and batches of 64 a local step takes 1.27 ms. The bytes that it moves (2.6
GB, see below) take 0.78 ms at the card's published rate and 1.03 ms at the rate of a copy that was
measured. With 1,000 clients it takes 10.1 ms, and these bytes 7.8 and 10.3 ms. With 10 clients it
takes 0.28 ms in place of 0.08: there, starting its 46 kernels, about 6 µs each, is what takes time.

{convolutions}

Convolutions by cuDNN, grouped by clients, take three to six times as long as patches. So patches
stay the default on a GPU.

The PyTorch loop trains one client after another (`benchmarks/peers/torch_fedavg.py`). Flower had 16
actors that share the card; a run with 6 actors did not end in time. BlazeFL had 1, 2, 4 and 16
threads, and the best counts, 4. Its threads are made for the build of Python 3.14 without a global
lock, which this machine did not have: version 3.0.0 ran on Python 3.12 with one line added that
delays annotations. jaxfl's rounds ran after the peers'; had a process of the stopped run been left,
jaxfl's times would be too long. Versions: {versions}.

One machine ({device[device]}, jax {device[jax]}, Python {device[python]}, 16 CPU cores), once, on
{date}. Products of 8,192 x 8,192 there reach {float32:.0f} TFLOP/s in float32, {TF32:.0f} in TF32
and {bfloat16:.0f} in bfloat16, and a copy {copy:,.0f} GB/s. `python -m
benchmarks.accelerators.session` measures the same and more. Not measured: models in bfloat16,
ResNet-8 with 1,000 clients, and the tests of [determinism](determinism.md).

Cells of [the papers' tables](papers.md) on another such machine, the same day: 63 cells, 94 results
with all seeds, in eight and a half minutes, by eight processes that share the card by NVIDIA's MPS.
pFedGraph's 50 rounds of 200 steps of ten LeNets took 7 to 22 s beside seven other runs, with three
seeds in one program 11 to 44 s. Compiling took longer: 45 s for the first cell of a process, all at
once on 16 cores, and 2 to 20 s where another cell had left its programs in the cache.
"""
