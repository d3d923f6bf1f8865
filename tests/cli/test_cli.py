"""The command line, from outside: exit codes, messages, files. Bad input: test_bad_input.py."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import jaxfl
from jaxfl.algorithms import ALGORITHMS, fedper
from jaxfl.cli import main, parse
from jaxfl.core.facts import facts_of
from jaxfl.data import PARTITIONS
from jaxfl.experiment.config import PRESETS, Config
from jaxfl.models import MODELS
from jaxfl.uplink import ATTACKS

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
    "inputs.json",
    "metrics.jsonl",
    "summary.json",
    "clients.npz",
    "graph.npz",
    "models.npz",
    "curves.png",
    "graph.png",
    "partition.png",
}
STATISTICS = {"mean", "weighted", "std", "worst10"}


@pytest.mark.slow
@pytest.mark.pictures
def test_a_run_writes_what_the_documentation_says(capsys):
    assert main([*RUN, "--partition", "dirichlet", "--out", "x", "--eval-every", "1"]) == 0
    assert {file.name for file in Path("x").iterdir()} == RUN_FILES
    assert load("x/config.json")["devices"] == "auto"
    rows = lines("x")
    assert [row["round"] for row in rows] == [1, 2]
    for row in rows:
        assert set(row) == {
            "round",
            "seconds",
            "loss",
            "deployed",
            "fine_tuned",
            "up",
            "down",
            "up_bytes",
            "batches",
            "graph",
            "one_label",
        }
        assert row["up_bytes"] == 4 * row["up"]
        assert row["batches"] == 3 * 10 * row["round"]  # steps, clients
        assert set(row["deployed"]) == set(row["fine_tuned"]) == STATISTICS
        assert all(0 <= value <= 1 for value in row["deployed"].values())
    summary = load("x/summary.json")
    with np.load("x/clients.npz") as clients:
        for stage in ("deployed", "fine_tuned"):
            best = clients[f"{stage}_val"].argmax(axis=0)
            chosen = clients[f"{stage}_test"][best, np.arange(10)]
            assert summary["selected_on_val"][stage]["mean"] == pytest.approx(float(chosen.mean()))
    assert {
        "algorithm",
        "final",
        "selected_on_val",
        "seconds",
        "compile_seconds",
        "versions",
    } <= set(summary)
    assert summary["final"] == {stage: rows[-1][stage] for stage in ("deployed", "fine_tuned")}
    with np.load("x/graph.npz") as graph:
        assert graph["weights"].shape == (2, 10, 10)
        assert graph["ids"].tolist() == [list(range(10))] * 2
    with np.load("x/clients.npz") as clients:
        scores = clients["deployed_test"]
        assert scores.shape == (2, 10)
        assert rows[1]["deployed"]["mean"] == pytest.approx(float(scores[1].mean()))
    for picture in ("curves.png", "graph.png", "partition.png"):
        assert Path("x", picture).read_bytes().startswith(b"\x89PNG")
    shown = capsys.readouterr()
    assert "pfedgraph" in shown.out
    assert shown.err == ""
    assert "\x1b" not in shown.out  # quiet: no progress bar, no colours


@pytest.mark.slow
def test_epochs_on_the_command_line_take_the_place_of_steps_in_the_file():
    Path("c.json").write_text('{"algorithm": "local", "rounds": 1, "local_steps": 2}')
    assert main(["run", "--config", "c.json", "--local-epochs", "1", "--out", "x"]) == 0
    assert (load("x/config.json")["local_steps"], load("x/config.json")["local_epochs"]) == (
        None,
        1,
    )


@pytest.mark.slow
def test_durations_and_work_of_each_client_take_the_place_of_drawn_ones_in_the_file():
    Path("c.json").write_text('{"algorithm": "local", "speeds": 0.5, "stragglers": 0.5}')
    given = ["--durations", "d.npy", "--work-file", "w.npy"]
    command = parse(["run", "--config", "c.json", *given])
    assert (command.speeds, command.durations) == (None, "d.npy")
    assert (command.stragglers, command.work_file) == (0.0, "w.npy")


@pytest.mark.slow
def test_the_config_says_where_the_data_was(monkeypatch):
    npz("mine.npz")
    monkeypatch.setenv("JAXFL_DATA_DIR", ".")
    options = [
        "--dataset",
        "mine",
        "--partition",
        "iid",
        "--clients",
        "3",
        "--rounds",
        "1",
        "--local-steps",
        "1",
    ]
    assert main(["run", "local", *options, "--out", "x"]) == 0
    monkeypatch.delenv("JAXFL_DATA_DIR")
    Path("elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    assert main(["run", "--config", "../x/config.json", "--out", "y"]) == 0


@pytest.mark.slow(seconds=12)
def test_a_config_repeats_its_run_and_options_change_it():
    options = [
        "--hyper",
        "alpha=0.5",
        "layers=Dense_0",
        "--clients",
        "20",
        "--participation",
        "0.5",
    ]
    assert main([*RUN, *options, "--out", "x"]) == 0
    assert main(["run", "--config", "x/config.json", "--out", "y"]) == 0
    assert load("x/config.json") == load("y/config.json")
    assert without_times(lines("x")) == without_times(lines("y"))
    assert (
        main(
            [
                "run",
                "--config",
                "y/config.json",
                "--rounds",
                "1",
                "--hyper",
                "alpha=0.7",
                "--out",
                "z",
            ]
        )
        == 0
    )
    changed = load("z/config.json")
    assert (changed["rounds"], changed["clients"]) == (1, 20)
    assert changed["hyper"] == {"alpha": 0.7, "layers": "Dense_0"}
    assert main(["run", "fedavg", "--config", "y/config.json", "--rounds", "1", "--out", "w"]) == 0
    assert (load("w/config.json")["algorithm"], load("w/config.json")["hyper"]) == ("fedavg", {})


@pytest.mark.slow
def test_several_seeds_are_the_single_runs_side_by_side():
    options = [
        "run",
        "fedavg",
        "--rounds",
        "2",
        "--local-epochs",
        "1",
        "--partition",
        "dirichlet",
        "--test",
        "own",
    ]
    options += ["--model", "linear"]
    options += ["--participation", "0.5", "--eval-every", "2"]
    assert main([*options, "--seeds", "2", "--seed", "3", "--out", "both"]) == 0
    (row,) = lines("both")
    for i, seed in enumerate((3, 4)):
        assert main([*options, "--seed", str(seed), "--out", f"one{i}"]) == 0
        (alone,) = lines(f"one{i}")
        for stage in ("deployed", "fine_tuned"):
            assert row["seeds"][i][stage] == pytest.approx(alone[stage], abs=0.02)
        with np.load("both/graph.npz") as both, np.load(f"one{i}/graph.npz") as one:
            np.testing.assert_array_equal(both["ids"][i], one["ids"])
            np.testing.assert_allclose(both["weights"][i], one["weights"], rtol=1e-6)
    assert row["deployed"]["mean"] == pytest.approx(
        np.mean([seed["deployed"]["mean"] for seed in row["seeds"]])
    )


@pytest.mark.slow
def test_evaluating_participants_only_leaves_the_others_blank():
    options = ["--participation", "0.3", "--eval-on", "participants", "--out", "x"]
    assert main(["run", "fedavg_ft", *SHORT, *options]) == 0
    with np.load("x/clients.npz") as clients, np.load("x/graph.npz") as graph:
        for scores, ids in zip(clients["fine_tuned_test"], graph["ids"], strict=True):
            assert np.flatnonzero(~np.isnan(scores)).tolist() == ids.tolist()


@pytest.mark.slow
def test_leaking_is_on_record_and_makes_validation_the_test():
    main(
        ["run", "pfedgat", *SHORT, "--hyper", "heads=1", "--feedback", "test-leaking", "--out", "x"]
    )
    assert load("x/config.json")["feedback"] == "test-leaking"
    with np.load("x/clients.npz") as clients:
        np.testing.assert_allclose(clients["deployed_val"], clients["deployed_test"], atol=1e-5)
    assert {"feedback", "entropy"} == set(lines("x")[-1]["metrics"])


@pytest.mark.slow(seconds=15)
@pytest.mark.pictures
def test_compare_and_report(capsys):
    assert (
        main(
            [
                "compare",
                "--algorithms",
                "local",
                "pfedgraph",
                *SHORT,
                "--hyper",
                "alpha=0.6",
                "--out",
                "x",
            ]
        )
        == 0
    )
    rows = load("x/comparison.json")
    assert [row["algorithm"] for row in rows] == ["local", "pfedgraph"]
    for row in rows:
        assert {"final", "selected_on_val", "seconds", "up", "down"} <= set(row)
        assert (
            set(row["final"]["deployed"]) == set(row["selected_on_val"]["deployed"]) == STATISTICS
        )
        assert {file.name for file in Path("x", row["algorithm"]).iterdir()} == RUN_FILES
    assert (rows[0]["up"], rows[0]["down"]) == (0, 0)
    assert rows[1]["down"] == 2 * rows[1]["up"] > 0
    assert load("x/pfedgraph/config.json")["hyper"] == {"alpha": 0.6}
    assert load("x/local/config.json")["hyper"] == {}
    assert Path("x/graphs.png").read_bytes().startswith(b"\x89PNG")
    assert Path("x/comparison.png").read_bytes().startswith(b"\x89PNG")
    table = Path("x/comparison.md").read_text()
    assert table.count("\n| ") == 4  # the titles, two runs and the constants
    capsys.readouterr()
    assert main(["report", "x", "--out", "again"]) == 0
    assert "pfedgraph" in capsys.readouterr().out
    assert Path("again/comparison.md").read_text() == table
    assert main(["report", "x/local"]) == 0
    assert main(["report", "x", "--out", "x", "--overwrite"]) == 0
    assert Path("x/comparison.md").read_text() == table
    capsys.readouterr()
    assert main(["report", "x/local", "x"]) == 0
    rows = [line.split()[:1] for line in capsys.readouterr().out.splitlines()]
    assert rows.count(["local"]) == rows.count(["pfedgraph"]) == 1  # a run given twice is one
    assert main(["compare", "--algorithms", "local", *SHORT, "--out", "x", "--overwrite"]) == 0
    assert [row["algorithm"] for row in load("x/comparison.json")] == ["local"]
    assert {
        file.name for file in Path("x/pfedgraph").iterdir()
    } == RUN_FILES  # the older run is kept, and not counted
    capsys.readouterr()
    assert main(["report", "x"]) == 0
    assert "pfedgraph" not in capsys.readouterr().out


@pytest.mark.long
@pytest.mark.parametrize("overwrite", [[], ["--overwrite"]], ids=["", "overwrite"])
def test_a_comparison_leaves_its_neighbours_alone(overwrite):
    Path("runs/mine").mkdir(parents=True)
    Path("runs/notes").mkdir()
    for file in ("runs/mine/config.json", "runs/mine/summary.json", "runs/notes/config.json"):
        Path(file).write_text("{}")
    assert main(["compare", "--algorithms", "local", *SHORT, "--out", "runs", *overwrite]) == 0
    for file in ("runs/mine/config.json", "runs/mine/summary.json", "runs/notes/config.json"):
        assert Path(file).read_text() == "{}"


@pytest.mark.slow
def test_the_algorithms_of_a_comparison_may_stand_without_their_option():
    after = ["--rounds", "3", "--dataset", "digits"]
    named = parse(["compare", "--algorithms", "local", "ditto:lam=1", *after])
    assert named.algorithms == ("local", "ditto:lam=1")
    assert parse(["compare", "local", "ditto:lam=1", *after]) == named


def shown_list(capsys, *words):
    assert main(["list", *words]) == 0
    return capsys.readouterr().out


def test_the_list_names_everything_and_is_short(capsys):
    shown = shown_list(capsys)
    words = set(shown.split())
    for names in (ALGORITHMS, PARTITIONS, MODELS, ATTACKS, PRESETS, ["digits"]):
        assert set(names) <= words
    assert len(shown.splitlines()) <= 64
    assert max(map(len, shown.splitlines())) <= 100
    for line in shown.splitlines()[-2:]:
        assert main(line.split("  ")[0].split()[1:]) == 0, "the commands it ends with are true"


def test_the_list_of_a_kind_has_a_line_for_each_name(capsys):
    lines = shown_list(capsys, "algorithms").splitlines()
    assert [line.split()[0] for line in lines] == list(ALGORITHMS)
    assert "ICML 2023" in lines[list(ALGORITHMS).index("pfedgraph")]
    assert len(shown_list(capsys, "models").splitlines()) == len(MODELS)
    assert "swapped_labels" in shown_list(capsys, "concepts")
    assert "reflect_crop_flip" in shown_list(capsys, "augments")


def test_the_list_of_a_name_says_all_about_it(capsys):
    shown = shown_list(capsys, "pfedgraph")
    flat = " ".join(shown.split())
    facts = facts_of(ALGORITHMS["pfedgraph"])
    assert flat.startswith("pfedgraph: algorithm, jaxfl run pfedgraph")
    for said in (facts.paper, facts.link, facts.advice, facts.sends, "jaxfl cite pfedgraph"):
        assert said in flat
    assert "snap=0.9 a number or none; cosines above this number count as 1" in flat
    assert max(map(len, shown.splitlines())) <= 100
    for name, kind in [
        ("mimic", "attack, --attack mimic"),
        ("dirichlet", "partition, --partition dirichlet"),
        ("digits", "data set, --dataset digits"),
        ("mlp", "model, --model mlp"),
        ("rotation", "concept, --concept rotation"),
        ("pfedgraph-severe", "preset, --preset pfedgraph-severe"),
    ]:
        assert shown_list(capsys, name).startswith(f"{name}: {kind}\n")
    assert ":classes=2" in shown_list(capsys, "pfedgraph-severe")


def test_a_name_without_documentation_can_be_listed(capsys, monkeypatch):
    monkeypatch.setitem(ATTACKS, "mine", lambda before, after, malicious: after)
    assert "mine" in shown_list(capsys, "attacks")
    assert shown_list(capsys, "mine").startswith("mine: attack")


@pytest.mark.pictures
def test_describe(capsys):
    assert main(["describe", "--clients", "5", "--out", "x.png"]) == 0
    shown = capsys.readouterr().out
    for line in (
        "1,437 to train and validate, 360 to test",
        "labels a client   │ 2 ",
        "size imbalance",
    ):
        assert line in shown
    assert Path("x.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_numbers_to_predict_are_scored_by_rmse(capsys):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(90, 3)).astype(np.float32)
    np.savez(
        "line.npz", x_train=x, y_train=x @ np.array([1.0, -2.0, 0.5]) + 1, owners=np.arange(90) % 3
    )
    assert (
        main(
            [
                "run",
                "fedavg",
                "--dataset",
                "line",
                *DATA,
                "--rounds",
                "3",
                "--lr",
                "0.05",
                "--out",
                "x",
            ]
        )
        == 0
    )
    config, summary = load("x/config.json"), load("x/summary.json")
    chosen = {
        "partition": "natural",
        "clients": 3,
        "test": "own",
        "model": "linear",
        "augment": "none",
    }
    assert {name: config[name] for name in chosen} == chosen
    assert summary["measure"] == "rmse"
    mean = summary["final"]["deployed"]["mean"]  # minus the RMSE
    assert -1e-2 < mean <= 0
    assert f"{-mean:.3f}" in capsys.readouterr().out
    assert main(["run", "local", *SHORT, "--out", "y"]) == 0
    assert main(["report", "x", "y"]) == 2
    assert "scored by accuracy and rmse: give runs of one measure" in capsys.readouterr().err


@pytest.mark.slow
def test_ratings_texts_and_series_choose_their_models():
    rng = np.random.default_rng(0)
    words = rng.integers(0, 30, (80, 8)).astype(np.int32)
    np.savez(
        "posts.npz",
        x_train=words,
        y_train=np.arange(80) % 2,
        vocabulary=[30],
        owners=np.arange(80) % 4,
    )
    pairs = np.stack([np.arange(80) % 4, np.arange(80) % 20], axis=1)
    np.savez(
        "stars.npz",
        x_train=pairs,
        y_train=rng.random(80),
        vocabulary=[4, 20],
        owners=np.arange(80) % 4,
    )
    np.savez(
        "sensor.npz",
        x_train=rng.normal(size=(80, 12, 3)),
        y_train=np.arange(80) % 2,
        owners=np.arange(80) % 4,
    )
    chosen = {"posts": "textcnn", "stars": "mf", "sensor": "conv1d"}
    for name, model in (*chosen.items(), ("posts", "lstm"), ("sensor", "lstm")):
        out = f"{name}-{model}"
        options = [
            "--dataset",
            name,
            *DATA,
            "--rounds",
            "1",
            "--local-steps",
            "1",
            "--batch-size",
            "4",
        ]
        if chosen[name] != model:
            options += ["--model", model]
        assert main(["run", "fedavg", *options, "--out", out]) == 0
        assert load(f"{out}/config.json")["model"] == model


def npz(name, **changes):
    rng = np.random.default_rng(0)
    arrays = {"x_train": rng.random((40, 4), np.float32), "y_train": np.arange(40) % 4}
    arrays |= {"x_test": rng.random((8, 4), np.float32), "y_test": np.arange(8) % 4} | changes
    np.savez(name, **arrays)


@pytest.mark.slow
def test_overwriting_replaces_the_run_and_touches_nothing_else():
    assert main(["run", "pfedgraph", *SHORT, "--out", "x"]) == 0
    Path("x/notes.txt").write_text("mine")
    assert main(["run", "fedavg", *SHORT, "--rounds", "1", "--out", "x", "--overwrite"]) == 0
    assert load("x/summary.json")["algorithm"] == "fedavg"
    assert len(lines("x")) == 1
    assert Path("x/notes.txt").read_text() == "mine"


@pytest.mark.slow
def test_overwriting_leaves_nothing_of_another_kind_of_results(capsys):
    assert main(["run", "fedprox", *SHORT, "--keep", "checkpoints=1", "--out", "x"]) == 0
    both = ["compare", "--algorithms", "local", "fedavg", *SHORT, "--out", "x", "--overwrite"]
    assert main(both) == 0
    assert not Path("x/config.json").exists()
    assert not list(Path("x").glob("checkpoints/*"))
    capsys.readouterr()
    assert main(["report", "x"]) == 0
    assert "fedprox" not in capsys.readouterr().out
    assert main(["run", "scaffold", *SHORT, "--out", "x", "--overwrite"]) == 0
    assert not Path("x/configs.json").exists()
    assert not Path("x/comparison.json").exists()


def test_version_is_that_of_the_package(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"jaxfl {jaxfl.__version__}\n"


def test_without_a_command_the_program_shows_its_help(capsys):
    with pytest.raises(SystemExit) as stopped:
        main([])
    assert stopped.value.code == 0
    shown = capsys.readouterr()
    for name in ("run", "compare", "cite", "--version"):
        assert name in shown.out
    assert shown.err == ""


@pytest.mark.slow
def test_the_package_runs_as_a_module():
    done = subprocess.run(
        [sys.executable, "-m", "jaxfl", "run", "nothing"],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(Path(jaxfl.__file__).parent.parent)},
    )
    assert done.returncode == 2
    assert done.stderr.startswith("jaxfl: unknown algorithm 'nothing'")


@pytest.mark.slow
def test_the_program_as_a_process():
    """A call from a shell ends with exit code 2 and the message, without a traceback."""
    program = [sys.executable, "-c", "import sys, jaxfl.cli; sys.exit(jaxfl.cli.main())"]
    done = subprocess.run(
        [*program, "run", "nothing"], capture_output=True, text=True, env=os.environ
    )
    assert done.returncode == 2
    assert done.stderr.startswith("jaxfl: unknown algorithm 'nothing'")
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_parts_of_the_model_with_their_own_weights_are_each_stored_and_drawn(monkeypatch):
    """A personal head is the identity there."""

    def with_parts(task):
        plain = fedper(task)

        def round(key, state, cohort):
            state, info = plain.round(key, state, cohort)
            body = info.weights["body"] if isinstance(info.weights, dict) else info.weights
            return state, info._replace(weights={"body": body, "head": jnp.eye(len(body))})

        return plain._replace(round=round)

    with_parts.__module__ = fedper.__module__
    monkeypatch.setitem(ALGORITHMS, "fedper", with_parts)
    options = ["--clients", "5", "--keep", "checkpoints=1"]
    assert main(["run", "fedper", *SHORT, *options, "--out", "x"]) == 0
    with np.load("x/graph.npz") as graph:
        assert sorted(graph.files) == ["ids", "weights_body", "weights_head"]
        np.testing.assert_array_equal(graph["weights_head"], [np.eye(5)] * 2)
        assert graph["weights_body"].shape == (2, 5, 5)
    Path("x/summary.json").unlink()
    assert main(["resume", "x"]) == 0
    with np.load("x/graph.npz") as graph:
        assert graph["weights_body"].shape == (2, 5, 5)
    assert main(["compare", "--algorithms", "fedper", "local", *SHORT, "--out", "y"]) == 0
    for picture in ("x/graph.png", "y/fedper/graph.png", "y/graphs.png"):
        assert Path(picture).read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_a_config_of_an_earlier_version_still_loads():
    """Its fields stand in another order, and it leaves the local steps open."""
    earlier = {
        **{"dataset": "digits", "data_dir": None, "partition": "iid", "classes_per_client": 2},
        **{"beta": 0.5, "topology": 5, "clients": 3, "max_examples": None, "val": 0.2},
        **{"concept": None, "concept_groups": 4, "feature_noise": 0.1, "merge_test": False},
        **{"test": "reweighted", "feedback": "val", "participation": 1, "rounds": 1},
        **{"model": "linear", "augment": "none", "local_steps": None, "local_epochs": 1},
        **{"batch_size": 64, "lr": 0.01, "momentum": 0.9, "weight_decay": 1e-05, "attack": None},
        **{"attack_ratio": 0.4, "attack_seed": 0, "clip": None, "noise": 0.0},
        **{"attack_scale": None, "defend": []},
        **{"example_clip": None, "example_noise": 0.0, "delta": 1e-05, "compress": "none"},
        **{"top_k": 0.1, "eval_every": 2, "eval_on": "all", "score_after": "fine_tuned"},
        **{"pixels": "channels", "checkpoint_every": None, "keep_checkpoints": 2},
        **{"test_fraction": 0.2},
        **{"fail_on_divergence": False, "seed": 0, "seeds": 1, "chunk": "auto"},
        **{"compute": "float32", "devices": 1, "algorithm": "ditto", "hyper": {"lam": 1}},
    }
    Path("c.json").write_text(json.dumps(earlier))
    assert main(["run", "--config", "c.json", "--out", "x"]) == 0
    content = load("x/config.json")
    assert {name: content[name] for name in earlier} == earlier
    # Options that came later have their defaults.
    defaults = json.loads(json.dumps(dataclasses.asdict(Config())))
    assert content == defaults | earlier


@pytest.mark.slow
def test_options_of_a_file_that_lose_their_effect_are_left_out():
    config = {"algorithm": "local", "partition": "dirichlet", "beta": 0.1, "clients": 3}
    config |= {"attack": "gauss", "attack_ratio": 0.3, "rounds": 1, "local_steps": 1}
    Path("c.json").write_text(json.dumps(config | {"top_k": 0.5}))
    assert main(["run", "--config", "c.json", "--partition", "iid", "--out", "x"]) == 0
    found = load("x/config.json")
    assert (found["beta"], found["top_k"], found["attack_ratio"]) == (0.5, 0.1, 0.3)


@pytest.mark.slow
def test_named_malicious_clients_and_drawn_ones_replace_each_other():
    config = {"algorithm": "local", "clients": 4, "partition": "iid", "attack": "gauss"}
    config |= {"rounds": 1, "local_steps": 1, "model": "linear"}
    Path("drawn.json").write_text(json.dumps(config | {"attack_ratio": 0.5, "attack_seed": 3}))
    Path("named.json").write_text(json.dumps(config | {"malicious": [1, 2]}))
    assert main(["run", "--config", "drawn.json", "--attack", ":clients=0+3", "--out", "x"]) == 0
    found = load("x/config.json")
    assert (found["malicious"], found["attack_ratio"], found["attack_seed"]) == ([0, 3], 0.4, 0)
    with np.load("x/clients.npz") as clients:
        assert np.flatnonzero(clients["malicious"]).tolist() == [0, 3]
        assert np.isnan(clients["deployed_test"]).nonzero()[1].tolist() == [0, 3]
    command = parse(["run", "--config", "named.json", "--attack", ":ratio=0.5"])
    assert (command.malicious, command.attack_ratio) == ((), 0.5)
    assert parse(["run", "--config", "named.json"]).malicious == (1, 2)


def shell(line, **environment):
    """A command line of the shell, where $J stands for jaxfl."""
    program = f"{sys.executable} -c 'import sys, jaxfl.cli; sys.exit(jaxfl.cli.main())'"
    return subprocess.run(
        ["/bin/sh", "-c", line.replace("$J", program)],
        capture_output=True,
        text=True,
        env=os.environ | environment,
    )


@pytest.mark.slow
def test_nobody_has_to_read_the_output_to_its_end():
    done = shell("$J run --help | true; $J list | true")
    assert done.returncode == 0
    assert done.stderr == ""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"JAX_PLATFORMS": "cuda"}, "jaxfl: JAX cannot start on cuda ("),
        ({"JAX_DISABLE_JIT": "1"}, "jaxfl: JAX_DISABLE_JIT is set, and a run is a compiled"),
    ],
    ids=["JAX_PLATFORMS", "JAX_DISABLE_JIT"],
)
def test_jax_that_cannot_run_is_one_line(environment, message):
    done = shell("$J run fedavg --out x", **environment)
    assert done.returncode == 2
    assert done.stderr.startswith(message)
    assert done.stderr.count("\n") == 1
    assert not Path("x").exists()


def test_a_run_that_is_refused_leaves_no_directory():
    assert main(["run", "fedavg", "--partition", ":classes=3"]) == 2
    assert not list(Path().iterdir())


def test_describe_takes_the_options_of_the_data_and_of_the_model_alone(capsys):
    with pytest.raises(SystemExit):
        main(["describe", "--help"])
    shown = capsys.readouterr().out
    assert "--partition" in shown
    assert "--seed " in shown
    assert "--model " in shown
    for option in ("lr", "rounds", "attack", "clip", "devices"):
        assert f"--{option} " not in shown
