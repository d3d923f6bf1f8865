"""What files of runs hold: each field is checked, and runs of an earlier version are refused."""

import dataclasses
import json
import shutil

import numpy as np
import pytest
from finished_runs import LINE, SUMMARY, write_run
from kill import interrupt_after

import jaxfl
from jaxfl.cli import main
from jaxfl.core.errors import InputError
from jaxfl.experiment import Config, compare, execute
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
EARLIER = {"deployed": "before", "fine_tuned": "after"}
STATISTICS = SUMMARY["final"]["deployed"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished run."""
    out = tmp_path_factory.mktemp("finished") / "run"
    execute(SHORT, out)
    return out


def renamed(value):
    """The JSON of an earlier version."""
    if isinstance(value, dict):
        return {EARLIER.get(name, name): renamed(part) for name, part in value.items()}
    return [renamed(part) for part in value] if isinstance(value, list) else value


def make_earlier(directory):
    """Makes of a run's files those of an earlier version."""
    lines = (directory / "metrics.jsonl").read_text().splitlines()
    lines = [json.dumps(renamed(json.loads(line))) + "\n" for line in lines]
    (directory / "metrics.jsonl").write_text("".join(lines))
    if (directory / "summary.json").exists():
        summary = json.loads((directory / "summary.json").read_text())
        (directory / "summary.json").write_text(json.dumps(renamed(summary)))
        with np.load(directory / "clients.npz") as opened:
            arrays = dict(opened)
        for name, stage in EARLIER.items():
            for part in ("val", "test"):
                arrays[f"{stage}_{part}"] = arrays.pop(f"{name}_{part}")
        np.savez(directory / "clients.npz", **arrays)


def contents(directory):
    """The bytes of every file."""
    files = [file for file in directory.rglob("*") if file.is_file()]
    return {file.relative_to(directory): file.read_bytes() for file in files}


def refused(words, capsys):
    """The one line with which a command is refused."""
    assert main(words) == 2
    said = capsys.readouterr().err.strip()
    assert "\n" not in said
    return said


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


def test_fields_of_a_later_version_are_left_alone(tmp_path):
    lines = json.dumps(LINE | {"later": [1]}) + "\n"
    write_run(tmp_path / "run", {"later": {"a": 1}}, lines)
    assert main(["report", str(tmp_path / "run"), "--out", str(tmp_path / "x")]) == 0
    (entry,) = json.loads((tmp_path / "x/comparison.json").read_text())
    assert entry.keys() <= ComparisonEntry.__annotations__.keys()
    assert entry["directory"] == "run"


@pytest.mark.parametrize(
    "command",
    [
        ["report", "run"],
        ["report", "run", "--html", "x.html"],
        ["predict", "run", "--client", "0", "--input", "x.npz"],
        ["resume", "run", "--rounds", "3"],
    ],
    ids=["report", "page", "predict", "resume"],
)
def test_a_run_of_an_earlier_version_is_refused(finished, tmp_path, monkeypatch, capsys, command):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(finished, "run")
    np.savez("x.npz", x=np.zeros((1, 8, 8, 1)))
    make_earlier(tmp_path / "run")
    before = contents(tmp_path)
    said = refused(command, capsys)
    file = "metrics.jsonl" if command[0] == "resume" else "summary.json"
    assert f"run/{file} is of an earlier version of jaxfl" in said
    assert said.endswith(": run again")
    assert contents(tmp_path) == before


def test_the_arrays_of_a_run_of_an_earlier_version_are_refused(finished, tmp_path):
    """By `jaxfl.load` too, before anything is asked of the run."""
    shutil.copytree(finished, tmp_path / "run")
    make_earlier(tmp_path / "run")
    with pytest.raises(InputError, match=r"summary\.json is of an earlier version of jaxfl"):
        jaxfl.load(tmp_path / "run")
    shutil.copy(finished / "summary.json", tmp_path / "run")
    with pytest.raises(InputError, match=r"metrics\.jsonl is of an earlier version of jaxfl"):
        _ = jaxfl.load(tmp_path / "run").metrics
    shutil.copy(finished / "metrics.jsonl", tmp_path / "run")
    with pytest.raises(InputError, match=r"clients\.npz is of an earlier version, or damaged"):
        load_finished([tmp_path / "run"], clients=True)


@pytest.mark.slow
def test_a_stopped_run_of_an_earlier_version_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        execute(SHORT, tmp_path / "run", follow=interrupt_after(1))
    make_earlier(tmp_path / "run")
    before = contents(tmp_path)
    said = refused(["resume", "run"], capsys)
    assert "run/metrics.jsonl is of an earlier version of jaxfl" in said
    assert contents(tmp_path) == before


@pytest.mark.slow
def test_a_stopped_comparison_of_an_earlier_version_is_refused(tmp_path, monkeypatch, capsys):
    """Before one of its runs goes on."""
    monkeypatch.chdir(tmp_path)
    configs = [dataclasses.replace(SHORT, algorithm=name) for name in ("local", "fedavg")]
    with pytest.raises(KeyboardInterrupt):
        compare(configs, tmp_path / "both", follow=interrupt_after(3))
    assert (tmp_path / "both/local/summary.json").exists()
    assert not (tmp_path / "both/fedavg/summary.json").exists()
    make_earlier(tmp_path / "both/local")
    before = contents(tmp_path)
    said = refused(["resume", "both"], capsys)
    assert "both/local/summary.json is of an earlier version of jaxfl" in said
    assert contents(tmp_path) == before
