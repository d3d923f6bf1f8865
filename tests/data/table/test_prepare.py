"""From CSV files to an npz file that is read as any other."""

import json
import os
import warnings

import numpy as np
import pandas
import pytest

from jaxfl.core.errors import InputError, RunWarning
from jaxfl.data import from_frames, list_data_sets, load, natural
from jaxfl.data.source import client_names
from jaxfl.data.split import split_rows
from jaxfl.data.table import prepare
from jaxfl.data.table.prepare import prepare_csv
from jaxfl.data.table.read import read_sheet
from jaxfl.data.table.schema import from_json, inputs
from jaxfl.data.table.summary import Choices


def write_sites(folder, sizes=None):
    """A CSV file for each site; where age is above 60 the outcome is "ill"."""
    rng = np.random.default_rng(0)
    files = []
    for site, rows in (sizes or {"site2": 30, "site10": 20, "site1": 12}).items():
        files.append(folder / f"{site}.csv")
        lines = ["id,age,ward,outcome"]
        for row in range(rows):
            age = rng.normal(60, 10)
            ward = ["ICU", "surgery", ""][row % 3]
            lines.append(f"{site}-{row},{age:.3f},{ward},{'ill' if age > 60 else 'well'}")
        files[-1].write_text("\n".join(lines))
    return files


CHOICES = Choices("outcome", id="id")


def test_sites_become_owners_with_names(tmp_path):
    (tmp_path / "clinics").mkdir()
    files = write_sites(tmp_path / "clinics")
    prepared = prepare_csv(files, tmp_path / "data", CHOICES)
    assert prepared.file == tmp_path / "data" / "clinics.npz"
    assert prepared.sites == {"site1": 12, "site2": 30, "site10": 20}
    assert sorted(os.listdir(tmp_path / "data")) == ["clinics.json", "clinics.npz"]
    assert "clinics" in list_data_sets(tmp_path / "data")
    source = load("clinics", tmp_path / "data")
    assert source.owner_names == ("site1", "site2", "site10")
    assert source.class_names == ("ill", "well")
    assert source.feature_names == ("age", "ward=ICU", "ward=surgery", "ward missing")
    assert np.bincount(source.owners).tolist() == [12, 30, 20]
    assert (source.classes, source.split, len(source.x_test)) == (2, "stratified", 0)
    assert client_names(source, natural(source.owners)) == ("site1", "site2", "site10")
    assert client_names(source, natural(source.owners, clients=2)) == ("site2", "site10")
    # The rows of a site are those of its file, and the same schema reads it again.
    schema = from_json((tmp_path / "data" / "clinics.json").read_text())
    assert schema == from_json(source.schema) == prepared.schema
    again = inputs(schema, read_sheet(files[2]))
    np.testing.assert_array_equal(source.x_train[source.owners == 0], again)


def test_data_frames_give_what_files_give(tmp_path):
    files = write_sites(tmp_path)
    prepare_csv(files, tmp_path, CHOICES, name="mine")
    expected = load("mine", tmp_path)
    frames = {file.stem: pandas.read_csv(file) for file in files}
    one = pandas.concat([frame.assign(site=name) for name, frame in frames.items()])
    for source in (
        from_frames(frames, "outcome", id="id"),
        from_frames(one, "outcome", id="id", owner="site"),
    ):
        assert source.feature_names == expected.feature_names
        assert source.owner_names == expected.owner_names
        np.testing.assert_array_equal(source.x_train, expected.x_train)
        np.testing.assert_array_equal(source.y_train, expected.y_train)
    assert from_frames(list(frames.values()), "outcome", id="id").owner_names == ("0", "1", "2")
    frames["site1"] = frames["site1"].astype(object)
    frames["site1"].loc[7, "age"] = "old"
    with pytest.raises(InputError, match="'old' in row 7 of site1: write a number"):
        from_frames(frames, "outcome", id="id")
    with pytest.raises(InputError, match="one data frame is given: name the column"):
        from_frames(one, "outcome")


