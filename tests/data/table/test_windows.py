"""Windows of the rows of CSV files, beside NumPy's sliding windows and a loop over the rows."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from jaxfl.core.errors import InputError
from jaxfl.data.table.prepare import prepare_csv
from jaxfl.data.table.read import read_sheet
from jaxfl.data.table.schema import Schema, from_json, to_json
from jaxfl.data.table.summary import Choices
from jaxfl.data.table.windows import cut, examples

pytestmark = pytest.mark.filterwarnings("ignore:.* of 2 sites have fewer than 10 windows")
LINES = ["trial,force,state"]
ROWS = [(trial, 10.0 * trial + t, "ab"[t > 3]) for trial in (1, 2) for t in range(7)]
LINES += [f"{trial},{force},{state}" for trial, force, state in ROWS]


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("north.csv").write_text("\n".join(LINES))
    Path("south.csv").write_text("\n".join(LINES[:1] + LINES[8:]))
    return [Path("north.csv"), Path("south.csv")]


def prepared(files, **changes):
    choices = Choices("state", **{"series": "trial", "steps": 3, **changes})
    return prepare_csv(files, "data", choices, name="force", overwrite=True)


def test_windows_of_one_recording_are_numpys():
    expected = np.lib.stride_tricks.sliding_window_view(np.arange(11), 4)
    for stride in (1, 3, 4, 9):
        np.testing.assert_array_equal(cut(["r"] * 11, 4, stride), expected[::stride])
    assert cut(["r"] * 3, 4, 1).shape == (0, 4)


def test_no_window_has_rows_of_two_recordings_whose_rows_may_alternate():
    recordings = [row % 2 for row in range(10)]
    windows = cut(recordings, 2, 2)
    assert windows.tolist() == [[0, 2], [4, 6], [1, 3], [5, 7]]


def test_examples_are_windows_of_scaled_rows_with_their_most_frequent_label(files):
    found = prepared(files)
    assert found.sites == {"north": 4, "south": 2}
    with np.load(found.file) as data:
        x, y, owners = data["x_train"], data["y_train"], data["owners"]
        assert data["feature_names"].tolist() == ["force"]
    forces = np.array([force for _, force, _ in ROWS] + [force for _, force, _ in ROWS[7:]])
    scaled = (forces - forces.mean()) / forces.std()
    firsts = [0, 3, 7, 10, 14, 17]
    np.testing.assert_allclose(x[..., 0], [scaled[row : row + 3] for row in firsts], rtol=1e-5)
    states = [state for _, _, state in ROWS + ROWS[7:]]
    most = [Counter(states[row : row + 3]).most_common(1)[0][0] for row in firsts]
    assert ["ab"[label] for label in y] == most
    assert owners.tolist() == [0, 0, 0, 0, 1, 1]


def test_a_number_is_that_of_the_last_step(files):
    choices = Choices("force", series="trial", steps=3, task="regression")
    found = prepare_csv(files, "data", choices, name="state")
    with np.load(found.file) as data:
        x, y = data["x_train"], data["y_train"]
        assert data["feature_names"].tolist() == ["state=a", "state=b"]
    target = found.schema.target
    last = target.mean + target.deviation * y
    np.testing.assert_allclose(last, [12, 15, 22, 25, 22, 25], rtol=1e-5)
    np.testing.assert_array_equal(x[1], [[1, 0], [0, 1], [0, 1]])


def test_a_new_file_becomes_windows_by_the_kept_schema(files):
    found = prepared(files)
    schema = from_json(found.file.with_suffix(".json").read_text())
    assert schema == found.schema
    x, y, rows = examples(schema, read_sheet(Path("south.csv")))
    assert rows.tolist() == [0, 3]
    with np.load(found.file) as data:
        np.testing.assert_array_equal(x, data["x_train"][4:])
        np.testing.assert_array_equal(y, data["y_train"][4:])
    Path("new.csv").write_text("trial,force\n" + "\n".join(f"1,{t}" for t in range(5)))
    assert examples(schema, read_sheet(Path("new.csv"))).y is None


def test_windows_that_overlap_are_warned_of(files):
    with pytest.warns(UserWarning, match="share steps and scores are too good"):
        assert prepared(files, stride=2).sites == {"north": 6, "south": 3}


def test_no_window_has_rows_of_two_groups_and_those_of_one_stay_together(files):
    with pytest.warns(UserWarning, match=r"1 of 2 values of trial .* '2' \(north, south\)"):
        found = prepared(files, series=None, group="trial", stride=2)
    with np.load(found.file) as data:
        assert data["groups"].tolist() == [0, 0, 0, 1, 1, 1, 1, 1, 1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps": 0}, "--steps is 0: expected 1 or more"),
        ({"stride": -1}, "--stride is -1: expected 1 or more"),
        ({"steps": 8}, "north.csv holds no 8 steps of one recording"),
        ({"steps": 7}, "state is in no window of 7 steps most often b"),
        ({"series": "when"}, "--series when: there is no such column"),
        ({"series": "state"}, "--series state is the target"),
    ],
)
def test_sizes_that_give_no_windows_are_refused(files, changes, message):
    with pytest.raises(InputError, match=message):
        prepare_csv(files, "data", Choices("state", **{"series": "trial", "steps": 3, **changes}))
    assert not Path("data").exists()


def test_a_file_without_the_recordings_is_refused(files):
    found = prepared(files)
    Path("new.csv").write_text("force\n" + "\n".join(map(str, range(5))))
    with pytest.raises(InputError, match=r"new.csv lacks trial: there is no such column"):
        examples(found.schema, read_sheet(Path("new.csv")))


@pytest.mark.parametrize("change", [{"steps": -1}, {"steps": 3, "stride": 0}, {"steps": "3"}])
def test_a_damaged_schema_is_refused(files, change):
    schema: Schema = prepared(files).schema
    damaged = {**json.loads(to_json(schema)), **change}
    with pytest.raises(InputError, match="cannot be read"):
        from_json(json.dumps(damaged))


def dated(times, start="2026-03-01"):
    return [str(np.datetime64(start) + np.timedelta64(int(t), "h")) for t in times]


@pytest.mark.parametrize("word", [lambda times: [f"{t}.5" for t in times], dated])
def test_shuffled_rows_are_windows_in_the_order_of_time_and_none_crosses_a_gap(
    tmp_path, monkeypatch, word
):
    monkeypatch.chdir(tmp_path)
    # Rows 10 to 12 are missing in the first recording, row 20 in the second.
    kept = {1: [*range(10), *range(13, 30)], 2: [*range(20), *range(21, 30)]}
    rows = [
        f"{trial},{when},{trial * 100 + t},{'ab'[t > 14]}"
        for trial, times in kept.items()
        for t, when in zip(times, word(times), strict=True)
    ]
    header = "trial,when,force,state"
    shuffled = np.random.default_rng(0).permutation(rows).tolist()
    for site in ("north", "south"):
        Path(f"{site}.csv").write_text("\n".join([header, *shuffled]))
    files = [Path("north.csv"), Path("south.csv")]
    with pytest.warns(UserWarning, match="has 2 gaps in when, the longest from .* no window"):
        found = prepared(files, order="when", steps=4)
    with np.load(found.file) as data:
        x, owners = data["x_train"][..., 0], data["owners"]
        assert data["feature_names"].tolist() == ["force"]
    (force,) = found.schema.columns
    windows = np.round(force.mean + force.deviation * x[owners == 0]).astype(int)
    pieces = [range(100, 110), range(113, 130), range(200, 220), range(221, 230)]
    expected = [
        piece[first : first + 4] for piece in pieces for first in range(0, len(piece) - 3, 4)
    ]
    assert sorted(map(tuple, windows.tolist())) == sorted(map(tuple, expected))


def test_rows_that_are_not_in_the_order_of_a_time_are_warned_of(files):
    header, *rows = LINES
    timed = [f"{header},time", *(f"{row},{place}" for place, row in enumerate(rows))]
    for file in files:
        file.write_text("\n".join([timed[0], *timed[:0:-1]]))
    with pytest.warns(UserWarning, match="not in the order of time: .* give --order time"):
        prepared(files, leave_out=("time",))
    prepared(files, order="time")


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("3", "time is '3' in line 2 of north.csv and in line 5 of north.csv: expected each"),
        ("", "the time time is missing in 1 of 14 rows"),
        ("noon", "the time time is 'noon' in line 2 of north.csv: expected numbers, or dates"),
    ],
)
def test_what_is_no_order_is_refused(files, cell, message):
    timed = [f"{row},{place}" for place, row in enumerate(LINES[1:])]
    timed[0] = f"{LINES[1]},{cell}"
    files[0].write_text("\n".join([f"{LINES[0]},time", *timed]))
    files[1].write_text("\n".join([f"{LINES[0]},time", *timed[7:]]))
    with pytest.raises(InputError, match=message):
        prepared(files, order="time")
