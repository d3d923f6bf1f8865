"""UCI-HAR and WISDM: stand-ins in the format of their publishers."""

import numpy as np
import pytest
from refusals import fails

from jaxfl.core.errors import RunWarning
from jaxfl.data import load
from jaxfl.data.published.prepare import prepare

RNG = np.random.default_rng(0)
FOLDER = "UCI HAR Dataset"
SUBJECTS = {"train": [1, 1, 3, 11], "test": [2, 2]}
LABELS = {"train": [1, 2, 3, 1], "test": [3, 1]}
CHANNELS = [
    f"{kind}_{axis}" for kind in ("body_acc", "body_gyro", "total_acc") for axis in ("x", "y", "z")
]
pytestmark = pytest.mark.filterwarnings("ignore::jaxfl.core.errors.RunWarning")


@pytest.fixture
def persons(tmp_path):
    """Six windows of four persons in the form of UCI-HAR, and the numbers in them."""
    folder = tmp_path / FOLDER
    held = {}
    for split, subjects in SUBJECTS.items():
        signals = folder / split / "Inertial Signals"
        signals.mkdir(parents=True)
        held[split] = RNG.normal(size=(len(subjects), 128, 9))
        for i, name in enumerate(CHANNELS):
            np.savetxt(signals / f"{name}_{split}.txt", held[split][..., i], "%16.7e", delimiter="")
        held[f"{split} features"] = RNG.uniform(-1, 1, (len(subjects), 4))
        np.savetxt(folder / split / f"X_{split}.txt", held[f"{split} features"], "%16.7e")
        np.savetxt(folder / split / f"y_{split}.txt", LABELS[split], "%d")
        np.savetxt(folder / split / f"subject_{split}.txt", subjects, "%d")
    (folder / "activity_labels.txt").write_text("1 WALKING\n2 SITTING\n3 LAYING\n")
    (folder / "features.txt").write_text("1 mean()-X\n2 bands()-1,8\n3 bands()-1,8\n4 std()\n")
    return tmp_path, held


def test_har_has_the_windows_of_each_person(persons):
    folder, held = persons
    prepare("uci_har", folder)
    source = load("uci_har", folder)
    assert source.owner_names == ("1", "2", "3", "11")
    assert source.class_names == ("WALKING", "SITTING", "LAYING")
    assert source.feature_names == tuple(CHANNELS)
    assert source.owners is not None
    assert source.owners.tolist() == [0, 0, 1, 1, 2, 3]
    order = [("train", 0), ("train", 1), ("test", 0), ("test", 1), ("train", 2), ("train", 3)]
    assert source.y_train.tolist() == [LABELS[split][row] - 1 for split, row in order]
    expected = np.stack([held[split][row] for split, row in order])
    np.testing.assert_allclose(source.x_train, expected, rtol=1e-5, atol=1e-7)


def test_har_has_the_features_of_each_person(persons):
    folder, held = persons
    assert prepare("uci_har/features", folder).name == "uci_har-features.npz"
    source = load("uci_har/features", folder)
    assert source.feature_names == ("mean()-X", "bands()-1,8 (2)", "bands()-1,8 (3)", "std()")
    expected = np.concatenate([held["train features"], held["test features"]])[[0, 1, 4, 5, 2, 3]]
    np.testing.assert_allclose(source.x_train, expected, rtol=1e-5)


SIGNAL = "train/Inertial Signals/body_gyro_y_train.txt"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("train/y_train.txt", None, "y_train.txt is missing"),
        (SIGNAL, None, "body_gyro_y_train.txt is missing"),
        ("train/y_train.txt", "1\n2\n3\n4\n", "holds numbers other than 1 to 3"),
        ("train/y_train.txt", "1\n2\n3\n", "has 4 rows for 3 labels"),
        ("train/subject_train.txt", "1\n2\n3\n", "subject_train.txt has 3 rows for 4 labels"),
        ("train/subject_train.txt", "1\n2\n3\n1.5\n", "holds numbers other than 1 to 1000"),
        ("train/y_train.txt", "1\n2\n3\nx\n", "y_train.txt holds no table"),
        ("train/y_train.txt", "1\n2 3\n", "y_train.txt holds no table"),
        (SIGNAL, "1 2 3\n" * 4, "has 3 columns: expected 128 of finite numbers"),
        pytest.param(SIGNAL, ("nan " * 128 + "\n") * 4, "of finite numbers", id="nan"),
        pytest.param(SIGNAL, ("0 " * 128 + "\n") * 3, "has 3 rows for 4 labels", id="few rows"),
        ("activity_labels.txt", "1 WALKING\n3 LAYING\n", "lines of a number, from 1, and a name"),
    ],
)
def test_damaged_files_of_har_are_one_line(persons, name, text, message):
    folder, _ = persons
    file = folder / FOLDER / name
    file.unlink()
    if text is not None:
        file.write_text(text)
    fails(lambda: prepare("uci_har", folder), message, folder)


