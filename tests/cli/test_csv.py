"""From the CSV files of sites to predictions of new rows, on the command line."""

import csv
import json
import os
import re
from pathlib import Path

import numpy as np
import pandas
import pytest

import jaxfl
from jaxfl.cli import main
from jaxfl.cli.predict import Examples, score_of
from jaxfl.core.errors import InputError
from jaxfl.data import natural
from jaxfl.simulation.metrics import METRICS

PREPARE = ["prepare", "csv", "sites/north.csv", "sites/south.csv", "--data-dir", "data"]
DATA = ["--dataset", "sites", "--data-dir", "data"]
SHORT = ["--rounds", "1", "--local-steps", "2", "--model", "linear", "--score-after", "none"]


def write_sites():
    Path("sites").mkdir()
    rng = np.random.default_rng(0)
    for site, rows in {"north": 40, "south": 25}.items():
        lines = ["patient,age,ward,cost,outcome"]
        for row in range(rows):
            age = "" if row % 9 == 0 else f"{rng.normal(60, 10):.1f}"
            ward = ["ICU", "surgery"][row % 2]
            lines.append(f"{site[0]}{row},{age},{ward},{100 + row},{['ill', 'well'][row % 5 > 0]}")
        Path(f"sites/{site}.csv").write_text("\n".join(lines))


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_sites()
    return tmp_path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the finished run of two sites, and one whose targets are numbers."""
    path = tmp_path_factory.mktemp("csv")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path)
        write_sites()
        assert main([*PREPARE, "--target", "outcome", "--id", "patient"]) == 0
        options = ["--target", "cost", "--id", "patient", "--name", "costs"]
        assert main([*PREPARE, *options]) == 0
        assert main(["run", "fedavg", *DATA, *SHORT, "--out", "run"]) == 0
        costs = ["--dataset", "costs", "--data-dir", "data"]
        assert main(["run", "local", *costs, *SHORT, "--out", "costs"]) == 0
    return path


def words(text):
    return " ".join(text.split())


def test_each_column_is_told_and_describe_has_a_row_for_each_site(here, capsys):
    assert main([*PREPARE, "--target", "outcome", "--id", "patient"]) == 0
    shown = words(capsys.readouterr().out)
    assert "65 rows of 2 sites: north (40), south (25)" in shown
    assert "target, classes: ill (13), well (52)" in shown
    assert "each site's number, sum and sum of squares" in shown
    assert "--dataset sites --data-dir data" in shown
    assert main(["describe", *DATA, "--out", "who.csv"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"north\W+24\W+8\W+8\W+5 / 1 / 2\W+19 / 7 / 6\W", shown)
    assert re.search(r"south\W+15\W+5\W+5\W+3 / 1 / 1\W+12 / 4 / 4\W", shown)
    with open("who.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["client"] for row in rows] == ["north", "south"]
    assert [rows[0][name] for name in ("train", "ill test", "well train")] == ["24", "2", "19"]
    assert main(["describe", *DATA, "--split", "random", "--out", "other.csv"]) == 0
    assert Path("other.csv").read_text() != Path("who.csv").read_text()


def test_columns_are_described_by_site_and_nothing_is_written(here, capsys, monkeypatch):
    monkeypatch.delenv("JAXFL_DATA_DIR", raising=False)
    south = pandas.read_csv("sites/south.csv", dtype=str).drop(columns="ward").assign(extra="x")
    south.loc[:2, "cost"] = ["?", "unknown", "unknown"]
    south.to_csv("sites/south.csv", index=False)
    assert main(["prepare", "csv", "sites/north.csv", "sites/south.csv", "--describe"]) == 0
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    lines = [" ".join(re.sub("[│┃]", " ", line).split()) for line in shown.splitlines()]
    ages = pandas.read_csv("sites/north.csv")["age"]
    numbers = f"{ages.count()} {ages.isna().mean():.0%} {ages.median():g}"
    assert f"age north {numbers} {ages.min():g} to {ages.max():g}" in lines
    assert "ward north 40 0% ICU (20), surgery (20)" in lines
    assert "south 0 no such column" in lines
    assert "extra north 0 no such column" in lines
    assert "south 24 4% 113.5 103 to 124, unknown (2)" in lines
    assert "outcome north 40 0% ill (8), well (32)" in lines
    assert sorted(os.listdir()) == ["sites"]
    assert main(["prepare", "csv", "sites/north.csv", "--owner", "ward", "--describe"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"outcome\W+ICU\W+20\W+0%\W+ill \(4\), well \(16\)", shown)
    assert not re.search(r"^\W+ward", shown, re.MULTILINE)


def test_a_group_is_told_and_its_name_may_be_that_of_the_rows(here, capsys):
    # Each patient has two rows.
    for site in ("north", "south"):
        header, *lines = Path(f"sites/{site}.csv").read_text().splitlines()
        rows = [f"{site}{place // 2}" + line[line.index(",") :] for place, line in enumerate(lines)]
        Path(f"sites/{site}.csv").write_text("\n".join([header, *rows]))
    options = ["--target", "outcome", "--id", "patient"]
    assert main([*PREPARE, *options, "--group", "patient"]) == 0
    assert "patient" not in capsys.readouterr().err
    assert main(["describe", *DATA]) == 0
    assert re.search(r"groups\W+33\W", capsys.readouterr().out)
    assert main([*PREPARE, *options, "--overwrite"]) == 0
    assert "scores are too good; --group patient keeps them together" in capsys.readouterr().err


BAD = [
    ([*PREPARE], "jaxfl prepare csv needs --target COLUMN"),
    (["prepare", "csv", "--target", "y", "--data-dir", "data"], "no CSV file to read: name those"),
    ([*PREPARE, "--target", "outcom"], "--target outcom: there is no such column, did you mean"),
    ([*PREPARE, "--target", "outcome"], "column patient holds 65 different texts in 65 rows"),
    (
        [*PREPARE, "--target", "outcome", "--length", "9"],
        "--length: for text, not for jaxfl prepare csv",
    ),
    (
        ["prepare", "mnist", "sites/north.csv", "--target", "y", "--data-dir", "data"],
        "sites/north.csv: files are for csv, windows, text, images, not for jaxfl prepare mnist",
    ),
]


@pytest.mark.parametrize(("arguments", "message"), BAD)
def test_a_wrong_command_is_refused_in_one_line_and_writes_nothing(
    arguments, message, here, capsys
):
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not Path("data").exists()


@pytest.mark.slow(seconds=8)
def test_a_new_file_is_predicted_with_the_names_of_sites_rows_and_labels(
    folder, monkeypatch, capsys
):
    monkeypatch.chdir(folder)
    run = jaxfl.load("run")
    assert run.names == run.summary["clients"] == ["north", "south"]
    assert run.class_names == ["ill", "well"]
    lines = Path("sites/south.csv").read_text().splitlines()
    Path("new.csv").write_text("\n".join(lines))
    ask = ["predict", "run", "--client", "south", "--input", "new.csv"]
    assert main([*ask, "--proba", "--out", "p.csv", "--overwrite"]) == 0
    shown = capsys.readouterr().out
    with open("p.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["patient", "prediction", "p_ill", "p_well"]
    assert [row["patient"] for row in rows] == [f"s{row}" for row in range(25)]
    # The rows of the file are those that the run has seen.
    source = jaxfl.data.load("sites", "data")
    x = source.x_train[source.owners == 1]
    scores = run.scores("south", x)
    expected = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    chances = np.array([[float(row[f"p_{name}"]) for name in ("ill", "well")] for row in rows])
    np.testing.assert_allclose(chances, expected, atol=1e-5)
    np.testing.assert_allclose(run.predict(1, x, proba=True), expected, atol=1e-6)
    labels = [["ill", "well"].index(row["prediction"]) for row in rows]
    np.testing.assert_array_equal(labels, run.predict("south", x))
    right = np.mean(np.array(labels) == source.y_train[source.owners == 1])
    assert f"accuracy: {right:.4f}" in shown
    assert main(["predict", "run", "--input", "new.csv"]) == 0
    assert "that of north, the first client (--client names another)" in capsys.readouterr().err
    # Without targets and ids there is no score, and rows are named by their lines.
    ask = ["predict", "run", "--client", "1", "--input", "rest.csv", "--out", "q.csv"]
    Path("rest.csv").write_text("\n".join(",".join(line.split(",")[1:3]) for line in lines))
    assert main(ask) == 2
    assert "rest.csv lacks cost: there is no such column" in capsys.readouterr().err
    Path("rest.csv").write_text("\n".join(",".join(line.split(",")[3:0:-1]) for line in lines))
    assert main(ask) == 0
    assert "accuracy" not in capsys.readouterr().out
    assert Path("q.csv").read_text().splitlines()[:2] == [
        "line,prediction",
        f"2,{rows[0]['prediction']}",
    ]
    Path("new.xlsx").write_bytes(b"PK\x03\x04workbook")
    assert main(["predict", "run", "--client", "1", "--input", "new.xlsx"]) == 2
    assert "is a workbook or an archive, no text: save it as CSV" in capsys.readouterr().err
    summary = Path("run/summary.json")
    content = summary.read_text()
    for change, message in (
        ({"clients": ["south"]}, "has 1 names of 2 clients"),
        ({"inputs": run.summary["inputs"] | {"classes": 3}}, "other classes than its models"),
    ):
        summary.write_text(json.dumps(json.loads(content) | change))
        assert main(["predict", "run", "--client", "1", "--input", "new.csv"]) == 2
        assert message in capsys.readouterr().err
    summary.write_text(content)
    for client in ("sout", "2", "-1", ""):
        assert main(["predict", "run", f"--client={client}", "--input", "new.csv"]) == 2
        assert "client is" in capsys.readouterr().err


@pytest.mark.slow(seconds=8)
def test_the_test_rows_of_a_client_come_back_and_give_its_score(folder, monkeypatch):
    monkeypatch.chdir(folder)
    run = jaxfl.load("run")
    for client, name in enumerate(run.names):
        x, y, weight = run.test(name)
        assert len(y) == [8, 5][client]
        score = np.average(run.predict(name, x) == y, weights=weight)
        np.testing.assert_allclose(score, run.clients["deployed_test"][-1][client], atol=1e-6)
    source = jaxfl.data.load("sites", "data")
    rows = natural(source.owners)[0]
    known = {tuple(row) for row in source.x_train[rows].tolist()}
    assert {tuple(row) for row in run.test(0).x.tolist()} <= known
    content = Path("data/sites.npz").read_bytes()
    main([*PREPARE, "--target", "outcome", "--id", "patient", "--leave-out", "age", "--overwrite"])
    with pytest.raises(InputError, match="is not what it was in the run"):
        jaxfl.load("run").test(0)
    Path("data/sites.npz").write_bytes(content)


def test_new_examples_are_scored_by_the_weights_of_their_rows():
    y = np.array([0, 1, 1])
    new = Examples(None, y, "line", [], weights=np.array([1.0, 2.0, 5.0]))
    outputs = np.eye(2)[[0, 1, 0]]
    score = score_of(METRICS["accuracy"], outputs, outputs.argmax(axis=1), new, 1.0)
    assert score == 3 / 8
    nothing = new._replace(weights=np.zeros(3))
    assert np.isnan(score_of(METRICS["accuracy"], outputs, y, nothing, 1.0))


@pytest.mark.slow(seconds=8)
def test_targets_that_the_run_cannot_have_are_refused(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    x, y, _ = jaxfl.load("run").test("north")
    for wrong in (2, -1, 0.5, np.nan):
        np.savez("wrong.npz", x=x, y=np.where(np.arange(len(y)) == 1, wrong, y))
        assert main(["predict", "run", "--client", "north", "--input", "wrong.npz"]) == 2
        assert "expected labels from 0 to 1, or no y" in capsys.readouterr().err


@pytest.mark.slow(seconds=8)
def test_numbers_are_predicted_in_their_own_unit(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    ask = ["predict", "costs", "--client", "north", "--input", "sites/north.csv"]
    assert main([*ask, "--out", "c.csv", "--overwrite"]) == 0
    shown = capsys.readouterr().out
    values = np.loadtxt("c.csv", delimiter=",", skiprows=1, usecols=1)
    true = 100 + np.arange(40)
    assert f"RMSE: {np.sqrt(np.mean((values - true) ** 2)):.3f}"[:-1] in shown
    assert 80 < values.mean() < 160
    assert main([*ask, "--proba"]) == 2
    assert "which have no probabilities" in capsys.readouterr().err