def test_words_that_one_site_alone_has_are_warned_of_and_parts_are_no_sites():
    rows = pandas.DataFrame({"sex": ["F", "M"] * 10, "y": ["a", "b", "b", "a"] * 5})
    other = rows.replace({"F": "female", "M": "male"})
    with pytest.warns(RunWarning, match="2 of 2 sites have words in column sex that no other"):
        from_frames({"north": rows, "south": other}, "y")
    with pytest.raises(InputError, match="the sites test and train have the names of parts"):
        from_frames({"train": rows, "test": rows}, "y")


def test_nothing_is_ever_unpickled_and_a_schema_fits_its_features(tmp_path):
    files = write_sites(tmp_path)
    file = prepare_csv(files, tmp_path, CHOICES, name="mine").file
    with np.load(file, allow_pickle=False) as npz:
        arrays = dict(npz)
    np.savez(file, **arrays | {"feature_names": np.array(["a", "b", "c", "d"])})
    with pytest.raises(InputError, match=r"features or classes of .* not those of its columns"):
        load("mine", tmp_path)
    np.savez(file, **arrays | {"class_names": np.array(["well", "ill"])})
    with pytest.raises(InputError, match=r"features or classes of .* not those of its columns"):
        load("mine", tmp_path)
    np.savez(file, **arrays | {"schema": np.array("{}")})
    with pytest.raises(InputError, match=r"columns of .* cannot be read"):
        load("mine", tmp_path)
    for names in (["n"] * 3, ["n", "s"], ["a\nb", "c", "d"], np.arange(3), np.array("n")):
        np.savez(file, **arrays | {"owner_names": names})
        with pytest.raises(InputError, match="expected 3 different names"):
            load("mine", tmp_path)
    del arrays["owners"]
    np.savez(file, **arrays)
    with pytest.raises(InputError, match="expected owners too"):
        load("mine", tmp_path)


def test_one_file_of_several_may_be_written_in_its_own_way(tmp_path):
    north, south = (tmp_path / f"{name}.csv" for name in ("north", "south"))
    rows = [f"{number}.5,é{number % 2},{number % 2}" for number in range(12)]
    north.write_text("\n".join(["age,ward,ill", *rows]))
    german = "\n".join(["age;ward;ill", *(row.replace(",", ";") for row in rows)])
    south.write_bytes(german.replace(".", ",").encode("latin-1"))
    choices = Choices(target="ill")
    how = {"encoding": ["utf-8", "south=latin-1"], "decimal": ["south=,"]}
    file = prepare_csv([north, south], tmp_path / "data", choices, **how).file
    with np.load(file, allow_pickle=False) as arrays:
        x, owners = arrays["x_train"], arrays["owners"]
    np.testing.assert_array_equal(x[owners == 0], x[owners == 1])
    for wrong, words in {
        "sout=latin-1": "--encoding sout=latin-1: there is no file 'sout', did you mean south",
        "utf-8": r"is not utf-8: .* .--encoding south=latin-1 for this file alone",
    }.items():
        with pytest.raises(InputError, match=words):
            prepare_csv([north, south], tmp_path / "new", choices, encoding=wrong, decimal=".")
    with pytest.raises(InputError, match=r"--decimal is .;.: expected one of \. ,"):
        prepare_csv([north, south], tmp_path / "new", choices, decimal="south=;")


def test_a_column_or_the_folders_may_name_the_sites(tmp_path):
    files = write_sites(tmp_path, {"all": 40})
    text = files[0].read_text().splitlines()
    rows = [f"{line},{['north', 'south'][place % 2]}" for place, line in enumerate(text[1:])]
    files[0].write_text("\n".join([f"{text[0]},region", *rows]))
    by_column = prepare_csv(files, tmp_path, Choices("outcome", id="id", owner="region"))
    assert by_column.file.name == "all.npz"
    assert by_column.sites == {"north": 20, "south": 20}
    assert "names the site" in by_column.columns["region"]
    folders = [tmp_path / "wards" / name for name in ("east", "west")]
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / "patients.csv").write_text("\n".join(text))
    # Both sites have the same ids, and each names one row of its site.
    with pytest.warns(RunWarning, match=r"40 of 80 rows .* \(40 in east and west\)"):
        prepared = prepare_csv([one / "patients.csv" for one in folders], tmp_path, CHOICES)
    assert (prepared.file.name, list(prepared.sites)) == ("wards.npz", ["east", "west"])


