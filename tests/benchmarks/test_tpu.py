"""The four systems compile for a TPU that is described, not present: `pytest -m tpu`.

They compile in a process of their own, since the described TPU needs settings that must be made
before JAX starts.
"""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = """
import functools
import sys

import jax
import numpy as np

from benchmarks.accelerators import __main__ as accelerators
from benchmarks.accelerators import described_devices

described_devices.prepare()
accelerators.ROUND_CLIENTS = 4
accelerators.EXAMPLES = accelerators.HELD_OUT = 8
accelerators.STEPS = 2
accelerators.BATCH = 4
lower = functools.partial(accelerators.round_program, "tpu", "rounds", sys.argv[1])
row = accelerators.measure("tpu", lower)
assert "error" not in row, row
assert row["kernels"] > 0
"""


@pytest.mark.tpu
@pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="needs the tpu extra")
@pytest.mark.parametrize("method", ["fedcedar", "gfedmtl", "pfedgraph", "pfedgat"])
def test_a_round_compiles_for_a_tpu(method):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, method],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
