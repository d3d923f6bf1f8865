"""The page of rounds on accelerators: what was measured, and what compiled programs consist of."""

from pathlib import Path
from typing import Any

from benchmarks.accelerators import h100
from benchmarks.accelerators.described_devices import DEVICES, Device
from benchmarks.peers import ROOT
from jaxfl.algorithms import ALGORITHMS

ROWS = Path(__file__).parent / "measured.json"
PAGE = ROOT / "docs" / "accelerators.md"
NAMED = 10  # methods that are named one by one


def write_page(rows: dict[str, Any]) -> None:
    """Writes docs/accelerators.md from all rows."""
    PAGE.write_text(page(rows))


def page(rows: dict[str, Any]) -> str:
    """The page.

    Args:
      rows: platform -> part, such as "rounds" -> name -> what `measure` tells.
    """
    sections = [
        section(platform, DEVICES[platform], rows[platform])
        for platform in ("cuda", "tpu")
        if platform in rows
    ]
    measured = h100.read_rows()
    head = HEAD.format(headline=h100.headline(measured), compile=every_platform(rows))
    return "\n".join([head, h100.section(measured), PROGRAMS, *sections])


def every_platform(rows: dict[str, Any]) -> str:
    """How many rounds compile for each platform."""
    told = []
    for platform in ("cuda", "tpu"):
        rounds = rows.get(platform, {}).get("rounds", {})
        compiled = sum("error" not in row for row in rounds.values())
        told.append(f"{compiled} of {len(rounds)} for {DEVICES[platform].name}")
    return f"Rounds of methods that compile: {', '.join(told)}."


