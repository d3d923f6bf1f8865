"""Several runs of one algorithm in a comparison: labels, and hyper-parameters for each."""

import json
from pathlib import Path

import pytest

from jaxfl.cli import main
from jaxfl.core.errors import InputError
from jaxfl.experiment import Config, compare
from jaxfl.experiment.config import hyper_by_algorithm, load_config, parse_methods
from jaxfl.experiment.pictures.curves import draw_comparison
from jaxfl.experiment.pictures.drawing import render
from jaxfl.experiment.store.files import directory_name
from jaxfl.experiment.store.records import RunRecord
from jaxfl.experiment.tables.formats import markdown
from jaxfl.experiment.tables.sections import sections

SHORT = ["--rounds", "1", "--local-steps", "1", "--model", "linear", "--clients", "5"]


def load(file):
    return json.loads(Path(file).read_text())


def test_a_dotted_name_is_for_one_algorithm_and_wins():
    hyper = {"pfedgraph.alpha": 0.8, "alpha": 0.2, "per_fedavg.alpha": 0.001, "lam": 1}
    found = hyper_by_algorithm(hyper, ["local", "pfedgraph", "per_fedavg", "ditto"])
    assert found == {
        "local": {},
        "pfedgraph": {"alpha": 0.8, "lam": 1},
        "per_fedavg": {"alpha": 0.001},
        "ditto": {"lam": 1},
    }


def test_a_word_is_an_algorithm_or_one_with_values():
    words = ["local", "pfedgraph:alpha=0.4", "pfedgraph:alpha=1,anchor=approx"]
    assert parse_methods(words) == {
        "local": ("local", {}),
        "pfedgraph:alpha=0.4": ("pfedgraph", {"alpha": 0.4}),
        "pfedgraph:alpha=1,anchor=approx": ("pfedgraph", {"alpha": 1, "anchor": "approx"}),
    }


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("pfedgraph:alpha=1,lam=0", "pfedgraph-alpha=1,lam=0"),
        ("fedper:head=a/../b$", "fedper-head=a-..-b"),
        ("../..", "run"),
        ("fedavg_ft", "fedavg_ft"),
    ],
)
def test_a_directory_has_a_safe_name(label, name):
    assert directory_name(label) == name


@pytest.mark.slow(seconds=12)
@pytest.mark.pictures
def test_one_algorithm_several_times_is_told_apart_everywhere(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["fedprox", "fedprox:mu=0.4"]
    options = ["--hyper", "mu=0.6", "fedprox.mu=2"]
    assert main(["compare", "--algorithms", *words, *SHORT, *options, "--out", "x"]) == 0
    shown = capsys.readouterr().out
    names = ["fedprox", "fedprox-mu=0.4"]
    configs = [load_config(Path("x", name, "config.json")) for name in names]
    assert [config.hyper for config in configs] == [{"mu": 2}, {"mu": 0.4}]
    assert [config.name for config in configs] == words
    rows = load("x/comparison.json")
    assert [row["run"] for row in rows] == words
    assert [row["directory"] for row in rows] == names
    assert load("x/fedprox-mu=0.4/summary.json")["label"] == "fedprox:mu=0.4"
    assert "label" not in load("x/fedprox/summary.json")
    table = Path("x/comparison.md").read_text()
    assert main(["report", "x", "--out", "again"]) == 0
    reported = capsys.readouterr().out
    assert Path("again/comparison.md").read_text() == table
    for text in (shown, reported, table):
        assert "fedprox:mu=0.4" in text


def test_letters_of_a_label_do_not_break_tables_and_pictures():
    scores = dict.fromkeys(("mean", "weighted", "std", "worst10"), 0.5)
    stages = {"deployed": scores, "fine_tuned": scores}
    summary = dict.fromkeys(("up", "down", "up_bytes", "batches", "seconds"), 1)
    summary |= {"measure": "accuracy", "final": stages, "selected_on_val": stages}
    summary |= {"algorithm": "fedper"}
    label = "fedper:head=a|$b$ $\\frac$"
    assert r"| fedper:head=a\|$b$ " in markdown(sections({label: RunRecord(summary, [])}))
    line = {"round": 1, "loss": 1.0} | stages
    runs = {name: RunRecord(summary, [line]) for name in (label, "local")}
    assert render(draw_comparison(runs)).startswith(b"\x89PNG")


def test_two_labels_of_one_directory_are_refused(tmp_path):
    configs = [Config(algorithm="local", label=label) for label in ("a:b", "A/b")]
    with pytest.raises(InputError, match="a-b"):
        compare(configs, tmp_path / "x")
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("label", ["", "  ", "a\nb", 101 * "a"])
def test_a_label_that_is_no_name_is_refused(label):
    with pytest.raises(InputError, match="label is"):
        Config(label=label)
