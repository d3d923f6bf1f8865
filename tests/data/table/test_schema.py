"""What columns become, beside scikit-learn's transformers."""

import json
import warnings

import numpy as np
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from jaxfl.core.errors import InputError, RunWarning
from jaxfl.data.table.fit import fit, in_order
from jaxfl.data.table.read import Sheet
from jaxfl.data.table.schema import Schema, from_json, inputs, targets, to_json
from jaxfl.data.table.summary import Choices


def sheet(name="north.csv", **columns):
    rows = len(next(iter(columns.values())))
    texts = {key: [str(cell) for cell in cells] for key, cells in columns.items()}
    return Sheet(name, texts, list(range(2, rows + 2)))


def sites(rows=40):
    """Three sites with numbers, words, missing values and a target."""
    rng = np.random.default_rng(0)
    found = []
    for site in range(3):
        age = rng.normal(60 + site, 12, rows).round(1).astype(object)
        dose = rng.choice([1, 2.5, 4], rows).astype(object)
        ward = rng.choice(["ICU", "surgery", "day clinic"], rows).astype(object)
        smoker = rng.choice(["yes", "no"], rows).astype(object)
        age[rng.random(rows) < 0.2] = ["", "NA", "?"][site]
        smoker[rng.random(rows) < 0.2] = "unknown"
        if site == 1:
            dose[:] = ""  # never measured there
        y = rng.choice(["died", "alive"], rows)
        found.append(sheet(f"{site}.csv", age=age, dose=dose, ward=ward, smoker=smoker, y=y))
    return found


def test_features_are_those_of_scikit_learn():
    some = sites()
    schema = fit(some, Choices("y", missing=("unknown",))).schema
    missing = {"", "NA", "?", "unknown"}
    cells = np.array(
        [
            [np.nan if cell in missing else cell for cell in row]
            for one in some
            for row in zip(
                *[one.columns[name] for name in ("age", "dose", "ward", "smoker")], strict=True
            )
        ],
        object,
    )
    number = make_pipeline(StandardScaler(), SimpleImputer(add_indicator=True))
    known = OneHotEncoder(categories=[["no", "yes"]], handle_unknown="ignore", sparse_output=False)
    transformer = ColumnTransformer(
        [
            ("age", number, [0]),
            ("dose", number, [1]),
            ("ward", OneHotEncoder(sparse_output=False), [2]),
            ("smoker", make_union(known, MissingIndicator(missing_values="absent")), [3]),
        ]
    )
    cells[:, 3] = [word if isinstance(word, str) else "absent" for word in cells[:, 3]]
    numeric = cells.copy()
    numeric[:, :2] = cells[:, :2].astype(float)
    expected = transformer.fit_transform(numeric).astype(float)
    actual = np.concatenate([inputs(schema, one) for one in some])
    assert schema.features == [
        *("age", "age missing", "dose", "dose missing"),
        *("ward=ICU", "ward=day clinic", "ward=surgery", "smoker=no", "smoker=yes"),
        "smoker missing",
    ]
    np.testing.assert_allclose(actual, expected, atol=1e-6)
    labels = np.concatenate([targets(schema, one) for one in some])
    words = [word for one in some for word in one.columns["y"]]
    np.testing.assert_array_equal(labels, [["alive", "died"].index(word) for word in words])


def test_the_scaling_follows_from_sums_of_the_sites():
    some = sites()
    column = next(one for one in fit(some, Choices("y", missing=("unknown",))).schema.columns)
    sums = np.zeros(3)
    for one in some:
        values = np.array([float(c) for c in one.columns["age"] if c not in ("", "NA", "?")])
        sums += [len(values), values.sum(), np.square(values).sum()]
    mean = sums[1] / sums[0]
    np.testing.assert_allclose(
        [column.mean, column.deviation], [mean, np.sqrt(sums[2] / sums[0] - mean**2)], rtol=1e-6
    )


