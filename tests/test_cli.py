"""The command line, from outside: exit codes, messages, files."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from jaxfl.algorithms import ALGORITHMS
from jaxfl.cli import main

SHORT = ["--rounds", "2", "--local-steps", "3", "--model", "linear"]
RUN = ["run", "pfedgraph", *SHORT]
DATA = ["--data-dir", "."]


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("JAXFL_DATA_DIR", raising=False)
    return tmp_path


def lines(directory):
    return [json.loads(line) for line in Path(directory, "metrics.jsonl").read_text().splitlines()]


def load(file):
    return json.loads(Path(file).read_text())


def without_times(rows):
    return [{key: value for key, value in row.items() if key != "seconds"} for row in rows]


RUN_FILES = {
    "config.json",
    "metrics.jsonl",
    "summary.json",
    "clients.npz",
    "graph.npz",
    "curves.png",
    "graph.png",
    "partition.png",
}
STATISTICS = {"mean", "weighted", "std", "worst10"}


def test_a_run_writes_what_the_documentation_says(capsys):
    assert main([*RUN, "--partition", "dirichlet", "--out", "x", "--eval-every", "1"]) == 0
    assert {file.name for file in Path("x").iterdir()} == RUN_FILES
    rows = lines("x")
    assert [row["round"] for row in rows] == [1, 2]
    for row in rows:
        assert set(row) == {"round", "seconds", "loss", "before", "after", "up", "down", "up_bytes", "batches"}
        assert row["up_bytes"] == 4 * row["up"]
        assert row["batches"] == 3 * 10 * row["round"]  # steps, clients
        assert set(row["before"]) == set(row["after"]) == STATISTICS
        assert all(0 <= value <= 1 for value in row["before"].values())
    summary = load("x/summary.json")
    with np.load("x/clients.npz") as clients:
        for stage in ("before", "after"):
            best = clients[f"{stage}_val"].argmax(axis=0)
            chosen = clients[f"{stage}_test"][best, np.arange(10)]
            assert summary["selected_on_val"][stage]["mean"] == pytest.approx(float(chosen.mean()))
    assert {"algorithm", "final", "selected_on_val", "seconds", "compile_seconds", "versions"} <= set(summary)
    assert summary["final"] == {stage: rows[-1][stage] for stage in ("before", "after")}
    with np.load("x/graph.npz") as graph:
        assert graph["weights"].shape == (2, 10, 10)
        assert graph["ids"].tolist() == [list(range(10))] * 2
    with np.load("x/clients.npz") as clients:
        scores = clients["before_test"]
        assert scores.shape == (2, 10)
        assert rows[1]["before"]["mean"] == pytest.approx(float(scores[1].mean()))
    for picture in ("curves.png", "graph.png", "partition.png"):
        assert Path("x", picture).read_bytes().startswith(b"\x89PNG")
    shown = capsys.readouterr()
    assert "pfedgraph" in shown.out
    assert shown.err == ""
    assert "\x1b" not in shown.out  # quiet: no progress bar, no colours


def test_epochs_on_the_command_line_take_the_place_of_steps_in_the_file():
    Path("c.json").write_text('{"algorithm": "local", "rounds": 1, "local_steps": 2}')
    assert main(["run", "--config", "c.json", "--local-epochs", "1", "--out", "x"]) == 0
    assert (load("x/config.json")["local_steps"], load("x/config.json")["local_epochs"]) == (None, 1)


def test_the_config_says_where_the_data_was(monkeypatch):
    npz("mine.npz")
    monkeypatch.setenv("JAXFL_DATA_DIR", ".")
    options = ["--dataset", "mine", "--partition", "iid", "--clients", "3", "--rounds", "1", "--local-steps", "1"]
    assert main(["run", "local", *options, "--out", "x"]) == 0
    monkeypatch.delenv("JAXFL_DATA_DIR")
    Path("elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    assert main(["run", "--config", "../x/config.json", "--out", "y"]) == 0


def test_a_config_repeats_its_run_and_options_change_it():
    options = ["--hyper", "alpha=0.5", "layers=Dense_0", "--clients", "20", "--participation", "0.5"]
    assert main([*RUN, *options, "--out", "x"]) == 0
    assert main(["run", "--config", "x/config.json", "--out", "y"]) == 0
    assert load("x/config.json") == load("y/config.json")
    assert without_times(lines("x")) == without_times(lines("y"))
    assert main(["run", "--config", "y/config.json", "--rounds", "1", "--hyper", "alpha=0.7", "--out", "z"]) == 0
    changed = load("z/config.json")
    assert (changed["rounds"], changed["clients"]) == (1, 20)
    assert changed["hyper"] == {"alpha": 0.7, "layers": "Dense_0"}
    assert main(["run", "fedavg", "--config", "y/config.json", "--rounds", "1", "--out", "w"]) == 0
    assert (load("w/config.json")["algorithm"], load("w/config.json")["hyper"]) == ("fedavg", {})


def test_several_seeds_are_the_single_runs_side_by_side():
    options = ["run", "fedavg", "--rounds", "2", "--local-epochs", "1", "--partition", "dirichlet", "--test", "own"]
    options += ["--model", "linear"]
    options += ["--participation", "0.5", "--eval-every", "2"]
    assert main([*options, "--seeds", "2", "--seed", "3", "--out", "both"]) == 0
    (row,) = lines("both")
    for i, seed in enumerate((3, 4)):
        assert main([*options, "--seed", str(seed), "--out", f"one{i}"]) == 0
        (alone,) = lines(f"one{i}")
        for stage in ("before", "after"):
            assert row["seeds"][i][stage] == pytest.approx(alone[stage], abs=0.02)
        with np.load("both/graph.npz") as both, np.load(f"one{i}/graph.npz") as one:
            np.testing.assert_array_equal(both["ids"][i], one["ids"])
            np.testing.assert_allclose(both["weights"][i], one["weights"], rtol=1e-6)
    assert row["before"]["mean"] == pytest.approx(np.mean([seed["before"]["mean"] for seed in row["seeds"]]))


def test_evaluating_participants_only_leaves_the_others_blank():
    options = ["--participation", "0.3", "--eval-on", "participants", "--out", "x"]
    assert main(["run", "fedavg_ft", *SHORT, *options]) == 0
    with np.load("x/clients.npz") as clients, np.load("x/graph.npz") as graph:
        for scores, ids in zip(clients["after_test"], graph["ids"], strict=True):
            assert np.flatnonzero(~np.isnan(scores)).tolist() == ids.tolist()


def test_leaking_is_on_record_and_makes_validation_the_test():
    main(["run", "pfedgat", *SHORT, "--hyper", "heads=1", "--feedback", "test-leaking", "--out", "x"])
    assert load("x/config.json")["feedback"] == "test-leaking"
    with np.load("x/clients.npz") as clients:
        np.testing.assert_allclose(clients["before_val"], clients["before_test"], atol=1e-5)
    assert {"feedback", "entropy"} == set(lines("x")[-1]["metrics"])


def test_compare_and_report(capsys):
    assert main(["compare", "--algorithms", "local", "pfedgraph", *SHORT, "--hyper", "alpha=0.6", "--out", "x"]) == 0
    rows = load("x/comparison.json")
    assert [row["algorithm"] for row in rows] == ["local", "pfedgraph"]
    for row in rows:
        assert {"final", "selected_on_val", "seconds", "up", "down"} <= set(row)
        assert set(row["final"]["before"]) == set(row["selected_on_val"]["after"]) == STATISTICS
        assert {file.name for file in Path("x", row["algorithm"]).iterdir()} == RUN_FILES
    assert (rows[0]["up"], rows[0]["down"]) == (0, 0)
    assert rows[1]["down"] == 2 * rows[1]["up"] > 0
    assert load("x/pfedgraph/config.json")["hyper"] == {"alpha": 0.6}
    assert load("x/local/config.json")["hyper"] == {}
    assert Path("x/graphs.png").read_bytes().startswith(b"\x89PNG")
    assert Path("x/comparison.png").read_bytes().startswith(b"\x89PNG")
    table = Path("x/comparison.md").read_text()
    assert table.count("\n| ") == 2
    capsys.readouterr()
    assert main(["report", "x", "--out", "again"]) == 0
    assert "pfedgraph" in capsys.readouterr().out
    assert Path("again/comparison.md").read_text() == table
    assert main(["report", "x/local"]) == 0
    assert main(["report", "x", "--out", "x", "--overwrite"]) == 0
    assert Path("x/comparison.md").read_text() == table
    capsys.readouterr()
    assert main(["report", "x/local", "x"]) == 0
    assert "x/local" in capsys.readouterr().out  # twice the same algorithm: both are named by their directory
    assert main(["compare", "--algorithms", "local", *SHORT, "--out", "x", "--overwrite"]) == 0
    assert [row["algorithm"] for row in load("x/comparison.json")] == ["local"]
    assert {file.name for file in Path("x/pfedgraph").iterdir()} == RUN_FILES  # the older run is kept, and not counted
    capsys.readouterr()
    assert main(["report", "x"]) == 0
    assert "pfedgraph" not in capsys.readouterr().out


@pytest.mark.parametrize("overwrite", [[], ["--overwrite"]], ids=["", "overwrite"])
def test_a_comparison_leaves_its_neighbours_alone(overwrite):
    Path("runs/mine").mkdir(parents=True)
    Path("runs/notes").mkdir()
    for file in ("runs/mine/config.json", "runs/mine/summary.json", "runs/notes/config.json"):
        Path(file).write_text("{}")
    assert main(["compare", "--algorithms", "local", *SHORT, "--out", "runs", *overwrite]) == 0
    for file in ("runs/mine/config.json", "runs/mine/summary.json", "runs/notes/config.json"):
        assert Path(file).read_text() == "{}"


def test_list(capsys):
    assert main(["list"]) == 0
    shown = capsys.readouterr().out
    for word in ("fedavg", "digits", "dirichlet", "cnn", "alpha"):
        assert word in shown
    assert main(["list", "models"]) == 0
    assert "fedavg" not in capsys.readouterr().out


def test_describe(capsys):
    assert main(["describe", "--clients", "5", "--out", "x.png"]) == 0
    shown = capsys.readouterr().out
    for line in ("1,437 to train and validate, 360 to test", "labels a client   │ 2 ", "size imbalance"):
        assert line in shown
    assert Path("x.png").read_bytes().startswith(b"\x89PNG")


def test_numbers_to_predict_are_scored_by_rmse(capsys):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(90, 3)).astype(np.float32)
    np.savez("line.npz", x_train=x, y_train=x @ np.array([1.0, -2.0, 0.5]) + 1, owners=np.arange(90) % 3)
    assert main(["run", "fedavg", "--dataset", "line", *DATA, "--rounds", "3", "--lr", "0.05", "--out", "x"]) == 0
    config, summary = load("x/config.json"), load("x/summary.json")
    chosen = {"partition": "natural", "clients": 3, "test": "own", "model": "linear", "augment": "none"}
    assert {name: config[name] for name in chosen} == chosen
    assert summary["measure"] == "rmse"
    mean = summary["final"]["before"]["mean"]  # minus the mean squared error
    assert -1e-4 < mean <= 0
    assert f"{(-mean) ** 0.5:.3f}" in capsys.readouterr().out
    assert main(["run", "local", *SHORT, "--out", "y"]) == 0
    assert main(["report", "x", "y"]) == 2
    assert "scored by accuracy and rmse: give runs of one measure" in capsys.readouterr().err


def test_ratings_and_texts_choose_their_models():
    rng = np.random.default_rng(0)
    words = rng.integers(0, 30, (80, 8)).astype(np.int32)
    np.savez("posts.npz", x_train=words, y_train=np.arange(80) % 2, vocabulary=[30], owners=np.arange(80) % 4)
    pairs = np.stack([np.arange(80) % 4, np.arange(80) % 20], axis=1)
    np.savez("stars.npz", x_train=pairs, y_train=rng.random(80), vocabulary=[4, 20], owners=np.arange(80) % 4)
    for name, model in (("posts", "textcnn"), ("stars", "mf")):
        options = ["--dataset", name, *DATA, "--rounds", "1", "--local-steps", "1", "--batch-size", "4"]
        assert main(["run", "fedavg", *options, "--out", name]) == 0
        assert load(f"{name}/config.json")["model"] == model


def npz(name, **changes):
    rng = np.random.default_rng(0)
    arrays = {"x_train": rng.random((40, 4), np.float32), "y_train": np.arange(40) % 4}
    arrays |= {"x_test": rng.random((8, 4), np.float32), "y_test": np.arange(8) % 4} | changes
    np.savez(name, **arrays)


def hostile_files():
    rng = np.random.default_rng(0)
    bad = rng.random((40, 4), np.float32)
    bad[3, 2] = np.inf
    npz("inf.npz", x_train=bad)
    bad = bad.copy()
    bad[3, 2] = np.nan
    npz("nan.npz", x_train=bad)
    npz("label.npz", y_test=np.arange(8))
    npz("good.npz")
    Path("torn.npz").write_bytes(Path("good.npz").read_bytes()[:99])
    np.savez_compressed("corrupt.npz", x_train=np.arange(4000.0), y_train=0, x_test=0, y_test=0)
    torn = bytearray(Path("corrupt.npz").read_bytes())
    torn[200:300] = bytes(100)
    Path("corrupt.npz").write_bytes(torn)
    bad = rng.random((40, 4))
    bad[0, 0] = 1e300
    npz("huge.npz", x_train=bad)
    npz("blank.npz", x_train=np.zeros((40, 0)), x_test=np.zeros((8, 0)))
    npz("tiny.npz", x_train=np.zeros((40, 3, 3, 1), np.uint8), x_test=np.zeros((8, 3, 3, 1), np.uint8))
    Path("text.json").write_text("rounds: 3")
    Path("list.json").write_text("[1, 2]")
    Path("field.json").write_text('{"algorithm": "fedavg", "round": 3}')
    Path("type.json").write_text('{"algorithm": "fedavg", "rounds": "three"}')
    Path("choice.json").write_text('{"algorithm": "fedavg", "test": "none"}')
    Path("held").mkdir()
    Path("held/config.json").write_text("{}")
    Path("compared/local").mkdir(parents=True)
    Path("compared/local/summary.json").write_text("{}")
    Path("odd").mkdir()
    Path("odd/comparison.json").write_text("[1]")
    Path("other").mkdir()
    Path("other/summary.json").write_text('{"algorithm": 1}')


IID = ["--partition", "iid"]
BAD = [
    (["run", "fedavgg"], "unknown algorithm 'fedavgg': did you mean fedavg"),
    (["run", "zzz"], f"unknown algorithm 'zzz': choose from {', '.join(sorted(ALGORITHMS))}"),
    (["run"], "no algorithm: name one"),
    (["compare", "--algorithms", "local", "pfedgraf"], "did you mean pfedgraph"),
    (["compare", "--algorithms", "local", "local"], "named twice"),
    (["run", "fedavg", "--dataset", "digit"], "unknown data set 'digit': did you mean digits"),
    (["run", "fedavg", "--partition", "dirichelt"], "unknown partition 'dirichelt': did you mean dirichlet"),
    (["run", "fedavg", "--model", "mpl"], "unknown model 'mpl': did you mean mlp"),
    (
        ["run", "fedavg", "--clients", "2000", "--partition", "iid"],
        "--clients is 2000: digits has 1437 training examples",
    ),
    (
        ["run", "fedavg", "--dataset", "cifar10"],
        "get it with `jaxfl prepare cifar10 --data-dir DIR`, and name",
    ),
    (
        ["run", "fedavg", "--dataset", "movielens/1m-ratings", *DATA],
        "`jaxfl prepare movielens/1m-ratings --data-dir",
    ),
    (["prepare", "mnist"], "no folder to write to: give --data-dir DIR or set JAXFL_DATA_DIR"),
    (["prepare", "yahoo_answers", *DATA], "expected train.csv and test.csv, as published, in yahoo_answers_csv"),
    (["prepare", "../escape", *DATA], "'../escape' is no name of a data set"),
    (["prepare", "mnist", *DATA, "--words", "0"], "words is 0"),
    (["prepare", "mnist", *DATA, "--tfds-manual-dir", "nowhere"], "nowhere of files fetched by hand does not exist"),
    (["run", "fedavg", "--partition", "natural"], "name no owners: choose another partition"),
    (["run", "fedavg", "--model", "textcnn"], "model textcnn takes names of words or users, the data hold numbers"),
    (["run", "fedavg", "--augment", "flip"], "unknown augment 'flip': "),
    (["run", "fedavg", "--dataset", "good", *DATA, "--augment", "crop_flip"], "crop_flip takes images, not (4,)"),
    (["run", "fedavg", "--test", "own", "--val", "0.5", "--own", "0.5"], "expected fractions that leave some to train"),
    (["run", "fedavg", "--val", "1"], "--val is 1.0: expected a number in [0, 1)"),
    (["run", "fedavg", "--max-examples", "0"], "--max-examples is 0: expected 1 or more"),
    (["sweep", "pfedgraph", "--over", "alpha=1", "--over", "lam=1"], "--over is given twice"),
    (["describe", "--partition", "dirichelt"], "did you mean dirichlet"),
    (["describe", "--out", "good.npz"], "good.npz exists: name another file, or remove it"),
    (["run", "fedavg", "--clients", "0"], "--clients is 0: expected 1 or more"),
    (["run", "fedavg", "--classes-per-client", "3"], "3 classes a client do not divide 10 classes"),
    (["run", "fedavg", "--clients", "7"], "2 classes a client do not divide 10 classes among 7 clients"),
    (["run", "fedavg", "--partition", "dirichlet", "--beta", "0"], "beta is 0.0: expected a positive number"),
    (["run", "fedavg", "--partition", "shards", "--clients", "1000"], "1000 clients with 2 shards each"),
    (["run", "fedavg", "--participation", "0"], "--participation is 0.0: expected a fraction in (0, 1]"),
    (["run", "fedavg", "--participation", "1.01"], "--participation is 1.01"),
    (["run", "fedavg", "--participation", "nan"], "--participation is nan"),
    (["run", "fedavg", "--rounds", "0"], "--rounds is 0: expected 1 or more"),
    (["run", "fedavg", "--eval-every", "0"], "--eval-every is 0"),
    (["run", "fedavg", "--seeds", "0"], "--seeds is 0"),
    (["run", "fedavg", "--seed", "-1"], "--seed is -1: expected 0 or more"),
    (["run", "fedavg", "--seed", "3000000000"], "--seed is 3000000000: expected a number below 2^31"),
    (["run", "fedavg", "--partition", "dirichlet", "--beta", "inf"], "beta is inf"),
    (["run", "fedavg", "--dataset", "good", "--data-dir", "none"], "the data folder none does not exist"),
    (["run", "fedavg", "--out", "x" * 300], "cannot be a directory (File name too long)"),
    (["run", "fedavg", "--batch-size", "0"], "--batch-size is 0"),
    (["run", "fedavg", "--chunk", "0"], "--chunk is 0"),
    (["run", "fedavg", "--devices", "0"], "--devices is 0"),
    (["run", "fedavg", "--devices", "99"], "99 devices asked for"),
    (["run", "fedavg", "--processes", "2"], "--coordinator, --processes and --process"),
    (["run", "fedavg", "--local-steps", "0"], "--local-steps is 0"),
    (["run", "fedavg", "--local-steps", "1", "--local-epochs", "1"], "both --local-steps and --local-epochs"),
    (["run", "fedavg", "--lr", "-1"], "--lr is -1.0"),
    (["run", "fedavg", "--lr", "nan"], "--lr is nan"),
    (["run", "fedavg", "--momentum", "1"], "--momentum is 1.0: expected a number in [0, 1)"),
    (["run", "fedavg", "--hyper", "alpha=1"], "fedavg has no hyper-parameter 'alpha'"),
    (["run", "pfedgraph", "--hyper", "alhpa=1"], "unknown hyper-parameter of pfedgraph 'alhpa': did you mean alpha"),
    (["run", "pfedgraph", "--hyper", "alpha"], "expected KEY=VALUE"),
    (["run", "pfedgraph", "--hyper", "alpha=1", "alpha=2"], "given twice"),
    (["run", "pfedgraph", "--hyper", "alpha=high"], "hyper-parameter alpha of pfedgraph is 'high': expected a number"),
    (["run", "pfedgraph", "--hyper", "anchor=cosin"], "expected one of cosine, approx"),
    (["run", "pfedgraph", "--hyper", "cap=0.5"], "choose solver=jaxopt"),
    (["run", "pfedgraph", "--hyper", "alpha=1", "--hyper", "lam=1"], "--hyper is given twice"),
    (["run", "pfedgraph", "--hyper", "alpha=0"], "alpha is 0: expected a positive number"),
    (["run", "pfedgraph", "--hyper", "solver=jaxopt", "cap=0"], "cap is 0: expected a positive number"),
    (["run", "pfedgraph", "--hyper", "layers=("], "'(' is no regular expression"),
    (["run", "pfedgraph", "--hyper", "layers=zzz"], "no layer matches 'zzz': choose from params/Dense_0/bias"),
    (["compare", "--hyper", "alfa=1"], "unknown hyper-parameter 'alfa': did you mean alpha"),
    (["run", "fedavg", "--dataset", "nan", *DATA], "x_train of nan.npz holds 1 NaN or infinite values"),
    (["run", "fedavg", "--dataset", "inf", *DATA], "x_train of inf.npz holds 1 NaN or infinite values"),
    (["run", "fedavg", "--dataset", "label", *DATA], "y_test of label.npz holds the label 7: expected 0 to 3"),
    (["run", "fedavg", "--dataset", "torn", *DATA], "cannot read torn.npz as plain npz arrays"),
    (["run", "fedavg", "--dataset", "corrupt", *DATA], "cannot read corrupt.npz as plain npz arrays"),
    (["run", "fedavg", "--dataset", "huge", *DATA], "x_train of huge.npz holds 1 NaN or infinite values"),
    (["run", "fedavg", "--dataset", "blank", *DATA], "x_train of blank.npz has shape (40, 0)"),
    (["run", "fedavg", "--dataset", "tiny", "--model", "cnn", *IID, *DATA], "cnn takes images of 4x4 or more, not 3x3"),
    (["run", "fedavg", "--dataset", "good", "--model", "cnn", *IID, *DATA], "cnn takes images [h, w, channel]"),
    (
        ["run", "fedavg", "--out", "held"],
        "held already holds a run (config.json): choose another --out, or add --overwrite",
    ),
    (["run", "fedavg", "--out", "good.npz"], "good.npz is a file"),
    (["compare", "--out", "compared"], "compared/local already holds a run (summary.json)"),
    (["run", "--config", "nowhere.json"], "cannot read nowhere.json as a config"),
    (["run", "--config", "text.json"], "cannot read text.json as a config"),
    (["run", "--config", "list.json"], "list.json is no config"),
    (["run", "--config", "field.json"], "unknown field in field.json 'round': did you mean rounds"),
    (["run", "--config", "type.json"], "rounds in type.json is 'three': expected a whole number"),
    (["run", "--config", "choice.json"], "test in choice.json is 'none': expected one of"),
    (["report", "nowhere"], "nowhere is no directory"),
    (["report", "held"], "held holds no finished run"),
    (["report", "other"], "other is no run of jaxfl"),
    (["report", "odd"], "odd/comparison.json is no comparison of jaxfl"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD, ids=[" ".join(arguments) for arguments, _ in BAD])
def test_bad_input_is_one_line_and_nothing_is_written(arguments, message, here, capsys):
    hostile_files()
    before = sorted(here.rglob("*"))
    out = [] if "--out" in arguments or arguments[0] in {"report", "list", "prepare"} else ["--out", "new"]
    assert main([*arguments, *out]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert message in shown.err
    assert shown.err.count("\n") == 1
    assert sorted(here.rglob("*")) == before


@pytest.mark.parametrize(
    "arguments", [["run", "fedavg", "--rounds", "many"], ["run", "fedavg", "--roundz", "3"], ["fly"], []], ids=" ".join
)
def test_what_is_no_command_line_exits_with_2(arguments, here, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    assert not list(here.iterdir())


def test_overwriting_replaces_the_run_and_touches_nothing_else():
    assert main(["run", "pfedgraph", *SHORT, "--out", "x"]) == 0
    Path("x/notes.txt").write_text("mine")
    assert main(["run", "fedavg", *SHORT, "--rounds", "1", "--out", "x", "--overwrite"]) == 0
    assert load("x/summary.json")["algorithm"] == "fedavg"
    assert len(lines("x")) == 1
    assert Path("x/notes.txt").read_text() == "mine"


def test_help_names_every_option(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["run", "--help"])
    assert stopped.value.code == 0
    shown = capsys.readouterr().out
    options = (
        "dataset partition classes-per-client beta topology clients participation rounds eval-every seed seeds model "
        "local-steps local-epochs batch-size lr momentum weight-decay chunk compute devices "
        "coordinator processes process hyper out config overwrite"
    )
    for option in options.split():
        assert f"--{option}" in shown


def test_the_program_as_a_process():
    """From a shell, as a user calls it: exit code 2, the message on standard error and no traceback."""
    program = [sys.executable, "-c", "import sys, jaxfl.cli; sys.exit(jaxfl.cli.main())"]
    done = subprocess.run([*program, "run", "nothing"], capture_output=True, text=True, env=os.environ)
    assert done.returncode == 2
    assert done.stderr.startswith("jaxfl: unknown algorithm 'nothing'")
    assert "Traceback" not in done.stderr
