"""Accelerators that are described, not present, and what programs compiled for them consist of.

XLA compiles ahead of time for a device of which it has a description. Nothing runs, so no time is
measured. What is seen is the program: the kernels in the body of each loop, the bytes that they
read and write, their multiplications, the memory that the program needs.
"""

import collections
import math
import os
import re
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from jax.experimental import topologies
from jax.sharding import Mesh

from jaxfl.core.types import CLIENTS

H100 = Path(__file__).parent / "h100.textproto"


class Device(NamedTuple):
    """A kind of device with the rates that its maker publishes."""

    name: str
    # of one device
    bytes_per_second: float
    # of matrix products, by the type of the model's arithmetic; JAX multiplies float32 in TF32 on a
    # GPU and in bfloat16 on a TPU, unless the precision is set
    operations_per_second: dict[str, float]
    devices: int


DEVICES = {
    "cuda": Device("NVIDIA H100 80GB HBM3", 3.35e12, {"float32": 495e12, "bfloat16": 989e12}, 1),
    "tpu": Device("TPU v5e, 2x2 chips", 819e9, {"float32": 197e12, "bfloat16": 197e12}, 4),
}


def prepare() -> None:
    """Sets what the compilers need where there is no device; only before JAX starts."""
    jax.config.update("jax_platforms", "cpu")
    os.environ["TPU_SKIP_MDS_QUERY"] = "1"
    os.environ.setdefault("TPU_STDERR_LOG_LEVEL", "3")
    # Two processes may compile at once, since none of them holds a device.
    os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")


def mesh_of(platform: str, devices: int | None = None) -> Mesh:
    """The described devices along the client axis; all of them if `devices` is None."""
    if platform == "tpu":
        topology = topologies.get_topology_desc(
            platform="tpu", topology_name="v5e:2x2", chips_per_host_bounds=(2, 2, 1)
        )
    else:
        topology = topologies.get_topology_desc(
            platform="cuda",
            topology_name="1x1x1",
            topology="1x1x1",
            target_config=H100.read_text(),
        )
    count = devices or DEVICES[platform].devices
    return Mesh(np.array(topology.devices[:count]), (CLIENTS,))


class Product(NamedTuple):
    """A product of matrices, or of stacks of them."""

    # sides of both operands and of the result
    left: tuple[int, ...]
    right: tuple[int, ...]
    result: tuple[int, ...]
    # axes of the left operand along which there is a product for each index
    batch: tuple[int, ...]


class Loop(NamedTuple):
    """The body of a loop of a compiled program."""

    # how often it runs, where that is known
    trips: int | None
    # number of kernels of each kind
    kinds: dict[str, int]
    # that one pass through the body reads and writes in memory, counted by the kernels' operands
    # and results
    bytes: int
    # multiplications and additions of the matrix products and convolutions of one pass
    operations: int
    products: list[Product]

    @property
    def kernels(self) -> int:
        """Kernels that one pass starts."""
        return sum(self.kinds.values())


# Instructions that start no kernel.
FREE = {
    "after-all",
    "bitcast",
    "constant",
    "copy-done",
    "get-tuple-element",
    "parameter",
    "partition-id",
    "replica-id",
    "slice-done",
    "tuple",
}
WIDTHS = {"pred": 1, "bf16": 2, "c64": 8}
INSTRUCTION = re.compile(r"(?:ROOT )?%?([\w.\-]+) = (\(.*?\)|\S+) ([a-z][a-z0-9\-]*)\(([^)]*)\)")
SHAPE = re.compile(r"\b(pred|bf16|c64|[fsu]\d+)\[([\d,]*)\]")


class Instruction(NamedTuple):
    """A line of a compiled program."""

    name: str
    shape: str
    kind: str
    operands: list[str]
    line: str


def loops(text: str) -> list[Loop]:
    """The loops of a compiled program, in the order of its text.

    A loop around another one counts the inner loop as one kernel.
    """
    bodies = _computations(text)
    found = []
    for instructions in bodies.values():
        for instruction in instructions:
            body = re.search(r"body=%?([\w.\-]+)", instruction.line)
            if instruction.kind == "while" and body:
                trips = re.search(r'known_trip_count"?:\{"?n"?:"?(\d+)', instruction.line)
                found.append(_loop(bodies, body.group(1), int(trips.group(1)) if trips else None))
    return found


def _computations(text: str) -> dict[str, list[Instruction]]:
    bodies: dict[str, list[Instruction]] = {}
    name = None
    for line in text.splitlines():
        start = re.match(r"^(?:ENTRY )?%?([\w.\-]+) .*\{$", line)
        if start:
            name = start.group(1)
            bodies[name] = []
        elif line.startswith("}"):
            name = None
        elif name is not None:
            # Comments such as /*index=5*/ would hide the operands after them.
            clean = re.sub(r"/\*.*?\*/", "", line.strip())
            # Layouts have brackets of their own, as in {2,1,0:T(8,128)}.
            plain = re.sub(r"\{[\d,]*(?::[^}]*)?\}", "", clean)
            match = INSTRUCTION.match(plain)
            if match:
                operands = re.findall(r"%([\w.\-]+)", match.group(4))
                bodies[name].append(Instruction(match[1], match[2], match[3], operands, clean))
    return bodies


