"""The page of growth: its cases, its exponents, and that it is the page of the kept rows."""

from dataclasses import asdict

import pytest

from benchmarks.growth import page
from benchmarks.growth.case import Case, measure


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


@pytest.mark.slow
def test_a_case_is_measured():
    found = measure(Case("fedavg", clients=6, cohort=3, rounds=2))
    assert found["parameters"] == 640
    for name in ("ms", "compile_s", "peak_mib", "files_mb"):
        assert found[name] > 0
