"""Claims of the papers: each is about cells that there are, and its verdict follows the results."""

import dataclasses

import numpy as np
import pytest
from rich.console import Console
from scipy import stats

from experiments.tables import claims, claims_page, claims_queue, results
from experiments.tables.__main__ import DOCS
from experiments.tables.claims import Claim
from experiments.tables.specification import Column, Row, Table
from jaxfl.core.errors import InputError

ROWS = (
    Row(name="Ours", algorithm="pfedgraph", published=(90.0,)),
    Row(name="Local", algorithm="local", published=(80.0,)),
    Row(name="Prox", algorithm="fedprox", published=(88.0,)),
    Row(name="Ditto", algorithm="ditto", published=(87.0,)),
    Row(name="Rep", algorithm="fedrep", published=(70.0,)),
)
TABLE = Table(name="made.up", columns=(Column(name="one"),), rows=ROWS)
ABOVE = Claim("above", "made.up", row="Ours", above=("Prox",))


def write(folder, row, scores, clients=(0.5, 0.6)):
    """A result for each score, of seeds 0 and on."""
    for seed, score in enumerate(scores):
        config = TABLE.cell(row, TABLE.columns[0], seed).config
        result = {"scores": {"last": {"deployed": score}}, "clients": {"deployed": list(clients)}}
        results.write(config, result | {"seconds": 60.0}, folder)


@pytest.mark.slow(seconds=5)
def test_each_claim_is_about_cells_that_there_are_and_the_page_has_its_verdict():
    findings = [claims.find(claim) for claim in claims.load()]
    assert len({(one.table.name, one.claim.text) for one in findings}) == len(findings)
    for one in findings:
        assert (one.verdict == "open") == bool(one.missing)
        assert one.claim.verdict or one.differences or one.numbers or one.missing
    # `python -m experiments.tables --page` makes it again.
    assert (DOCS / "results" / "claims.md").read_text() == claims_page.page(findings)


def test_the_interval_of_seeds_and_of_clients_is_students(tmp_path):
    ours, theirs = np.array([0.91, 0.90, 0.94]), np.array([0.88, 0.89, 0.90])
    write(tmp_path, ROWS[0], ours)
    write(tmp_path, ROWS[2], theirs)
    (found,) = claims.find_in(TABLE, ABOVE, tmp_path).differences
    wanted = stats.ttest_1samp(100 * (ours - theirs), 0).confidence_interval(0.95)
    np.testing.assert_allclose([found.low, found.high], wanted)
    assert (found.seeds, found.published) == (3, 2.0)


def test_of_one_seed_the_interval_is_over_its_clients(tmp_path):
    write(tmp_path, ROWS[0], [0.7], clients=[0.6, 0.7, 0.8])
    write(tmp_path, ROWS[2], [0.65], clients=[0.5, 0.7, 0.75])
    (found,) = claims.find_in(TABLE, ABOVE, tmp_path).differences
    wanted = stats.ttest_1samp([10, 0, 5], 0).confidence_interval(0.95)
    np.testing.assert_allclose([found.low, found.high], wanted)


def test_of_losses_the_smaller_one_is_better(tmp_path):
    rows = tuple(dataclasses.replace(row, measure="loss", published=(1.0,)) for row in ROWS)
    table = dataclasses.replace(TABLE, rows=rows, measure="loss", unit="loss")
    for scores in ([-0.7], [-0.7, -0.8, -0.9]):
        write(tmp_path, rows[0], scores, clients=[-0.5, -0.6])
        write(tmp_path, rows[2], [score - 0.1 for score in scores], clients=[-0.6, -0.7])
        (found,) = claims.find_in(table, ABOVE, tmp_path).differences
        assert (found.seeds, found.mean) == (len(scores), pytest.approx(0.1))
        assert found.low > 0