def frames_with(site, **columns):
    """Two sites with ages, weights and outcomes; columns of one are replaced."""
    rng = np.random.default_rng(0)
    tables = {}
    for name in ("north", "south"):
        table = pandas.DataFrame({"age": rng.normal(60, 10, 40), "kg": rng.normal(70, 9, 40)})
        tables[name] = table.round(2).assign(y=["no", "yes"] * 20)
    tables[site] = tables[site].assign(**{key: of(tables[site]) for key, of in columns.items()})
    return tables


def often(mark, column):
    return lambda table: [mark if i % 5 == 0 else x for i, x in enumerate(table[column])]


@pytest.mark.filterwarnings("ignore:.*(no row of a class of y|units differ)")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"age": often(-99, "age")}, r"column age holds -99 in 8 rows, and else .* --missing=-99"),
        (
            {"kg": lambda table: 1000 * table["kg"]},
            r"column kg holds .* at north and .* at south: if the units differ",
        ),
        (
            {"kg": lambda table: 32 + 1.8 * table["kg"]},
            r"column kg holds .* at north and .* at south: if the units differ",
        ),
        (
            {"kg": lambda table: [table["kg"][0], *1000 * table["kg"][1:]]},
            r"column kg holds .* at north and .* at south: if the units differ",
        ),
        (
            {"y": lambda table: table["y"].replace("yes", "ja")},
            r"2 of 2 sites have no row of a class of y, such as north \(ja\), south \(yes\): if",
        ),
        ({"y": often("unknown", "y")}, r"the target y has the word 'unknown', .* its classes"),
    ],
    ids=["number for nothing", "units", "degrees", "one in units", "outcome", "word for nothing"],
)
def test_what_is_improbable_in_a_column_is_warned_of(change, message):
    with pytest.warns(RunWarning, match=message):
        from_frames(frames_with("south", **change), "y")


def test_two_sites_in_another_unit_are_named_together_and_targets_have_units_too():
    rng = np.random.default_rng(0)
    tables = [pandas.DataFrame({"x": rng.random(30), "y": rng.lognormal(6, 1, 30)}) for _ in "abcd"]
    for table in tables[1:3]:
        table["y"] /= 365
    with pytest.warns(RunWarning, match=r"column y holds .* at 1, 2 and .* at 0, 3: if the units"):
        from_frames(tables, "y")


def test_rows_that_repeat_are_counted_by_site_but_for_those_of_one_patient():
    rng = np.random.default_rng(0)
    one = pandas.DataFrame(
        {"age": rng.normal(60, 10, 40), "kg": rng.random(40), "y": ["no", "no", "yes", "yes"] * 10}
    )
    one = one.assign(site=["north", "south"] * 20, id=range(40), who=range(40))
    more = one.iloc[[0, 2, 1]].assign(
        site=["south", "north", "south"], id=[40, 41, 42], who=[0, 2, 1]
    )
    both = pandas.concat([one, more], ignore_index=True)
    expected = (
        r"3 of 43 rows .* \(1 in north and south, 1 in south, 1 in north\): .* --group COLUMN"
    )
    with pytest.warns(RunWarning, match=expected):
        from_frames(both, "y", owner="site", id="id", leave_out=("who",))
    with pytest.warns(RunWarning, match=r"1 of 40 values of who .* '0' \(north, south\)"):
        source = from_frames(both, "y", owner="site", id="id", group="who")
    assert source.groups.tolist()[40:] == [0, 12, 1]