def _loop(bodies: dict[str, list[Instruction]], name: str, trips: int | None) -> Loop:
    kinds: collections.Counter[str] = collections.Counter()
    moved = 0
    operations = 0
    products: list[Product] = []
    body = bodies.get(name, [])
    shapes = {instruction.name: instruction.shape for instruction in body}
    for instruction in body:
        if instruction.kind in FREE:
            continue
        called = re.search(r"calls=%?([\w.\-]+)", instruction.line)
        inside = bodies.get(called.group(1), []) if called else []
        custom = re.search(r'custom_call_target="([^"]+)"', instruction.line)
        kinds[custom.group(1) if custom else instruction.kind] += 1
        moved += _size(instruction.shape)
        for number, operand in enumerate(instruction.operands):
            moved += _read(inside, number, _size(shapes.get(operand, "")))
        for some, named in (
            ([instruction], shapes),
            (inside, {one.name: one.shape for one in inside}),
        ):
            operations += _operations(some, named)
            products += _products(some, named)
    return Loop(trips, dict(kinds), moved, operations, products)


def _size(shape: str) -> int:
    """Bytes of all arrays of a shape."""
    return sum(
        math.prod(int(d) for d in sides.split(",") if d)
        * (WIDTHS.get(dtype) or int(re.sub(r"\D", "", dtype)) // 8)
        for dtype, sides in SHAPE.findall(shape)
    )


def _read(inside: list[Instruction], number: int, size: int) -> int:
    """Bytes that a fusion reads of one operand: of one that is only sliced, what is taken of it."""
    names = [one.name for one in inside if f" parameter({number})" in one.line]
    users = [one for one in inside if names and names[0] in one.operands]
    slices = {"dynamic-slice", "gather", "slice"}
    if users and all(user.kind in slices and user.operands[0] == names[0] for user in users):
        return min(size, sum(_size(user.shape) for user in users))
    return size


def _operations(instructions: list[Instruction], shapes: dict[str, str]) -> int:
    """Multiplications and additions of matrix products and convolutions."""
    total = 0
    for one in instructions:
        if SHAPE.search(one.shape) is None or len(one.operands) < 2:
            continue
        outputs = math.prod(_sides(one.shape))
        labels = re.search(r"dim_labels=\w+_(\w+)->", one.line)
        contracted = _axes("contracting", one)
        if contracted:
            left = _sides(shapes.get(one.operands[0], ""))
            total += 2 * outputs * math.prod(left[axis] for axis in contracted if axis < len(left))
        elif labels:
            kernel = _sides(shapes.get(one.operands[1], ""))
            features = labels.group(1).index("o")
            if len(kernel) > features:
                total += 2 * outputs * math.prod(kernel) // kernel[features]
    return total


def _products(instructions: list[Instruction], shapes: dict[str, str]) -> list[Product]:
    return [
        Product(
            left=_sides(shapes.get(one.operands[0], "")),
            right=_sides(shapes.get(one.operands[1], "")),
            result=_sides(one.shape),
            batch=_axes("batch", one),
        )
        for one in instructions
        if len(one.operands) > 1 and _axes("contracting", one)
    ]


def _axes(kind: str, product: Instruction) -> tuple[int, ...]:
    """Axes of the left operand of a matrix product that are summed over, or are of a batch."""
    if product.kind != "dot" and "gemm" not in product.line:
        return ()
    found = re.search(rf'lhs_{kind}_dim(?:ension)?s"?[=:][{{\[]([\d,"]*)[}}\]]', product.line)
    return tuple(int(axis) for axis in re.findall(r"\d+", found.group(1))) if found else ()


def _sides(shape: str) -> tuple[int, ...]:
    """The sides of an array, of the first one if there are several."""
    found = SHAPE.search(shape)
    return tuple(int(d) for d in found.group(2).split(",") if d) if found else ()


def frozen_products(step: Loop, kernels: Collection[tuple[int, int]]) -> dict[str, int]:
    """How many products of a step there are, and how many have weights that clients share.

    Args:
      step: the loop over local steps.
      kernels: sides of those weights [in, out], which nothing else in the step has.

    Returns:
      `products`; those with such a weight, of which `joint` are products of two matrices, one over
      the examples of all clients, and `apart` have an axis of a batch, or the gradient of such a
      weight as their result; `rows`, the fewest examples of a joint product.
    """
    shapes = {*kernels, *(kernel[::-1] for kernel in kernels)}

    def is_weight(sides: tuple[int, ...]) -> bool:
        return sides[-2:] in shapes

    joint, apart = [], 0
    for product in step.products:
        if is_weight(product.result) or (product.batch and any(map(is_weight, product[:2]))):
            apart += 1
        elif any(map(is_weight, product[:2])):
            joint.append(product.result[0])
    return {
        "products": len(step.products),
        "joint": len(joint),
        "apart": apart,
        "rows": min(joint, default=0),
    }


def step_of(text: str) -> Loop | None:
    """The loop over local steps: of the loops without another one, the one that moves most."""
    plain = [loop for loop in loops(text) if "while" not in loop.kinds]
    return max(plain, key=lambda loop: loop.bytes, default=None)


def is_grouped(text: str) -> bool:
    """Whether a convolution in more than one group is left in a compiled program."""
    return any(int(groups) > 1 for groups in re.findall(r"feature_group_count=(\d+)", text))


def program_cost(program: jax.stages.Compiled) -> tuple[float, float] | None:
    """Operations and bytes of the whole program by XLA's count, where it tells them.

    It counts the body of each loop once.
    """
    found = program.cost_analysis() or {}
    return (found["flops"], found["bytes accessed"]) if "flops" in found else None