def section(platform: str, device: Device, parts: dict[str, Any]) -> str:
    """The tables of one platform."""
    rounds = parts.get("rounds", {})
    steps = parts.get("steps", {})
    told = f"LeNet on 32x32x3 images, 100 clients, 20 steps of batch 64: {compiled(rounds)}"
    if "mlp_rounds" in parts:
        told += f" With an MLP in place of LeNet: {compiled(parts['mlp_rounds'])}"
    lines = [
        f"## {device.name}",
        "",
        SECTIONS[platform].format(
            gigabytes=device.bytes_per_second / 1e9,
            teraflops=device.operations_per_second["float32"] / 1e12,
            sixteen=device.operations_per_second["bfloat16"] / 1e12,
        ),
        "### Rounds",
        "",
        told,
        "",
        "| method | compiling, s (CPU) | temporaries, MiB | kernels a step | GFLOP | GB "
        "| bound, ms |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    lines += [f"| {name} | {cells(rounds[name], platform, 'float32')} |" for name in sorted(rounds)]
    if steps:
        lines += [
            "",
            "### Local steps",
            "",
            "Local training alone, on one device.",
            "",
            "| step | convolution | compiling, s (CPU) | temporaries, MiB | kernels a step | GFLOP "
            "| GB | bound, ms |",
            "|---|---|---:|---:|---:|---:|---:|---:|",
        ]
        for name in sorted(steps, key=order):
            model, clients, batch, arithmetic, conv = name.split()
            title = f"{model}, {int(clients):,} clients, batch {batch}, {arithmetic}"
            lines.append(f"| {title} | {conv} | {cells(steps[name], platform, arithmetic)} |")
    if "adapters" in parts:
        lines += ["", *adapters(parts["adapters"], platform)]
    return "\n".join([*lines, ""])


def adapters(rows: dict[str, Any], platform: str) -> list[str]:
    """The table of local steps of adapters."""
    lines = [
        ADAPTERS.format(library=LIBRARY[platform]),
        "| step | temporaries, MiB | GFLOP | GB | bound, ms | products | joint | apart |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name, row in rows.items():
        clients, batch = name.split()
        counts = [f"{row[key]:,}" if key in row else "" for key in ("products", "joint", "apart")]
        title = f"{clients} clients, batch {batch}"
        if "error" in row:
            lines.append(f"| {title} | does not compile: {row['error']} | | | | | | |")
            continue
        _, temporaries, *_, flop, moved, bound = cells(row, platform, "float32").split(" | ")
        lines.append(f"| {' | '.join([title, temporaries, flop, moved, bound, *counts])} |")
    least = [row["rows"] for row in rows.values() if "rows" in row]
    return [*lines, *(["", JOINT.format(rows=min(least))] if least else [])]


def compiled(rounds: dict[str, Any]) -> str:
    """How many methods compile, and which do not or were not tried."""
    failed = [name for name in sorted(rounds) if "error" in rounds[name]]
    told = f"{len(rounds) - len(failed)} of {len(rounds)} rounds compile."
    if failed:
        reasons = [f"{name} ({rounds[name]['error']})" for name in failed]
        told += f" These do not: {'; '.join(reasons)}."
    missing = sorted(set(ALGORITHMS) - set(rounds))
    if len(missing) > NAMED:
        told += f" The rounds of {len(missing)} methods were not tried."
    elif missing:
        told += f" Not tried: {', '.join(missing)}."
    return told


def order(name: str) -> tuple:
    """Rows of local steps by model, clients, batch, arithmetic; patches before grouped."""
    model, clients, batch, arithmetic, conv = name.split()
    place = ["lenet", "three", "cedar6"].index(model)
    return place, int(clients), int(batch), arithmetic != "float32", conv != "patches"


def cells(row: dict[str, Any], platform: str, arithmetic: str) -> str:
    """The cells of a row behind its name."""
    if "error" in row:
        return f"does not compile: {row['error']} | | | | |"
    operations, moved = counted(row, platform)
    numbers = ["", "", ""]
    if operations is not None and moved is not None:
        bound = 1e3 * lower_bound(DEVICES[platform], operations, moved, arithmetic)
        numbers = [f"{operations / 1e9:.2f}", f"{moved / 1e9:.3f}", f"{bound:.3f}"]
    return " | ".join(
        [
            f"{row['compile_cpu_seconds']:.0f}",
            f"{row['temporaries'] / 2**20:,.0f}",
            str(row.get("kernels", "")),
            *numbers,
        ]
    )


def counted(row: dict[str, Any], platform: str) -> tuple[float | None, float | None]:
    """Operations and bytes: on a TPU XLA's count, on a GPU ours, of the loop over local steps."""
    if platform == "tpu":
        return row.get("program_operations"), row.get("program_bytes")
    return row.get("operations"), row.get("bytes")


def lower_bound(device: Device, operations: float, moved: float, arithmetic: str) -> float:
    """Seconds that the operations or the bytes take at the device's published rates.

    Example:
      >>> lower_bound(DEVICES["tpu"], operations=0.0, moved=819e9, arithmetic="float32")
      1.0
    """
    rate = device.operations_per_second[arithmetic]
    return max(operations / rate, moved / device.bytes_per_second)


SECTIONS = {
    "cuda": """Published rates: {gigabytes:,.0f} GB/s, {teraflops:.0f} TFLOP/s for products of
float32 in TF32 (JAX's default on this GPU), {sixteen:.0f} for bfloat16. GFLOP and GB are those of
one local step of all clients: the operations of its matrix products and convolutions, the operands
and results of its kernels. The step is the loop that moves most bytes. A tile's spread kernel
contains zeros, which are multiplied too. A convolution of cuDNN counts as one kernel that reads and
writes once; what it does inside is not seen, so the bound says little about `grouped`.

The temporaries of each row below are less than the bytes that a step moves. Some rows have more
temporaries than the card has memory; `--chunk` trains fewer clients at a time. What the 44 kernels
of a step of LeNet are: [notebook](notebook.md#the-kernels-of-a-step-on-an-h100).
""",
    "tpu": """Published rates of a chip: {gigabytes:,.0f} GB/s, {teraflops:.0f} TFLOP/s for
bfloat16, in which a TPU multiplies float32 by default. Rounds are compiled for four chips with 25
clients each, local steps for one chip with all clients. GFLOP and GB are XLA's count for a chip, of
the whole program with the body of each loop counted once: one local step, and what comes before and
after the loop. Kernels are the operations in the loop's body, copies that run beside others
included.

Why compiling takes long: [notebook](notebook.md#compiling-for-a-tpu).
""",
}
ADAPTERS = """### Adapters on frozen weights

One local step of all clients: ViT-Tiny on images 32x32x3 in patches of 4, frozen but for adapters
of rank 8 at the dense layers of its blocks and for the head. *Products* are those of matrices in
the step. *Joint* have a frozen weight and are one product over the examples of all clients; *apart*
have one for each client, or its gradient. The other products are those of adapters, of the head and
of attention.{library}
"""
# Behind it, by platform.
LIBRARY = {
    "cuda": """ All are computed by cuBLAS (`xla_gpu_enable_triton_gemm=False`): without a device
XLA finds no tiles for its own kernels of the joint products.""",
    "tpu": "",
}
JOINT = "A joint product multiplies {rows:,} rows or more, the tokens of all clients' batches."
HEAD = """# Rounds on GPU and TPU

**Known:** {headline} {compile}

**Not known:** nothing was measured on a TPU. On a GPU nothing was measured of PyTorch's `vmap` over
stacked clients, which is the strongest peer on a CPU, of models in bfloat16, of ResNet-8 with 1,000
clients and of [repeats to the same bits](determinism.md), and one card was measured once.
"""
PROGRAMS = """## What the programs consist of

The rest of this page was not measured. `python -m benchmarks.accelerators --platform cuda` and
`--platform tpu` compile rounds and local steps ahead of time for devices that are described, not
present. The bound is the time that the bytes or the operations take at the device's published
rates, whichever is longer. It is a bound of a compiled program: starting a kernel takes a few
microseconds more, and small products and scattered reads do not reach these rates. Compiling is
given in seconds of one CPU core.

Convolutions are computed in one of two ways, `conv="patches"` or `conv="grouped"`, an argument of
each model with convolutions (`jaxfl.models.lenet(10, conv="grouped")`). With patches, each client's
images become a matrix with a row for each tile of outputs, and one batched product with the
clients' kernels gives all outputs; the gradient is two more products. `grouped` leaves the
convolution to XLA, which groups it by clients. The default, "auto", is patches on a GPU and grouped
on a TPU: grouped convolutions, above all their weight gradients, are slow in cuDNN (above, and
[jax 13800](https://github.com/jax-ml/jax/issues/13800)), whereas XLA for TPUs has operations for
them that move fewer bytes than patches do.
"""