@pytest.mark.parametrize(
    "entries",
    ["", "best = true\nabove = ['Local']", "verdict = 'agrees'\nleast = 0.5"],
)
def test_a_claim_is_of_one_kind(entries, tmp_path):
    file = tmp_path / "claims.toml"
    file.write_text(f"[[claims]]\ntext = 'a claim'\ntable = 'pfedgraph.table1'\n{entries}\n")
    with pytest.raises(InputError, match="'a claim': expected one of"):
        claims.load(file)


@pytest.mark.parametrize(
    ("gaps", "alike", "verdict"),
    [
        # The paper has 2 points.
        ([2.0, 2.1, 1.9], None, "agrees"),
        ([0.1, -0.1, 0.2], None, "not seen"),
        ([-2.0, -2.1, -1.9], None, "not seen"),
        ([3.0, -2.0, 1.0], None, "open"),
        ([0.1, -0.1, 0.2], 1.0, "agrees"),
        ([2.0, 2.1, 1.9], 1.0, "not seen"),
        ([3.0, -2.0, 1.0], 1.0, "open"),
    ],
)
def test_a_verdict_follows_from_the_interval_and_the_published_difference(
    gaps, alike, verdict, tmp_path
):
    write(tmp_path, ROWS[0], [0.8 + gap / 100 for gap in gaps])
    write(tmp_path, ROWS[2], [0.8] * len(gaps))
    found = claims.find_in(TABLE, dataclasses.replace(ABOVE, alike=alike), tmp_path)
    assert found.verdict == verdict
    # What decides nothing yet waits for another seed of both.
    assert [cell.config.seed for cell in found.missing] == ([3, 3] if verdict == "open" else [])


def test_the_best_is_above_the_two_strongest_and_the_plain_methods_and_one_of_them_refutes_it(
    tmp_path,
):
    best = Claim("best", "made.up", row="Ours", best=True)
    waits = claims.find_in(TABLE, best, tmp_path)
    named = list(dict.fromkeys(cell.row.name for cell in waits.missing))
    assert named == ["Ours", "Prox", "Ditto", "Local"]
    write(tmp_path, ROWS[0], [0.80, 0.81, 0.80])
    write(tmp_path, ROWS[2], [0.85, 0.86, 0.86])
    refuted = claims.find_in(TABLE, best, tmp_path)
    assert refuted.verdict == "not seen"
    assert not refuted.missing
    line = claims_page.row(refuted)
    assert "-5.3" in line
    assert "beside Prox" in line
    assert "+2.0" in line


def test_the_cheapest_open_claim_comes_first(tmp_path):
    for row, seconds in ((ROWS[0], 60.0), (ROWS[2], 600.0)):
        config = TABLE.cell(row, TABLE.columns[0], 11).config
        results.write(config, {"scores": {}, "seconds": seconds}, tmp_path)
    one, two = (
        claims.find_in(TABLE, Claim(text, "made.up", row="Ours", above=above), tmp_path)
        for text, above in (("one", ("Prox", "Ditto")), ("two", ("Rep",)))
    )
    assert claims_queue.waiting([one, two], tmp_path) == [two, one]
    assert claims_queue.cost(two, tmp_path) == 2 * 330.0


def test_a_cell_that_cannot_be_run_is_named_once_and_the_queue_goes_on(tmp_path, monkeypatch):
    every = [Claim(name, "made.up", row="Ours", above=(name,)) for name in ("Prox", "Rep")]
    asked = []

    def fill(cells, ends, console):
        asked.extend(cell.row.name for cell in cells)
        return ["no data"]

    monkeypatch.setattr(claims, "load", lambda: every)
    monkeypatch.setattr(claims, "find", lambda claim: claims.find_in(TABLE, claim, tmp_path))
    monkeypatch.setattr(claims_queue, "fill", fill)
    errors = claims_queue.run(float("inf"), Console(quiet=True))
    assert errors == ["no data"] * 3
    assert sorted(asked) == ["Ours", "Prox", "Rep"]
