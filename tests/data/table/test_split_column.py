"""`--split` and `--no-scale` of `jaxfl prepare csv`: rows that test, numbers as they are."""

from pathlib import Path

import numpy as np
import pytest

from jaxfl.cli import main
from jaxfl.core.errors import InputError
from jaxfl.data import load
from jaxfl.data.table.prepare import prepare_csv
from jaxfl.data.table.summary import Choices
from jaxfl.experiment import load as load_run

CHOICES = Choices("ill", split="part")
FILES = [Path("north.csv"), Path("south.csv")]
DATA = ["--dataset", "sites", "--data-dir", "data"]


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Two sites, of whose 24 rows every third tests."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for file in FILES:
        rows = [
            f"{age:.1f},{row % 2},{'train' if row % 3 else 'test'}"
            for row, age in enumerate(rng.uniform(30, 90, 24))
        ]
        file.write_text("\n".join(["age,ill,part", *rows]))
    return tmp_path


@pytest.mark.slow
def test_rows_that_test_are_those_of_the_file_from_the_command_line_to_the_run(here, capsys):
    """Finds a column that is read and then lost on its way to the clients, or seen by models."""
    words = ["prepare", "csv", *map(str, FILES), "--target", "ill", "--split", "part"]
    assert main([*words, "--no-scale", "--name", "sites", "--data-dir", "data"]) == 0
    assert "Means and standard deviations" not in capsys.readouterr().out
    options = ["--rounds", "1", "--local-steps", "2", "--val", "0", "--out", "run"]
    assert main(["run", "fedavg", *DATA, *options]) == 0
    run = load_run("run")
    for file in FILES:
        cells = [line.split(",") for line in file.read_text().splitlines()[1:]]
        for part, examples in (("test", run.test(file.stem)), ("train", run.train(file.stem))):
            expected = sorted(float(age) for age, _, word in cells if word == part)
            np.testing.assert_array_equal(np.sort(examples.x[:, 0]), np.float32(expected))
    capsys.readouterr()
    assert main(["describe", *DATA, "--test-fraction", "0.3"]) == 2
    line = " ".join(capsys.readouterr().err.split())
    assert "--test-fraction is 0.3, and sites says which rows test: leave it out" in line


def test_numbers_stay_as_they_are_and_a_missing_one_is_zero(here):
    FILES[0].write_text(FILES[0].read_text() + "\n,1,train")
    found = prepare_csv(FILES, "data", Choices("ill", split="part", scale=False), name="sites")
    cells = [line.split(",")[0] for file in FILES for line in file.read_text().splitlines()[1:]]
    expected = [[float(cell or 0), not cell] for cell in cells]
    source = load("sites", "data")
    np.testing.assert_array_equal(source.x_train, np.float32(expected))
    assert found.columns["age"] == "number; 2% missing: 0, and a feature that says so"
    assert found.columns["part"] == "says which rows test; models do not see it"


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("dev", "the split part is 'dev' in line 26 of south.csv: expected train or test"),
        ("", "the split part is missing in 1 of 25 rows, first in line 26 of south.csv"),
    ],
)
def test_another_word_than_train_and_test_is_one_line(here, cell, message):
    FILES[1].write_text(FILES[1].read_text() + f"\n50,1,{cell}")
    with pytest.raises(InputError, match=message) as caught:
        prepare_csv(FILES, "data", CHOICES, name="sites")
    assert "\n" not in str(caught.value)
    assert not Path("data").exists()


def test_a_split_of_rows_is_not_one_of_windows(here):
    with pytest.raises(InputError, match="--split part divides rows, and an example is a window"):
        prepare_csv(FILES, "data", Choices("ill", split="part", steps=4), name="sites")
