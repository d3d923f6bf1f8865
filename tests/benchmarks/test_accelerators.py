"""What is read from compiled programs, and the page that is written from it."""

import json
from functools import partial

import pytest

from benchmarks.accelerators import __main__ as accelerators
from benchmarks.accelerators import described_devices, h100
from benchmarks.accelerators.page import PAGE, ROWS
from benchmarks.accelerators.page import page as page_of
from benchmarks.rounds import adapters
from jaxfl.models.vit import ViT

# Two loops, one around the other. The inner one has a fusion that reads one row of its first
# operand, a product in a fusion, a product of a library, and a convolution of a library.
PROGRAM = """HloModule jit_fit, is_scheduled=true

%fused_rows (param_0: u8[10,200,3], param_1: s32[10,4]) -> f32[10,4,3] {
  %param_0 = u8[10,200,3]{2,1,0} parameter(0)
  %param_1 = s32[10,4]{1,0} parameter(1)
  %gather.1 = u8[10,4,3]{2,1,0} gather(%param_0, %param_1), offset_dims={2}
  ROOT %convert.1 = f32[10,4,3]{2,1,0} convert(%gather.1)
}

%fused_product (param_0.2: f32[10,4,3], param_1.2: f32[10,3,5]) -> f32[10,4,5] {
  %param_0.2 = f32[10,4,3]{2,1,0} parameter(0)
  %param_1.2 = f32[10,3,5]{2,1,0} parameter(1)
  ROOT %dot.1 = f32[10,4,5]{2,1,0:T(8,128)} dot(%param_0.2, %param_1.2), lhs_batch_dims={0}, \
lhs_contracting_dims={2}, rhs_batch_dims={0}, rhs_contracting_dims={1}
}

%steps (arg: (s32[], u8[10,200,3], f32[10,3,5])) -> (s32[], u8[10,200,3], f32[10,3,5]) {
  %arg = (s32[], u8[10,200,3]{2,1,0}, f32[10,3,5]{2,1,0}) parameter(0)
  %rows = s32[10,4]{1,0} constant({...})
  %data = u8[10,200,3]{2,1,0} get-tuple-element(%arg), index=1
  %kernel = f32[10,3,5]{2,1,0} get-tuple-element(%arg), index=2
  %batch = f32[10,4,3]{2,1,0} fusion(%data, /*index=1*/%rows), kind=kLoop, calls=%fused_rows
  %outputs = f32[10,4,5]{2,1,0} fusion(%batch, %kernel), kind=kOutput, calls=%fused_product
  %gemm = (f32[10,3,5]{2,1,0}, s8[64]{0}) custom-call(%batch, %outputs), \
custom_call_target="__cublas$gemm", \
backend_config={"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"]}}
  %conv = (f32[2,8,8,30]{3,2,1,0}, u8[0]{0}) custom-call(%images, %filters), window={size=3x3}, \
dim_labels=b01f_01io->b01f, feature_group_count=10, custom_call_target="__cudnn$convForward"
  %images = f32[2,8,8,20]{3,2,1,0} bitcast(%outputs)
  %filters = f32[3,3,2,30]{3,2,1,0} bitcast(%kernel)
  ROOT %tuple = (s32[], u8[10,200,3]{2,1,0}, f32[10,3,5]{2,1,0}) tuple(%arg, %data, %kernel)
}

%rounds (arg.3: (s32[])) -> (s32[]) {
  %arg.3 = (s32[]) parameter(0)
  %while.1 = (s32[]) while(%arg.3), condition=%less, body=%steps, \
backend_config={"known_trip_count":{"n":"20"}}
  ROOT %copy.1 = (s32[]) copy(%while.1)
}

ENTRY %main (x: s32[]) -> s32[] {
  %x = s32[] parameter(0)
  ROOT %while.2 = (s32[]) while(%x), condition=%less, body=%rounds
}
"""


def test_a_loop_is_counted_without_the_loops_around_it():
    found = described_devices.loops(PROGRAM)
    assert sorted(loop.trips or 0 for loop in found) == [0, 20]
    step = described_devices.step_of(PROGRAM)
    assert step.trips == 20
    assert step.kinds == {"fusion": 2, "__cublas$gemm": 1, "__cudnn$convForward": 1}
    assert step.kernels == 4


def test_a_gather_reads_what_it_takes_and_not_all_data():
    # By kernel: what it writes, then what it reads.
    gather = 480 + (120 + 160)
    product = 800 + (480 + 600)
    gemm = 600 + 64 + (480 + 800)
    convolution = 4 * 2 * 8 * 8 * 30 + 4 * (2 * 8 * 8 * 20 + 3 * 3 * 2 * 30)
    assert described_devices.step_of(PROGRAM).bytes == gather + product + gemm + convolution


def test_operations_are_those_of_products_and_convolutions():
    product = 2 * 10 * 4 * 5 * 3
    gemm = 2 * 10 * 3 * 5 * 4
    convolution = 2 * (2 * 8 * 8 * 30) * (3 * 3 * 2)
    assert described_devices.step_of(PROGRAM).operations == product + gemm + convolution


def test_a_convolution_in_groups_is_found():
    assert described_devices.is_grouped(PROGRAM)
    assert not described_devices.is_grouped(PROGRAM.replace("feature_group_count=10", ""))


