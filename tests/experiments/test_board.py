"""The board: rows that are wrong are refused, and the page shows what the rows say."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from experiments.board import other_tool, page, rows, settings
from experiments.board.__main__ import PAGE, ROWS, run
from jaxfl.algorithms import ALGORITHMS
from jaxfl.core.errors import InputError
from jaxfl.experiment import execute

ROOT = Path(__file__).parents[2]
RIGHT = 3


@pytest.fixture(scope="module")
def clients():
    return settings.clients_of("rotation")


def row(clients, by="a tool 1.0", **changes):
    """A row in which every client has three right answers, deployed, and all, fine-tuned."""
    found = {
        "deployed": np.round(RIGHT / clients.tests, 4).tolist(),
        "fine_tuned": np.ones(clients.tests.shape).tolist(),
        "floats": 12,
        "gradients": 1000,
        "group_agreement": 0.5,
    }
    named = {"format": 1, "method": "mine", "by": by, "link": "https://example.org"}
    return named | {"settings": {"rotation": found | changes}}


def test_a_sound_row_is_read(clients, tmp_path):
    file = tmp_path / "row.json"
    file.write_text(json.dumps(row(clients)))
    assert rows.read_row(file)["method"] == "mine"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"deployed": [[99.2] * 10] * 3},
            r"rotation: deployed of seed 0, client 0 is 99.2:",
        ),
        ({"deployed": [[0.5] * 9] * 3}, r"deployed: expected finite numbers \[3, 10\]"),
        ({"deployed": [[0.123456] * 10] * 3}, r"expected a share of its \d+ test examples"),
        ({"fine_tuned": [[float("nan")] * 10] * 3}, "fine_tuned: expected finite"),
        ({"fine_tuned": None}, "fine_tuned: expected finite"),
        ({"fine_tuned": [["0.5"] * 10] * 3}, "fine_tuned: expected finite"),
        ({"fine_tuned": [[True] * 10] * 3}, "fine_tuned: expected finite"),
        ({"fine_tuned": [[1, True] * 5] * 3}, "fine_tuned: expected finite"),
        ({"fine_tuned": [[1] * 10, [1] * 9, [1] * 10]}, "fine_tuned: expected finite"),
        ({"fine_tuned": [[10**400] * 10] * 3}, "fine_tuned: expected finite"),
        ({"floats": 10**400}, "floats is 1000"),
        ({"floats": -1}, "floats is -1: expected a number of at least 0"),
        ({"gradients": True}, "gradients is True"),
        ({"group_agreement": 2}, "group_agreement is 2: expected a number from -1 to 1"),
        ({"group_agreement": [1, 1, 1]}, r"group_agreement is \[1, 1, 1\]"),
    ],
)
def test_numbers_that_cannot_be_are_refused(clients, changes, message):
    with pytest.raises(InputError, match=message):
        rows.check_row(row(clients, **changes), "row.json")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": 2}, "format is 2: this version reads 1"),
        ({"method": "a | b"}, "method has one of"),
        ({"method": ""}, "method is '': expected a text"),
        ({"link": "javascript:alert(1)"}, "expected the address of the code"),
        ({"link": None}, "link is None"),
        ({"settings": {}}, "settings is dict: expected an object"),
        ({"settings": {"rotations": {}}}, "rotation"),
        ({"settings": {"rotation": 3}}, "rotation is no object"),
    ],
)
def test_rows_that_are_no_rows_are_refused(clients, changes, message):
    with pytest.raises(InputError, match=message):
        rows.check_row(row(clients) | changes, "row.json")


def test_a_row_of_jaxfl_needs_no_link(clients):
    ours = row(clients, by="jaxfl 1.0")
    del ours["link"]
    rows.check_row(ours, "row.json")
    assert page.title(ours) == "`mine`"


@pytest.mark.slow
def test_groups_are_asked_for_where_there_are_some(clients):
    name = "Dirichlet .1"
    found = row(settings.clients_of(name))["settings"]["rotation"]
    with pytest.raises(InputError, match="there are no groups here"):
        rows.check_row(row(clients) | {"settings": {name: found}}, "row.json")


def test_the_page_has_the_best_first_and_means_of_who_takes_part(clients):
    better = row(clients, deployed=np.where(clients.unseen, 0.0, np.ones((3, 10))).tolist())
    lines = page.page([row(clients), better | {"method": "best"}]).splitlines()
    (first, second) = (line for line in lines if line.startswith("| [`") and "1,000" in line)
    assert first.startswith("| [`best`](https://example.org), a tool 1.0 | 100.0 ±0.0 | 100.0 |")
    taking = 100 * (RIGHT / clients.tests)[:, ~clients.unseen]
    expected = f"{taking.mean():.1f} ±{taking.mean(axis=1).std(ddof=1):.1f}"
    assert [cell.strip() for cell in second.split("|")][2:] == [
        *(expected, f"{taking.min(axis=1).mean():.1f}", "100.0", "100.0", "12", "1,000", "0.50", "")
    ]
    with pytest.raises(InputError, match="two rows are named"):
        page.page([row(clients), row(clients)])


@pytest.mark.slow
def test_other_tools_get_the_examples_of_each_client(clients, tmp_path):
    paths = settings.write_data("rotation", tmp_path)
    assert [path.name for path in paths] == [f"rotation_{seed}.npz" for seed in range(3)]
    with np.load(paths[1], allow_pickle=False) as arrays:
        assert arrays["train_x"].shape[0] == len(arrays["unseen"]) == settings.CLIENTS
        assert arrays["train_x"].shape[:2] == arrays["train_y"].shape == arrays["train_mask"].shape
        assert (arrays["test_mask"].sum(axis=1) == clients.tests[1]).all()
        assert arrays["unseen"].sum() == 2
    with pytest.raises(InputError, match="there already"):
        settings.write_data("rotation", tmp_path)
    with pytest.raises(InputError, match="give another directory with --out"):
        settings.write_data("rotation", paths[0])


@pytest.mark.slow(seconds=10)
def test_from_the_shell_a_wrong_file_is_one_line_and_exit_code_2(tmp_path):
    file = tmp_path / "row.json"
    file.write_text("{")
    command = [sys.executable, "-m", "experiments.board", "check", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "row.json is not JSON" in done.stderr


def test_a_method_that_has_a_row_is_not_passed_over_in_silence(tmp_path, capsys):
    (tmp_path / "local.json").write_text("{}")
    run(("local",), tmp_path)
    assert "local has a row" in capsys.readouterr().out


@pytest.mark.slow
def test_the_page_names_the_best_rows_of_all_settings_first(clients):
    def whole(name, share):
        each = {}
        for setting in settings.SETTINGS:
            tests = settings.clients_of(setting).tests
            scores = (np.floor(share * tests) / tests).tolist()
            each[setting] = {"deployed": scores, "fine_tuned": scores, "floats": 1, "gradients": 1}
        return row(clients) | {"method": name, "settings": each}

    half, full = whole("half", 0.5), whole("full", 1.0)
    incomplete = row(clients, deployed=np.ones((3, 10)).tolist()) | {"method": "incomplete"}
    text = page.page([half, incomplete, full])
    first = "the best first: [`full`](https://example.org), a tool 1.0 100.0, [`half`]"
    assert first in " ".join(text.split())
    assert text.index("| [`full`]") < text.index("| [`half`]") < text.index("| [`incomplete`]")


def test_the_page_is_that_of_the_rows():
    kept = sorted(ROWS.glob("*.json"))
    assert PAGE.read_text() == page.page([rows.read_row(file) for file in kept])
    ours = {read["method"] for read in map(rows.read_row, kept) if "link" not in read}
    assert ours <= set(ALGORITHMS)


@pytest.mark.slow(seconds=30)
def test_the_example_of_another_tool_makes_a_sound_row(tmp_path):
    # With Dirichlet .1 some clients have one label alone.
    for name in ("rotation", "Dirichlet .1"):
        settings.write_data(name, tmp_path)
    other_tool.write_row(tmp_path)
    read = rows.read_row(tmp_path / "row.json")
    assert set(read["settings"]) == {"rotation", "Dirichlet .1"}
    # Trained on some hundred examples, ten classes.
    assert 0.5 < np.mean(read["settings"]["rotation"]["deployed"]) < 1
    with pytest.raises(InputError, match="has no setting"):
        other_tool.write_row(tmp_path / "empty")


@pytest.mark.slow(seconds=40)
def test_a_row_is_that_of_runs_from_the_command_line(monkeypatch, tmp_path):
    method = "pfedgraph"
    chosen = ("rotation", "Dirichlet .1")
    monkeypatch.setattr(rows, "SETTINGS", {name: settings.SETTINGS[name] for name in chosen})
    monkeypatch.setitem(settings.COMMON, "rounds", 2)
    monkeypatch.setitem(settings.COMMON, "local_steps", 3)
    made = rows.run_row(method)
    rows.check_row(made, "row.json")
    for name in chosen:
        out = tmp_path / name
        summary = execute(settings.config_of(name, algorithm=method), out)
        found = made["settings"][name]
        with np.load(out / "clients.npz", allow_pickle=False) as arrays:
            for stage in ("deployed", "fine_tuned"):
                np.testing.assert_allclose(found[stage], arrays[f"{stage}_test"][:, -1], atol=1e-5)
        assert found["gradients"] == 6
        assert found["floats"] == round((summary["up"] + summary["down"]) / 8)
        agreement = summary.get("graph", {}).get("group_agreement")
        assert found.get("group_agreement") == (agreement and round(agreement, 4))
