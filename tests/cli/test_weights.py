"""`--weight` of `jaxfl prepare csv` and `--class-weight`: weights from files to scores."""

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, balanced_accuracy_score

import jaxfl
from jaxfl.cli import main

PREPARE = ["prepare", "csv", "north.csv", "south.csv", "--target", "outcome", "--data-dir", "."]
DATA = ["--dataset", "sites", "--data-dir", "."]
RUN = [
    "--rounds",
    "8",
    "--local-steps",
    "20",
    "--lr",
    "0.05",
    "--model",
    "linear",
    "--devices",
    "1",
]


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Two sites whose outcome is rare and hangs weakly on a number; each row has a weight."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for site, rows in {"north": 300, "south": 160}.items():
        lines = ["age,weight,outcome"]
        for _ in range(rows):
            age = rng.normal()
            ill = rng.random() < 1 / (1 + np.exp(2.5 - 1.2 * age))
            lines.append(f"{age:.3f},{rng.exponential():.3f},{'ill' if ill else 'well'}")
        Path(f"{site}.csv").write_text("\n".join(lines))
    return tmp_path


def words(text):
    return " ".join(text.split())


@pytest.mark.slow
def test_rows_of_csv_files_have_weights(here, capsys):
    assert main([*PREPARE, "--weight", "weight", "--name", "sites"]) == 0
    assert "weighs the rows in losses and scores; models do not see it" in words(
        capsys.readouterr().out
    )
    source = jaxfl.data.load("sites", ".")
    assert source.feature_names == ("age",)
    files = [Path(f"{site}.csv") for site in ("north", "south")]
    lines = [line for file in files for line in file.read_text().splitlines()[1:]]
    weights = [float(line.split(",")[1]) for line in lines]
    np.testing.assert_array_equal(source.weights, np.float32(weights))
    assert main(["describe", *DATA]) == 0
    assert "weights of examples" in capsys.readouterr().out
    assert main(["run", "fedavg", *DATA, *RUN, "--rounds", "1", "--out", "run"]) == 0
    run = jaxfl.load("run")
    for client, name in enumerate(run.names):
        x, y, weight = run.test(name)
        assert set(weight) <= set(source.weights)
        score = accuracy_score(y, run.predict(name, x), sample_weight=weight)
        np.testing.assert_allclose(run.clients["deployed_test"][-1][client], score, atol=1e-6)
    # How many examples a client has, by which the server weighs it, is a matter of their number.
    np.testing.assert_array_equal(run.clients["sizes"], [240, 128])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--weight", "heft"], "heft"),
        (["--weight", "outcome"], "is the target"),
        (["--weight", "word"], "column word holds numbers, and 'few'"),
        (["--weight", "gap"], "the weight gap is '' in line 2 of north.csv"),
        (["--weight", "minus"], "the weight minus is '-1' in line 2 of north.csv"),
        (["--weight", "zero"], "weights of data set sites are all 0"),
    ],
)
def test_columns_that_are_no_weights_are_refused(here, capsys, options, message):
    extra = {"word": "few", "gap": "", "minus": "-1", "zero": "0"}
    for site in ("north", "south"):
        head, *lines = Path(f"{site}.csv").read_text().splitlines()
        rows = [f"{line},{','.join(extra.values())}" for line in lines]
        Path(f"{site}.csv").write_text("\n".join([f"{head},{','.join(extra)}", *rows]))
    assert main([*PREPARE, "--name", "sites", *options]) == 2
    assert message in words(capsys.readouterr().err)
    assert not Path("sites.npz").exists()


def test_windows_and_clipped_examples_take_no_weights(here, capsys):
    windows = ["prepare", "windows", *PREPARE[2:], "--name", "sites", "--steps", "2"]
    assert main([*windows, "--weight", "weight"]) == 2
    assert "an example is a window of 2 rows" in words(capsys.readouterr().err)
    assert main([*PREPARE, "--weight", "weight", "--name", "sites"]) == 0
    assert main(["run", "fedavg", *DATA, "--example-clip", "1", "--out", "run"]) == 2
    assert "the examples of these data have weights" in words(capsys.readouterr().err)
    clipped = ["run", "fedavg", "--class-weight", "balanced", "--example-clip", "1"]
    assert main([*clipped, "--out", "run"]) == 2
    assert "--example-clip" in capsys.readouterr().err
    assert not Path("run").exists()


@pytest.mark.slow
def test_numbers_have_no_class_weights(here, capsys):
    options = ["--target", "age", "--name", "sites"]
    assert main([*PREPARE, *options]) == 0
    assert main(["run", "local", *DATA, "--class-weight", "balanced", "--out", "run"]) == 2
    assert "--class-weight balanced balances labels" in words(capsys.readouterr().err)


@pytest.mark.slow(seconds=20)
def test_balanced_classes_raise_the_balanced_accuracy_of_rare_labels(here):
    assert main([*PREPARE, "--leave-out", "weight", "--name", "sites"]) == 0
    scores = {}
    for name, options in {"plain": [], "balanced": ["--class-weight", "balanced"]}.items():
        metrics = ["--metric", "balanced_accuracy", "accuracy"]
        assert main(["run", "fedavg", *DATA, *RUN, *metrics, *options, "--out", name]) == 0
        run = jaxfl.load(name)
        each = []
        for client in run.names:
            x, y, weight = run.test(client)
            assert weight.tolist() == [1] * len(y)  # scores stay as they are
            each.append(balanced_accuracy_score(y, run.predict(client, x)))
        np.testing.assert_allclose(run.clients["deployed_test"][-1], each, atol=1e-6)
        scores[name] = np.mean(each)
    assert scores["balanced"] > scores["plain"] + 0.1
    plain, balanced = (json.loads(Path(f"{name}/config.json").read_text()) for name in scores)
    assert (plain["class_weight"], balanced["class_weight"]) == (None, "balanced")


@pytest.mark.slow(seconds=20)
def test_class_weights_on_disk_are_those_in_memory(here, capsys):
    assert main([*PREPARE, "--weight", "weight", "--name", "sites"]) == 0
    options = [*DATA, *RUN, "--rounds", "2", "--participation", "1.0"]
    options += ["--keep", "models=none", "--eval-every", "2"]
    balanced = [*options, "--class-weight", "balanced"]
    assert main(["run", "fedavg", *balanced, "--out", "memory"]) == 0
    assert main(["run", "fedavg", *balanced, "--store", "store", "--out", "disk"]) == 0
    memory, disk = (jaxfl.load(name).clients["deployed_test"] for name in ("memory", "disk"))
    np.testing.assert_allclose(memory, disk, atol=1e-6)
    capsys.readouterr()
    assert main(["run", "fedavg", *options, "--store", "store", "--out", "other"]) == 2
    assert "class_weight differ" in words(capsys.readouterr().err)