# WISDM


def records(person, activity, values, start=0, step=50_000_000):
    """Lines of a recording, one reading each."""
    return [
        f"{person},{activity},{start + step * i},{x},{y},{z};\n"
        for i, (x, y, z) in enumerate(values)
    ]


def write(tmp_path, lines):
    folder = tmp_path / "WISDM_ar_v1.1"
    folder.mkdir(exist_ok=True)
    (folder / "WISDM_ar_v1.1_raw.txt").write_text("".join(lines))


def test_wisdm_has_the_windows_of_each_person(tmp_path):
    walks, jogs, sits = (np.round(RNG.normal(size=(n, 3)), 3) for n in (450, 200, 199))
    lines = records(33, "Walking", walks) + records(33, "Jogging", jogs)
    lines += records(4, "Sitting", sits) + records(4, "Jogging", jogs[::-1])
    write(tmp_path, lines)
    prepare("wisdm", tmp_path)
    source = load("wisdm", tmp_path)
    assert source.owner_names == ("4", "33")
    assert source.class_names == ("Jogging", "Walking")
    assert source.owners is not None
    assert source.owners.tolist() == [0, 1, 1, 1]
    assert source.y_train.tolist() == [0, 1, 1, 0]
    expected = np.stack([jogs[::-1], walks[:200], walks[200:400], jogs]) / 10
    np.testing.assert_allclose(source.x_train, expected, rtol=1e-5)


def test_damaged_records_are_counted_and_left_out(tmp_path):
    """The kinds of damage of the published file; whole records may share a line."""
    values = np.round(RNG.normal(size=(8, 3)), 3)
    lines = records(1, "Walking", values)
    lines[0] = lines[0].replace("\n", "") + lines.pop(1)
    lines[2] = lines[2].replace(";", ",;")  # a whole record that ends with a comma
    bad = [
        "1,Walking,150,1.0,2.0,;\n",
        "1,Walking,150,1.0,2.0\n",
        "1,Walking,150,1.0,,2.0;\n",
        "1,Walking,1e3,1.0,2.0,3.0;\n",
        "1,Flying,150,1.0,2.0,3.0;\n",
        "x,Walking,150,1.0,2.0,3.0;\n",
        "1,Walking,150,1.0,2.0,nan;\n",
        "1,Walking,150,1.0,2.0,1e99;\n",
        f"1,Walking,150,1.0,2.0,{'9' * 5000};\n",
        ";\n",
        "\n",
    ]
    lines[3:3] = bad
    write(tmp_path, lines + records(2, "Sitting", values))
    message = "9 of 25 records of .* are damaged, the first in line 4: left out"
    with pytest.warns(RunWarning, match=message):
        prepare("wisdm", tmp_path, steps=4)
    source = load("wisdm", tmp_path)
    assert source.owners is not None
    assert source.owners.tolist() == [0, 0, 1, 1]
    np.testing.assert_allclose(source.x_train[:2].reshape(8, 3), values / 10, rtol=1e-5)


def test_no_window_goes_beyond_a_gap(tmp_path):
    values = np.arange(30).reshape(10, 3)
    early = records(1, "Walking", values[:5])
    late = records(1, "Walking", values[5:], start=3_000_000_000)
    again = records(1, "Sitting", values)
    write(tmp_path, [*early, *late, *again])
    prepare("wisdm", tmp_path, steps=4)
    source = load("wisdm", tmp_path)
    np.testing.assert_allclose(10 * source.x_train[1], values[5:9], rtol=1e-5)
    write(tmp_path, [*late, *early, *again])
    prepare("wisdm", tmp_path / "back", manual_dir=tmp_path, steps=4)
    source = load("wisdm", tmp_path / "back")
    np.testing.assert_allclose(10 * source.x_train[1], values[:4], rtol=1e-5)


@pytest.mark.parametrize(
    ("lines", "steps", "message"),
    [
        (["hello\n"], None, "holds no record of person,activity,time,x,y,z;"),
        (records(1, "Walking", np.ones((9, 3))), None, "holds no 200 readings of one recording"),
        (records(1, "Walking", np.ones((9, 3))), 0, "steps is 0"),
    ],
)
def test_a_file_without_windows_is_one_line(tmp_path, lines, steps, message):
    write(tmp_path, lines)
    fails(lambda: prepare("wisdm", tmp_path, steps=steps), message, tmp_path)
