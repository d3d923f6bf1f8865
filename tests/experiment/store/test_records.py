"""What files of runs hold: each field is checked."""

import json

import pytest
from finished_runs import LINE, SUMMARY, write_run

import jaxfl
from jaxfl.cli import main
from jaxfl.core.errors import InputError
from jaxfl.experiment import Config, execute
from jaxfl.experiment.store.finished_runs import load_finished, read_run
from jaxfl.experiment.store.read_records import read_lines, read_summary
from jaxfl.experiment.store.records import ComparisonEntry, Line, Summary

SHORT = Config(
    algorithm="fedavg",
    rounds=2,
    local_steps=1,
    model="linear",
    clients=4,
    partition="iid",
    checkpoint_every=1,
)
STATISTICS = SUMMARY["final"]["deployed"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished run."""
    out = tmp_path_factory.mktemp("finished") / "run"
    execute(SHORT, out)
    return out


@pytest.mark.slow
def test_every_field_of_a_run_has_a_type(finished):
    """A field that a run writes and no type names would be checked by nobody."""
    summary = json.loads((finished / "summary.json").read_text())
    assert summary.keys() <= Summary.__annotations__.keys()
    for line in (finished / "metrics.jsonl").read_text().splitlines():
        assert json.loads(line).keys() <= Line.__annotations__.keys()
    run = read_run(finished)
    assert run.summary == summary
    assert [line["round"] for line in run.lines] == [1, 2]
    assert (run.config, run.name, run.seeds) == (jaxfl.load(finished).config, "fedavg", (0,))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"up": "many"}, "summary.json: up is 'many': expected a whole number"),
        ({"up": True}, "summary.json: up is True: expected a whole number"),
        ({"seconds": None}, "summary.json: seconds is None: expected a number"),
        ({"seconds": 10**400}, "summary.json: seconds is 1000"),
        ({"measure": 1}, "summary.json: measure is 1: expected"),
        ({"final": {}}, "summary.json: final.deployed is missing"),
        (
            {"final": {"deployed": STATISTICS | {"mean": "high"}}},
            "summary.json: final.deployed.mean is 'high': expected a number or none",
        ),
        (
            {"final": {"deployed": STATISTICS, "seeds": [{"deployed": 1}]}},
            r"summary.json: final.seeds\[0\].deployed is 1: expected an object",
        ),
        ({"diverged": {"3": "often"}}, "summary.json: diverged.3 is 'often': expected a whole"),
        ({"times": [1.0, "late"]}, r"summary.json: times\[1\] is 'late': expected a number"),
        (
            {"graph": {"self_weight": "x"}},
            "summary.json: graph.self_weight is 'x': expected a number or an ob",
        ),
        ({"algorithm": "a|b"}, "summary.json: algorithm is no name of a method"),
        ({"label": " "}, "summary.json: label is no name"),
    ],
)
def test_a_field_that_is_wrong_is_named(tmp_path, change, message):
    write_run(tmp_path / "run", change)
    with pytest.raises(InputError, match=f"run is no run of jaxfl .{message}.*: run again"):
        read_summary(tmp_path / "run/summary.json")
    with pytest.raises(InputError, match=f"run is no run of jaxfl .{message}.*: leave it out"):
        load_finished([tmp_path / "run"])


def test_a_line_that_is_wrong_is_named(tmp_path):
    torn = json.dumps(LINE) + "\n" + json.dumps(LINE | {"loss": "low"}) + "\n"
    write_run(tmp_path / "run", lines=torn)
    with pytest.raises(InputError, match=r"metrics.jsonl, line 2: loss is 'low': expected a numb"):
        read_lines(tmp_path / "run/metrics.jsonl")


def test_further_fields_are_left_alone(tmp_path):
    lines = json.dumps(LINE | {"later": [1]}) + "\n"
    write_run(tmp_path / "run", {"later": {"a": 1}}, lines)
    assert main(["report", str(tmp_path / "run"), "--out", str(tmp_path / "x")]) == 0
    (entry,) = json.loads((tmp_path / "x/comparison.json").read_text())
    assert entry.keys() <= ComparisonEntry.__annotations__.keys()
    assert entry["directory"] == "run"
