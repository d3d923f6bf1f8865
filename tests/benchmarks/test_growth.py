"""The page of growth: its cases, its exponents, and that it is the page of the kept rows."""

import json
import os
import subprocess
import sys
from dataclasses import asdict

import pytest

from benchmarks.growth import client_step, page
from benchmarks.growth.__main__ import case_of
from benchmarks.growth.case import EXAMPLES, Case
from benchmarks.peers import ROOT


def test_the_page_is_that_of_the_rows():
    assert page.PAGE.read_text() == page.page(page.read_rows())


def test_each_axis_has_four_sizes_of_one_number_and_each_case_stands_once():
    cases = page.cases()
    assert len(cases) == len(set(cases))
    for axis in page.AXES:
        sizes = [asdict(case) for case in page.cases_of(axis, "fedavg")]
        assert len(sizes) == 4
        values = [getattr(case, axis.name) for case in page.cases_of(axis, "fedavg")]
        assert values == sorted(set(values))


def test_times_that_grow_with_the_square_have_the_exponent_2():
    axis = page.AXES[1]
    rows = [
        asdict(case)
        | {"parameters": case.parameters, "compile_s": 1.0, "peak_mib": 500.0}
        | {"files_mb": 1.0, "ms": 2e-4 * case.cohort**2}
        for case in page.cases_of(axis, "gossip")
    ]
    text = page.section(axis, rows)
    assert "| gossip | 0.18 | 2 | 18 | 200 | 2.00 |" in text
    assert "| gossip | 1 to 1 | 500 to 500 | 0.00 | 1 to 1 | 0.00 |" in text
    assert "fedavg" not in text


def test_the_first_sentences_have_the_numbers_of_the_rows():
    rows = [
        row | {"ms": 1000.0 if row["cohort"] == 1000 else 10.0, "date": "2030-01-02"}
        for row in page.read_rows()
    ]
    rows = [row | {"peak_mib": 100.0 + row["rounds"]} for row in rows]
    text = page.head(rows)
    # A hundred times as long from 300 to 1,000 clients.
    assert "exponent of 3.8 to 3.8" in text
    assert "at most 1.0 times" in text
    # From 120 to 700.
    assert "at most 483 %" in text
    assert "Measured on 2030-01-02" in page.how(rows)


def measured(case):
    """The row of a case, from a process of its own, for the peak memory is that of a process."""
    command = [sys.executable, "-m", "benchmarks.growth.case", json.dumps(asdict(case))]
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, env=environment, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow(seconds=40)
def test_a_case_is_measured():
    """The memory holds the data, and the time of a round is without that of compiling."""
    few, many = 63, 63_999
    cases = [Case("fedavg", clients=6, cohort=3, features=size, rounds=2) for size in (few, many)]
    small, large = rows = [measured(case) for case in cases]
    assert [case_of(row) for row in rows] == cases
    assert [row["parameters"] for row in rows] == [640, 640_000]
    # Training examples alone, of float32.
    mib = 4 * 6 * EXAMPLES * (many - few) / 2**20
    assert large["peak_mib"] - small["peak_mib"] > mib
    assert small["ms"] / 1000 < small["compile_s"] / 10
    assert small["files_mb"] > 0


@pytest.mark.slow(seconds=30)
def test_the_section_of_client_steps_has_a_row_for_each_size():
    """A process with more clients takes more memory, that of their images at least."""
    lines = client_step.section(sizes=(2, 400)).splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith(("| 2 ", "| 400 "))]
    assert [clients for clients, _, _ in rows] == ["2", "400"]
    small, large = (float(gib) for _, _, gib in rows)
    # 64 images of 784 bytes for each of 398 clients, in GiB with two digits.
    assert large - small > 398 * 64 * 784 / 2**30 - 0.01
