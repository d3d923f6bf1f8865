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
        alone="\n".join(rounds_alone(rows)),
        convolutions="\n".join(by_convolution(rows)),
        adapters=adapters(rows),
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


def rounds_of(rows: Rows) -> Rows:
    """The rounds with jaxfl's default way of convolution here, by model, clients and batch."""
    cases = [row for row in rows if row["part"] == "rounds"]
    default = [row for row in cases if row["case"]["convolution"] != "grouped"]
    return sorted(default, key=lambda row: order(row["case"]))


def work_of(case: dict[str, Any]) -> tuple[str, int, int]:
    """What a peer does too: the model, the clients and the batch."""
    return case["model"], case["clients"], case["batch"]


def named(case: dict[str, Any]) -> list[str]:
    """The first cells of a row."""
    return [MODELS[case["model"]], f"{case['clients']:,}", str(case["batch"])]


def rounds_alone(rows: Rows) -> list[str]:
    """A row for each model, number of clients and batch."""
    lines = [
        "| model | clients | batch | a round, ms | a client step, µs | compiling, s |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for row in rounds_of(rows):
        found = row["found"]
        times = f"{found['round ms']:.1f} | {1e3 * found['client step ms']:.1f}"
        cells = [*named(row["case"]), times, f"{found['compile s']:.0f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def beside_others(rows: Rows) -> list[str]:
    """A row for each round that another tool did too, with the ratio to jaxfl in brackets."""
    peers = " | ".join(f"{name}, µs" for name in PEERS.values())
    lines = [
        f"| model | clients | batch | jaxfl, µs | {peers} |",
        "|---|---:|---:|---:|" + "---:|" * len(PEERS),
    ]
    for row in rounds_of(rows):
        ours = 1e3 * row["found"]["client step ms"]
        times = [time_of(rows, peer, work_of(row["case"])) for peer in PEERS]
        if any(time is not None for time in times):
            cells = ["" if time is None else f"{time:,.0f} ({time / ours:.0f})" for time in times]
            lines.append(f"| {' | '.join([*named(row['case']), f'{ours:.1f}', *cells])} |")
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


def adapters(rows: Rows) -> str:
    """A local step of adapters on a frozen model in words."""
    row = next(row for row in rows if row["part"] == "frozen")
    found = row["found"]
    ours, loop = found["client step ms"], found["ms"]
    needed = found["rest MiB"] + row["case"]["clients"] * found["activations MiB"]
    return ADAPTERS.format(
        **row["case"],
        date=row["date"],
        all=row["case"]["clients"] * ours,
        ours=ours,
        loop=loop,
        ratio=loop / ours,
        peak=found["peak MiB"] / 2**10,
        share=found["peak MiB"] / needed,
        compiling=found["compile s"],
    )


def order(case: dict[str, Any]) -> tuple:
    """Cases by model, clients and batch."""
    return list(MODELS).index(case["model"]), case["clients"], case["batch"]


HEADLINE = """On one NVIDIA H100, a round of federated averaging with 100 clients (LeNet, batches of
64, 10 local steps) takes {ms:.1f} ms. This is {flower:.0f} times faster than Flower with 16 actors,
{blazefl:.0f} times faster than BlazeFL and {torch_fedavg:.0f} times faster than a PyTorch loop that
trains one client after another, on the same card, in one run of each."""
ADAPTERS = """Adapters of rank 8 on one frozen ViT-Tiny (`benchmarks/rounds/adapters.py`): a local
step of {clients} clients with batches of {batch} takes {all:.0f} ms, {ours:.2f} ms for each client.
A PyTorch loop with the same frozen weights, checked to give the same logits and the same adapters
after two steps, takes {loop:.1f} ms for each client, {ratio:.0f} times as long. The peak of memory
is {peak:.0f} GiB, {share:.1f} times the frozen weights, all adapters with their momentum, and as
many activations for each client as XLA plans for one alone on a CPU. Compiling took {compiling:.0f}
s. Another card of the same kind, once, on {date}; jaxfl was compiling on the CPU while the loop
ran."""
TEXT = """## Measured on an H100

Federated averaging, images of 32x32x3, 10 local steps of each client in a round, all data on the
card, TF32 on all sides. µs of one client step in the best of three rounds, with everything that
belongs to a round; compiling and a first round apart.

{beside}

In brackets: how many times longer than jaxfl. All rounds of jaxfl:

{alone}

A model of its own for each client costs little on this card as long as all clients train in one
program. With 100 LeNets and batches of 64 a local step takes 1.27 ms. The bytes that it moves (2.6
GB, see below) take 0.78 ms at the card's published rate and 1.03 ms at the rate of a copy that was
measured. With 1,000 clients it takes 10.1 ms, and these bytes 7.8 and 10.3 ms. With 10 clients it
takes 0.28 ms in place of 0.08: there, starting its 46 kernels, about 6 µs each, is what takes time.

{convolutions}

Convolutions by cuDNN, grouped by clients, take three to six times as long as patches. So patches
stay the default on a GPU.

{adapters}

The PyTorch loop trains one client after another (`benchmarks/peers/torch_fedavg.py`). Flower had 16
actors that share the card; a run with 6 actors did not end in time. BlazeFL had 1, 2, 4 and 16
threads, and the best counts, 4. Its threads are made for the build of Python 3.14 without a global
lock, which this machine did not have: version 3.0.0 ran on Python 3.12 with one line added that
delays annotations. jaxfl's rounds ran after the peers'; had a process of the stopped run been left,
jaxfl's times would be too long. Versions: {versions}.

One machine ({device[device]}, jax {device[jax]}, Python {device[python]}, 16 CPU cores), once, on
{date}. Products of 8,192 x 8,192 there reach {float32:.0f} TFLOP/s in float32, {TF32:.0f} in TF32
and {bfloat16:.0f} in bfloat16, and a copy {copy:,.0f} GB/s. `python -m
benchmarks.accelerators.session` measures the same and more. Cells of the papers' tables on such a
card: [notebook](notebook.md#cells-of-the-papers-tables-on-an-h100).
"""