def test_ordinary_columns_are_warned_of_in_nothing():
    """Rare findings, one-hot columns, counts with many zeros, what one site never does."""
    rng = np.random.default_rng(0)
    tables = {}
    for name in ("north", "south"):
        table = {f"finding {place}": rng.random(150) < 0.05 for place in range(9)}
        level = rng.integers(0, 5, 150)
        table |= {f"level {place}": level == place for place in range(5)}
        table = {key: column.astype(int) for key, column in table.items()}
        table["stays"] = np.where(rng.random(150) < 0.85, 0, rng.integers(1, 9, 150))
        table["urban"] = np.full(150, int(name == "north"))
        table["age"] = rng.integers(18, 90, 150)
        table["y"] = rng.choice(["no", "yes"], 150)
        tables[name] = pandas.DataFrame(table)
    tables["south"]["stays"] = 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        from_frames(tables, "y")


def test_a_row_with_the_names_of_the_columns_is_refused():
    header = frames_with("south", age=lambda table: ["age", *table["age"][1:].astype(str)])
    header["south"] = header["south"].astype(str)
    header["south"].loc[0] = ["age", "kg", "y"]
    with pytest.raises(InputError, match=r"has the names of the columns again: remove this row"):
        from_frames(header, "y")


def test_rows_of_a_site_with_the_same_name_are_warned_of(tmp_path):
    files = write_sites(tmp_path)
    files[0].write_text(files[0].read_text() + "\nsite2-0,44,ICU,well")
    with pytest.warns(RunWarning, match=r"1 values of id .* of a site \('site2-0' of site2\)"):
        prepare_csv(files, tmp_path, CHOICES, name="mine")