def test_what_columns_became_is_plain_json_and_comes_back():
    schema = fit(sites(), Choices("y", missing=("unknown",))).schema
    text = to_json(schema)
    assert from_json(text) == schema
    value = json.loads(text)
    for change in (
        {"columns": []},
        {"columns": [{"name": "age", "kind": "date"}]},
        {"columns": [{"name": "age", "kind": "number", "deviation": 0}]},
        {"columns": [{"name": "age", "kind": "number", "mean": "0"}]},
        {"columns": [{"name": 3, "kind": "number"}]},
        {"target": {"name": "y", "classes": "ab"}},
        {"missing": [1]},
        {"other": 1},
        {"columns": [{"name": "ward", "kind": "category"}]},
        {"columns": [{"name": "age", "kind": "number", "mean": 10**400}]},
    ):
        with pytest.raises(InputError, match=r"cannot be read .*: make it anew"):
            from_json(json.dumps(value | change))
    for other in ("", "[]", "null", "[" * 100_000):
        with pytest.raises(InputError, match="cannot be read"):
            from_json(other)


def test_a_new_file_may_know_less_and_more():
    schema = Schema(**vars(fit(sites(), Choices("y", missing=("unknown",))).schema))
    new = sheet(ward=["ICU", "roof"], dose=["2.5", ""], smoker=["no", ""], age=["70", ""], z=[1, 2])
    with pytest.warns(RunWarning) as warnings:
        x = inputs(schema, new)
    said = " ".join(str(one.message) for one in warnings)
    assert "columns that the models do not know, which are left alone: z" in said
    assert "1 of 2 rows of north.csv have words in column ward" in said
    assert "do not know ('roof'): they count as none of" in said
    np.testing.assert_array_equal(x[:, schema.features.index("dose missing")], [0, 1])
    np.testing.assert_array_equal(x[1, [name.startswith("ward") for name in schema.features]], 0)
    assert targets(schema, new) is None
    with pytest.warns(RunWarning, match="missing nowhere when the models were trained"):
        inputs(schema, sheet(ward=[""], dose=["1"], smoker=["no"], age=["70"]))
    with pytest.raises(InputError, match="lacks age: there is no such column"):
        inputs(schema, sheet(ward=["ICU"]))
    with pytest.raises(InputError, match=r"column age holds numbers, and 'old' in line 2 of"):
        inputs(schema, sheet(ward=["ICU"], dose=["1"], smoker=["no"], age=["old"]))
    with pytest.raises(InputError, match=r"the target y is 'cured' in line 2 .*: expected one of"):
        targets(schema, sheet(y=["cured"]))


