"""Features of sites whose tables no place has together: those of all tables at once."""

import json

import numpy as np
import pandas
import pytest
from sklearn.preprocessing import StandardScaler

from jaxfl.core.errors import InputError, RunWarning
from jaxfl.data import from_frames, from_table, table_schema, table_summary

RNG = np.random.default_rng(0)


def frame(rows, wards, **columns):
    found = {
        "id": [f"P{row}" for row in range(rows)],
        "age": RNG.normal(60, 10, rows).round(2),
        "bmi": np.where(RNG.random(rows) < 0.2, np.nan, RNG.normal(27, 4, rows)),
        "ward": RNG.choice(wards, rows),
        "code": RNG.integers(0, 3, rows),
        "unit": ["kg"] * rows,
        "stage": RNG.integers(0, 2, rows),
        "cost": RNG.normal(1e6, 3, rows),
    }
    return pandas.DataFrame(found | columns)


SITES = {
    "north": frame(40, ["ICU", "surgery"]),
    "south": frame(25, ["ICU", "ward 3"]),
    # one number in all rows, which differs from that of the others
    "west": frame(12, ["ICU"], age=[61.0] * 12),
}
OPTIONS = {"id": "id", "categories": ("code",), "missing": ("-9",)}


def schema_of(sites, target, **options):
    return table_schema(
        {name: table_summary(table, target, **options) for name, table in sites.items()}
    )


@pytest.mark.filterwarnings("ignore:.* sites have no row of a class of ward")
@pytest.mark.parametrize("target", ["stage", "ward", "cost"])
def test_features_are_those_of_all_tables_at_once(target):
    together = from_frames(SITES, target, **OPTIONS)
    schema = schema_of(SITES, target, **OPTIONS)
    assert schema == together.schema
    apart = [from_table(table, schema) for table in SITES.values()]
    np.testing.assert_array_equal(np.concatenate([s.x_train for s in apart]), together.x_train)
    np.testing.assert_array_equal(np.concatenate([s.y_train for s in apart]), together.y_train)
    assert {s.class_names for s in apart} == {together.class_names}
    new = from_table(SITES["south"].drop(columns=target), schema)
    np.testing.assert_array_equal(new.x_train, apart[1].x_train)
    assert {s.split for s in apart} == {together.split}
    # The numbers of all sites, by another program.
    columns = {column["name"]: column for column in json.loads(schema)["columns"]}
    ages = np.concatenate([table["age"] for table in SITES.values()])[:, None]
    scaler = StandardScaler().fit(ages)
    assert columns["age"]["mean"] == pytest.approx(scaler.mean_[0], rel=1e-12)
    assert columns["age"]["deviation"] == pytest.approx(scaler.scale_[0], rel=1e-12)


def test_a_summary_has_no_number_of_a_row():
    table = SITES["north"]
    told = table_summary(table, "stage", **OPTIONS)
    for column in ("age", "bmi", "cost"):
        assert json.loads(told)["columns"][column]["words"] is None
        assert not any(str(value) in told for value in table[column].dropna())
    assert "P7" not in told


def test_a_file_is_read_as_a_frame(tmp_path):
    SITES["north"].to_csv(tmp_path / "north.csv", index=False)
    schema = schema_of(SITES, "stage", **OPTIONS)
    np.testing.assert_allclose(
        from_table(tmp_path / "north.csv", schema).x_train,
        from_table(SITES["north"], schema).x_train,
        atol=1e-5,
    )


def test_columns_that_sites_write_differently_are_named():
    words = SITES | {"east": frame(20, ["ICU"], age=["old", "young"] * 10)}
    with pytest.raises(InputError, match=r"column age holds numbers at some sites and words at"):
        schema_of(words, "stage", **OPTIONS)
    with pytest.raises(InputError, match=r"east has dose, unlike north"):
        schema_of(SITES | {"east": frame(20, ["ICU"], dose=[1.0] * 20)}, "stage", **OPTIONS)
    with pytest.warns(RunWarning, match=r"2 of 2 sites have words in column ward that no other"):
        schema_of({"a": frame(20, ["x"]), "b": frame(20, ["y", "z"])}, "stage", **OPTIONS)
    sites = {"a": frame(40, ["x"], stage=["no", "yes"] * 20), "b": frame(20, ["x"])}
    sites["b"]["stage"] = ["no"] * 19 + ["ja"]
    with pytest.warns(RunWarning, match=r"1 of 2 sites have no row of a class of stage.* b \(yes"):
        schema_of(sites, "stage", **OPTIONS)
    with pytest.raises(InputError, match=r"column name holds 20 different texts"):
        table_summary(frame(20, ["x"], name=[f"Mr {i}" for i in range(20)]), "stage", **OPTIONS)
    with pytest.raises(InputError, match=r"the target stage is missing in 1 of 12 rows"):
        table_summary(frame(12, ["x"], stage=[None] + [0.0, 1.0, 0.0] * 3 + [1.0, 0.0]), "stage")


def changed(path, value):
    told = json.loads(table_summary(SITES["north"], "stage", **OPTIONS))
    place = told
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return json.dumps(told)