def test_rows_of_a_patient_are_a_group_whose_name_is_not_kept(tmp_path):
    files = write_sites(tmp_path, {"north": 30, "south": 30})
    for file in files:
        header, *lines = file.read_text().splitlines()
        rows = [f"{line},{file.stem[0]}{place // 3}" for place, line in enumerate(lines)]
        file.write_text("\n".join([f"{header},patient", *rows]))
    choices = Choices("outcome", id="id", group="patient")
    prepared = prepare_csv(files, tmp_path, choices, name="mine")
    source = load("mine", tmp_path)
    assert source.feature_names == ("age", "ward=ICU", "ward=surgery", "ward missing")
    np.testing.assert_array_equal(source.groups, np.arange(60) // 3)
    assert b"s9" not in prepared.file.read_bytes()
    splits = split_rows(source, natural(source.owners), val=0.2, test_fraction=0.2)
    for parts in zip(*splits, strict=True):
        groups = [set(source.groups[rows]) for rows in parts]
        assert sum(map(len, groups)) == 10
        assert all(groups)
    # One patient who moves from one site to the other.
    text = files[1].read_text()
    files[1].write_text(text.replace(",s4", ",n4"))
    with pytest.warns(RunWarning, match=r"1 of 19 values of patient .* 'n4' \(north, south\): "):
        prepare_csv(files, tmp_path, choices, name="moved")
    files[1].write_text(text.replace(",s4", ","))
    with pytest.raises(InputError, match="the group patient is missing in 3 of 30 rows, first in"):
        prepare_csv(files, tmp_path, choices, name="some")
    with pytest.raises(InputError, match="--group outcome is the target: name another column"):
        prepare_csv(files, tmp_path, Choices("outcome", group="outcome"), name="some")


def test_a_number_is_one_site_however_it_is_written(tmp_path):
    file = tmp_path / "all.csv"
    lines = [f"{age},{['1', '1.0', '2', 'north', 'North'][age % 5]},{age % 2}" for age in range(99)]
    file.write_text("\n".join(["age,site,y", *lines]))
    with pytest.warns(RunWarning) as warnings:
        prepared = prepare_csv([file], tmp_path, Choices("y", owner="site"))
    assert prepared.sites == {"1": 40, "2": 20, "North": 19, "north": 20}
    assert any("the names 'North' and 'north'" in str(one.message) for one in warnings)


def test_a_column_of_some_files_may_be_left_out_and_others_may_stand_in_any_order(tmp_path):
    (tmp_path / "n.csv").write_text("age,y,extra\n" + "1,a,5\n5,b,6\n" * 10)
    (tmp_path / "s.csv").write_text("y,age\n" + "b,3\na,7\n" * 10)
    files = [tmp_path / "n.csv", tmp_path / "s.csv"]
    with pytest.raises(InputError, match=r"s.csv lacks extra, unlike .*--leave-out COLUMN"):
        prepare_csv(files, tmp_path, Choices("y"), name="mine")
    for some in (files, files[::-1]):
        choices = Choices("y", leave_out=("extra",))
        prepared = prepare_csv(some, tmp_path, choices, name="mine", overwrite=True)
        source = load("mine", tmp_path)
        age = source.x_train[:, 0] * prepared.schema.columns[0].deviation + 4
        labels = [source.class_names[label] for label in source.y_train.tolist()]
        found = sorted(set(zip(age.round(3).tolist(), labels, source.owners.tolist(), strict=True)))
        assert found == [(1, "a", 0), (3, "b", 1), (5, "b", 0), (7, "a", 1)]
        assert source.owner_names == ("n", "s")


def test_targets_may_be_numbers(tmp_path):
    files = write_sites(tmp_path)
    prepare_csv(files, tmp_path, Choices("age", id="id"), name="ages")
    source = load("ages", tmp_path)
    assert (source.classes, source.class_names, source.split) == (0, (), "random")
    np.testing.assert_allclose([source.y_train.mean(), source.y_train.std()], [0, 1], atol=1e-6)


def test_small_and_single_sites_are_warned_of(tmp_path):
    files = write_sites(tmp_path, {"tiny": 4, "large": 30})
    with pytest.warns(RunWarning, match=r"1 of 2 sites have fewer than 10 rows: tiny \(4\)"):
        prepare_csv(files, tmp_path, CHOICES, name="mine")
    source = load("mine", tmp_path)
    with pytest.warns(RunWarning, match=r"1 of 2 owners \(tiny\) have fewer than 10 examples"):
        natural(source.owners, names=source.owner_names)
    assert client_names(source, natural(source.owners, smallest=1)) == ("large", "tiny")
    with pytest.warns(RunWarning, match="all rows are of one site, large"):
        prepare_csv(files[1:], tmp_path, CHOICES)


def test_where_the_arrays_cannot_be_written_no_text_is_left(tmp_path, monkeypatch):
    def fail(*_):
        raise InputError("the disk is full")

    (tmp_path / "data").mkdir()
    monkeypatch.setattr(prepare, "write_npz", fail)
    with pytest.raises(InputError, match="full"):
        prepare_csv(write_sites(tmp_path), tmp_path / "data", CHOICES, name="clinics")
    assert os.listdir(tmp_path / "data") == []


def test_what_cannot_be_a_data_set_is_refused_and_nothing_is_written(tmp_path):
    files = write_sites(tmp_path)
    folder = tmp_path / "data"
    for name, message in {"../x": "is no name of a", "mnist": "a published data set"}.items():
        with pytest.raises(InputError, match=message):
            prepare_csv(files, folder, CHOICES, name=name)
    with pytest.raises(InputError, match="no CSV file to read"):
        prepare_csv([], folder, CHOICES)
    with pytest.raises(InputError, match="two files would be the site"):
        prepare_csv([*files, files[0]], folder, CHOICES)
    with pytest.raises(InputError, match="--owner region: there is no such column"):
        prepare_csv(files, folder, Choices("outcome", owner="region"))
    with pytest.raises(
        InputError, match=r"the site ward is missing in 10 of 30 rows, first in line 4 of"
    ):
        prepare_csv(files, folder, Choices("outcome", id="id", owner="ward"))
    assert not folder.exists()
    prepare_csv(files, folder, CHOICES, name="mine")
    before = (folder / "mine.npz").read_bytes()
    with pytest.raises(InputError, match=r"mine.npz exists: choose another --name"):
        prepare_csv(files[:1], folder, CHOICES, name="mine")
    assert (folder / "mine.npz").read_bytes() == before
    with pytest.warns(RunWarning, match="of one site"):
        prepare_csv(files[:1], folder, CHOICES, name="mine", overwrite=True)
    assert json.loads((folder / "mine.json").read_text())["id"] == "id"
    assert load("mine", folder).owner_names == ("site2",)