def test_products_are_told_apart_by_whether_clients_share_the_weight():
    """In the program of the test, each of 10 clients has a weight [3, 5] of its own."""
    step = described_devices.step_of(PROGRAM)
    assert [product.batch for product in step.products] == [(0,), ()]
    # The other product is the gradient of the weights.
    found = described_devices.frozen_products(step, {(3, 5)})
    assert found == {"products": 2, "joint": 0, "apart": 2, "rows": 0}
    shared = PROGRAM.replace("f32[10,4,3]", "f32[40,3]").replace("f32[10,3,5]", "f32[3,5]")
    shared = shared.replace("lhs_batch_dims={0}, ", "").replace("f32[10,4,5]", "f32[40,5]")
    found = described_devices.frozen_products(described_devices.step_of(shared), {(3, 5)})
    assert found == {"products": 2, "joint": 1, "apart": 1, "rows": 40}


@pytest.mark.slow(seconds=20)
def test_products_with_frozen_weights_are_one_for_all_clients_in_the_compiled_step(monkeypatch):
    """Of one block: patches, and the four layers forward; backward all but those at the input."""
    monkeypatch.setattr(adapters, "ViT", partial(ViT, depth=1))
    monkeypatch.setattr(adapters, "frozen_weights", adapters.frozen_weights.__wrapped__)
    clients, batch = 3, 2
    training = adapters.compile_training(adapters.Case(batch, 2, clients), "all")
    step = described_devices.step_of(training.program.as_text())
    found = described_devices.frozen_products(step, adapters.frozen_kernels())
    assert found["joint"] == 1 + 4 + 3
    assert found["apart"] == 0
    # patches of an image, of which the class token makes one more behind the first layer
    assert found["rows"] == clients * batch * (adapters.SIDE // 4) ** 2


def row(**changes):
    return {
        "compile_cpu_seconds": 7.4,
        "temporaries": 3 * 2**20,
        "kernels": 44,
        "bytes": 3.35e9,
        "operations": 1e9,
        "program_bytes": 819e6,
        "program_operations": 0.0,
    } | changes


def test_the_page_has_a_section_for_each_platform_and_says_what_does_not_compile():
    failing = {"error": "ValueError: no"}
    steps = {
        f"lenet {clients} 64 float32 {conv}": row()
        for clients in (1000, 10)
        for conv in ("grouped", "patches")
    }
    rows = {
        "tpu": {"rounds": {"fedavg": row()}, "mlp_rounds": {"cfl": row(), "krum": failing}},
        "cuda": {
            "rounds": {"fedavg": row(), "krum": failing},
            "steps": steps,
            "adapters": {"100 16": row(products=9, joint=5, apart=0, rows=104000), "10 1": failing},
        },
    }
    page = page_of(rows)
    assert page.index("NVIDIA H100") < page.index("TPU v5e")
    assert "1 of 2 rounds compile. These do not: krum (ValueError: no)." in page
    assert "With an MLP in place of LeNet: 1 of 2 rounds compile. These do not: krum" in page
    # A millisecond for 3.35 GB on the H100, and for 819 MB on the TPU.
    assert "| fedavg | 7 | 3 | 44 | 1.00 | 3.350 | 1.000 |" in page
    assert "| fedavg | 7 | 3 | 44 | 0.00 | 0.819 | 1.000 |" in page
    table = [line for line in page.splitlines() if line.startswith("| lenet")]
    assert [line.split(" | ")[:2] for line in table] == [
        [f"| lenet, {clients} clients, batch 64, float32", conv]
        for clients in ("10", "1,000")
        for conv in ("patches", "grouped")
    ]
    assert "| 100 clients, batch 16 | 3 | 1.00 | 3.350 | 1.000 | 9 | 5 | 0 |" in page
    assert "multiplies 104,000 rows or more" in page
    widths = {line.count("|") for line in page.splitlines() if " clients, batch 1" in line}
    assert widths == {9}
    widths = {line.count("|") for line in page.splitlines() if line.startswith("| fedavg")}
    assert widths == {8}


def test_without_a_compiler_one_line_says_so_and_no_row_is_written(monkeypatch):
    def mesh_of(platform):
        raise NotImplementedError("topology not implemented")

    def keep(*_):
        pytest.fail("a row was written")

    monkeypatch.setattr(described_devices, "prepare", lambda: None)
    monkeypatch.setattr(described_devices, "mesh_of", mesh_of)
    monkeypatch.setattr(accelerators, "keep", keep)
    with pytest.raises(SystemExit, match="this environment has no compiler for cuda"):
        accelerators.main(platform="cuda")
    with pytest.raises(SystemExit, match="there is no method fedavg2: choose from afl, "):
        accelerators.main(("fedavg2",), platform="cuda")


def test_a_table_of_rounds_has_the_ratio_to_each_peer_that_ran():
    work = {"model": "lenet", "clients": 100, "batch": 64}
    ours = {"round ms": 20.0, "client step ms": 0.02, "compile s": 3.0}
    rows = [
        {"part": "rounds", "case": work | {"convolution": "patches"}, "found": ours},
        {
            "part": "rounds",
            "case": work | {"convolution": "grouped"},
            "found": ours | {"round ms": 50.0},
        },
        {"part": "peers", "case": {"peer": "flower"} | work, "found": {"ms": 0.8, "version": "1"}},
    ]
    (row,) = h100.beside_others(rows)[2:]
    assert row == "| LeNet | 100 | 64 | 20.0 |  | 800 (40) |  |"
    (row,) = h100.by_convolution(rows)[2:]
    assert row == "| LeNet | 100 | 64 | 20.0 | 50.0 | 2.5 |"


def test_the_page_is_that_of_the_rows_that_are_kept():
    page = page_of(json.loads(ROWS.read_text()))
    assert page == PAGE.read_text()