@pytest.mark.parametrize(
    "told",
    [
        "",
        "[]",
        "[" * 100_000,
        changed(["columns", "age", "rows"], -1),
        changed(["columns", "age", "rows"], 10),
        changed(["columns", "age", "rows"], 1e300),
        changed(["columns", "age", "sums"], [40, float("nan"), 1.0]),
        changed(["columns", "age", "sums"], [40, 1.0, -1.0]),
        changed(["columns", "age", "sums"], [40, "x", 1.0]),
        changed(["columns", "ward", "words"], {"ICU": -3}),
        changed(["columns", "ward", "words"], {str(word): 1 for word in range(2000)}),
        changed(["columns", "ward"], {}),
        changed(["columns", "age", "sums"], [40, 10**400, 1.0]),
        changed(["columns", "age", "sums"], [40, 5.0, 1e300]),
        changed(["columns", "age", "sums"], [10**29, 5.0, 0.0]),
        changed(["columns", "age", "sums"], [40, True, True]),
        changed(["columns", "age", "sums"], None),
        changed(["columns", "age", "texts"], 41),
        changed(["columns", "age", "plain"], "false"),
        changed(["columns", "bmi", "rows"], 41),
        changed(["columns", "ward", "words"], {}),
        changed(["columns", "ward", "words"], {"ICU": 41}),
        changed(["columns", "ward", "words"], {"ICU\n\x1b[2J": 40}),
        changed(["columns", "ward", "words"], {"I" * 300: 40}),
        changed(["rows\n\x1b[2J"], 1),
        changed(["target"], "other"),
        changed(["target"], ["stage"]),
        changed(["id"], 1),
        changed(["missing"], [1]),
        changed(["categories"], None),
        changed(["leave_out"], [{}]),
        changed(["task"], "other"),
    ],
    ids=range(32),
)
def test_a_summary_that_cannot_be_is_refused_in_one_line(told):
    with pytest.raises(InputError, match=r"the summary of south is not one") as refused:
        table_schema({"south": told})
    assert len(str(refused.value)) < 250
    assert str(refused.value).isprintable()


def test_what_nobody_should_know_is_not_told():
    """Each would send the values of single rows."""
    names = frame(9, ["x"], name=[f"Mr {row}" for row in range(9)])
    with pytest.raises(InputError, match=r"column name holds another text in each row"):
        table_summary(names, "stage", id="id")
    with pytest.raises(InputError, match=r"leave_out of table_summary is 'name': expected a list"):
        table_summary(names, "stage", id="id", leave_out="name")
    with pytest.warns(RunWarning, match=r"leave_out names nane, which the table does not have"):
        table_summary(frame(9, ["x"]), "stage", id="id", leave_out=("nane",))
    cost = frame(30, ["x"])
    cost["cost"] = cost["cost"].astype(str)
    cost.loc[3, "cost"] = "12,5"
    with pytest.raises(InputError, match=r"column cost holds numbers, and '12,5' in row"):
        table_summary(cost, "cost", id="id", task="regression")
    days = frame(30, ["x"], day=[f"2024-01-{day:02}" for day in range(1, 31)])
    with pytest.raises(InputError, match=r"column day holds dates or times \(2024-01-01\)"):
        table_summary(days, "day", id="id")


def test_few_whole_numbers_of_a_site_are_numbers_where_all_have_many():
    sites = {"a": frame(15, ["x"], days=range(15)), "b": frame(15, ["x"], days=range(9, 24))}
    schema = schema_of(sites, "days", id="id")
    assert schema == from_frames(sites, "days", id="id").schema
    assert json.loads(schema)["target"]["classes"] == []


def test_times_and_groups_of_sites_are_those_of_all_tables_at_once():
    sites = {
        name: table.assign(
            days=RNG.exponential(900, len(table)).round(5),
            died=np.arange(len(table)) % 3 == 0,
            patient=[f"{name}{100 + row // 2}" for row in range(len(table))],
        ).astype({"died": int})
        for name, table in SITES.items()
    }
    options = OPTIONS | {"event": "died", "group": "patient"}
    together = from_frames(sites, "days", **options)
    told = table_summary(sites["north"], "days", **options)
    assert not any(f"{days}" in told for days in sites["north"]["days"])
    assert "north103" not in told
    schema = schema_of(sites, "days", **options)
    assert schema == together.schema
    apart = [from_table(table, schema) for table in sites.values()]
    np.testing.assert_array_equal(np.concatenate([s.x_train for s in apart]), together.x_train)
    np.testing.assert_array_equal(np.concatenate([s.y_train for s in apart]), together.y_train)
    np.testing.assert_array_equal(apart[1].groups, np.arange(25) // 2)
    assert all(s.survival and s.split == together.split == "stratified" for s in apart)
    soon = sites["north"].astype({"days": object})
    soon.loc[3, "days"] = "soon"
    with pytest.raises(InputError, match=r"column days holds numbers, and 'soon' in row 3"):
        table_summary(soon, "days", **options)
