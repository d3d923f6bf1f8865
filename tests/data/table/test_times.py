"""Tables with times to an event: what they become, and what is refused or warned of."""

from pathlib import Path

import numpy as np
import pytest

from jaxfl.core.errors import InputError
from jaxfl.data import from_arrays, load
from jaxfl.data.federate import label_counts
from jaxfl.data.split import split_rows
from jaxfl.data.table.prepare import prepare_csv
from jaxfl.data.table.read import read_sheet
from jaxfl.data.table.schema import from_json
from jaxfl.data.table.summary import Choices
from jaxfl.data.table.windows import examples

TIMES = Choices("days", event="died")


def table(rows=20, seed=0):
    rng = np.random.default_rng(seed)
    return [
        f"{rng.integers(30, 80)},{rng.exponential(900):.1f},{row % 4 == 0:d}" for row in range(rows)
    ]


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for seed, site in enumerate(("north", "south")):
        Path(f"{site}.csv").write_text("\n".join(["age,days,died", *table(seed=seed)]))
    return [Path("north.csv"), Path("south.csv")]


def test_times_and_events_are_kept_as_they_are(files):
    found = prepare_csv(files, "data", TIMES, name="sites")
    source = load("sites", "data")
    cells = [row.split(",") for seed in (0, 1) for row in table(seed=seed)]
    expected = np.array([[float(days), float(died)] for _, days, died in cells], np.float32)
    np.testing.assert_array_equal(source.y_train, expected)
    assert source.survival
    assert source.outputs == 1
    assert source.feature_names == ("age",)
    schema = from_json(found.file.with_suffix(".json").read_text())
    _, y, _ = examples(schema, read_sheet(files[1]))
    np.testing.assert_array_equal(y, expected[20:])
    Path("new.csv").write_text("age\n50")
    assert examples(schema, read_sheet(Path("new.csv"))).y is None


def test_parts_have_events_in_proportion(files):
    prepare_csv(files, "data", TIMES, name="sites")
    source = load("sites", "data")
    rows = [np.flatnonzero(source.owners == owner) for owner in (0, 1)]
    assert source.split == "stratified"
    np.testing.assert_array_equal(label_counts(source, rows), [[15, 5], [15, 5]])
    splits = split_rows(source, rows, val=0.2, test_fraction=0.2)
    for part in splits:
        assert [source.y_train[rows, 1].sum() for rows in part] in ([3, 3], [1, 1])


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ("50,-1,1", "the time days is -1 in line 22 of south.csv: expected 0 or more"),
        ("50,12,2", "the event died is 2 in line 22 of .*: expected 1 .* and 2 event, subtract 1"),
        ("50,12,", "the event died is missing in 1 of 21 rows, first in line 22 of south.csv"),
        ("50,,1", "the target days is missing in 1 of 21 rows"),
        ("50,soon,1", "column days holds numbers, and 'soon' in line 22 of south.csv"),
    ],
)
def test_what_is_no_time_or_event_is_one_line(files, cells, message):
    files[1].write_text(files[1].read_text() + f"\n{cells}")
    with pytest.raises(InputError, match=message) as caught:
        prepare_csv(files, "data", TIMES, name="sites")
    assert "\n" not in str(caught.value)
    assert not Path("data").exists()


def test_sites_without_events_and_tables_of_events_alone_are_warned_of(files):
    text = files[1].read_text()
    files[1].write_text(text.replace(",1\n", ",0\n"))
    with pytest.warns(UserWarning, match="1 of 2 sites have no event, died being 0 .* as south"):
        prepare_csv(files, "data", TIMES, name="sites")
    for file in files:
        file.write_text(file.read_text().replace(",0\n", ",1\n").removesuffix("0") + "1")
    with pytest.warns(UserWarning, match="died is 1 in all rows, so that no time is censored"):
        prepare_csv(files, "data", TIMES, name="sites", overwrite=True)


def test_nothing_can_be_learned_without_an_event():
    y = np.array([[3.0, 0.0], [4.0, 0.0]])
    with pytest.raises(InputError, match="has no event, all times are censored"):
        from_arrays(np.ones((2, 1)), y, survival=True)
    for pairs, message in (
        ([[3.0, 0.5]], "has the event"),
        ([[-3.0, 1.0]], "has the time"),
        ([[3.0]], r"has shape \(1, 1\)"),
    ):
        with pytest.raises(InputError, match=message):
            from_arrays(np.ones((1, 1)), np.array(pairs), survival=True)
