"""Random combinations of options (fuzz.py), and what they found as fixed cases."""

import pytest
from fuzz import attempt, fuzz, write_data


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    write_data(folder)
    return folder


@pytest.mark.slow(seconds=100)
def test_every_combination_is_refused_in_one_line_or_gives_sound_results(tmp_path):
    found = fuzz(25, 0, tmp_path)
    assert found["wrong"] == 0
    # Not nearly all are refused. How many depends on the options that there are to draw from.
    assert found["finished"] >= 3


FOUND = [
    "run fedah --dataset labels --partition iid --clients 1 --rounds 1 --local-steps 1 "
    "--attack replacement --compress int8",
    # Its first state holds one array in two places.
    "run heurfedamp --dataset labels --partition iid --clients 5 --rounds 1 --local-steps 1",
]


@pytest.mark.slow
@pytest.mark.parametrize("line", FOUND)
def test_a_combination_that_once_went_wrong(line, data, tmp_path):
    arguments = [*line.split(), "--data-dir", str(data)]
    assert attempt(arguments, tmp_path / "x") in ("refused", "finished")