def test_targets_are_classes_or_numbers():
    price = [float(value) for value in np.random.default_rng(1).normal(300, 50, 40).round(2)]
    x = {"age": [place // 2 for place in range(40)], "y": price}
    numbers = fit([sheet(**x)], Choices("y"))
    values = targets(numbers.schema, sheet(**x))
    scaled = StandardScaler().fit_transform(np.array(price)[:, None])[:, 0]
    np.testing.assert_allclose(values, scaled, atol=1e-5)
    assert numbers.schema.target.classes == ()
    stages = {"age": [*range(50, 70)] * 2, "y": [2, 0, 10, 1] * 10}
    assert fit([sheet(**stages)], Choices("y")).schema.target.classes == ("0", "1", "2", "10")
    as_numbers = fit([sheet(**stages)], Choices("y", task="regression")).schema.target
    assert (as_numbers.classes, as_numbers.mean) == ((), 3.25)


@pytest.mark.parametrize("word", ["-9", "-9.0"])
def test_a_number_may_stand_for_a_missing_value_however_it_is_written(word):
    some = [sheet(age=[5, 8, "-9", 3], y=["a", "b", "a", "b"])]
    some += [sheet("s.csv", age=["-9.0", "1.0", "3.0", 7], y=["a", "b", "a", "b"])]
    schema = fit(some, Choices("y", missing=(word,))).schema
    ages = np.array([5, 8, 3, 1, 3, 7])
    np.testing.assert_allclose(
        [schema.columns[0].mean, schema.columns[0].deviation], [ages.mean(), ages.std()]
    )
    np.testing.assert_array_equal(inputs(schema, some[1])[:, 1], [1, 0, 0, 0])


def test_codes_may_be_categories_and_are_one_word_however_they_are_written():
    some = [sheet(cp=["1", "2"], age=[5, 8], y=["a", "b"])]
    some += [sheet("s.csv", cp=["1.0", "3.0"], age=[1, 3], y=["a", "b"])]
    found = fit(some, Choices("y", categories=("cp",)))
    assert found.schema.columns[0].words == ("1", "2", "3")
    assert fit(some, Choices("y")).schema.columns[0].kind == "number"
    assert "category: 1, 2, 3" in found.words["cp"]
    lines = sheet(ward=["east\nwing", "east wing", "day  clinic"], y=["a", "b", "a"])
    assert fit([lines], Choices("y")).schema.columns[0].words == ("day clinic", "east wing")


def test_each_column_is_told_and_what_says_nothing_is_left_out():
    columns = {"age": [5, 8, ""], "unit": ["kg"] * 3, "never": ["", "NA", "?"], "a": [1, 2, 3]}
    columns |= {"code": ["1", "1.0", "1"]}
    columns |= {"export": ["2024-01-01"] * 3, "price": ["1,5"] * 3, "dose": [0.1] * 3}
    columns |= {"id": ["p", "q", "r"], "site": ["n", "n", "s"], "y": ["a", "b", "a"]}
    schema, words = fit([sheet(**columns)], Choices("y", id="id", owner="site", leave_out=("a",)))
    assert list(words) == list(columns)
    assert [one.name for one in schema.columns] == ["age"]
    assert "33% missing" in words["age"]
    assert words["unit"] == "left out: 'kg' in all rows"
    assert words["export"] == "left out: '2024-01-01' in all rows"
    assert words["never"] == "left out: missing in all rows"
    assert words["y"] == "target, classes: a (2), b (1)"


MANY = [f"text {place}" for place in range(150)]
BAD = {
    "holds dates or times": {"x": ["2024-01-05", "2024-03-09"] * 10},
    "holds dates or times (": {"x": ["05.01.2024 10:30", "9/3/24"] * 10},
    "150 different texts in 150 rows": {"x": MANY, "y": ["a", "b"] * 75},
    "20 different texts in 20 rows": {"x": MANY[:20]},
    "holds numbers, and 'old' in line 5": {"x": [1, 2, 3, "old", *range(16)]},
    "write a number (with decimal commas: add --decimal ,)": {"x": ["1,5", "2,5"] * 10},
    "expected a number below 1e+30": {"x": ["1", "1e999"] * 10},
    "two features would have the name 'x missing'": {"x": [1, ""] * 10, "x missing": [1, 2] * 10},
    "the target y is missing in 2 of 20 rows": {"y": ["a", "", *"ab" * 8, "NA", "b"]},
    "the target y is 'a' in all 20 rows": {"y": ["a"] * 20},
    "has 20 classes in 20 rows": {"y": MANY[:20]},
    "no column is left to predict y from": {"x": ["same"] * 20},
    "--target y: there is no such column": {"y": None},
}


@pytest.mark.parametrize("message", BAD)
def test_a_column_of_no_use_is_refused_in_one_line(message):
    columns = {"x": ["1", "2"] * 10, "y": ["a", "b"] * 10} | BAD[message]
    with pytest.raises(InputError) as error:
        fit([sheet(**{name: cells for name, cells in columns.items() if cells})], Choices("y"))
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_names_of_rows_are_warned_of():
    rows = {"patient_id": range(100, 120), "age": [*range(19), 4], "y": ["a", "b"] * 10}
    with pytest.warns(RunWarning, match=r"give --id patient_id"):
        fit([sheet(**rows)], Choices("y"))
    # Each site counts from 1.
    by_site = [
        sheet(f"{site}.csv", row=range(1, 21), age=[*range(19), 4], y=["a", "b"] * 10)
        for site in "ns"
    ]
    with pytest.warns(RunWarning, match=r"give --id row"):
        fit(by_site, Choices("y"))


def test_words_that_differ_in_capitals_alone_are_warned_of():
    ages = [*range(10)] * 2
    for words, message in (
        ({"ward": ["ICU", "icu"] * 10, "y": ["a", "b"] * 10}, "column ward has the words 'ICU'"),
        ({"y": ["a", "b", "B", "a"] * 5}, "the target y has the classes 'B' and 'b'"),
    ):
        with pytest.warns(RunWarning, match=message):
            fit([sheet(age=ages, **words)], Choices("y"))


def test_the_order_is_that_of_letters_and_of_the_numbers_in_them():
    assert in_order({"b2", "b10", "a", "10", "9"}) == ["9", "10", "a", "b2", "b10"]


def test_ages_of_a_few_rows_are_not_taken_for_names_of_rows():
    few = {"age": ["61.5", "70.25", "48", "55.1", "66", "59"], "y": ["a", "b"] * 3}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit([sheet(**few), sheet("s.csv", **few)], Choices("y"))
