"""Activities of persons who carry a phone, by its sensors: UCI-HAR and WISDM."""

import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from jaxfl.core.errors import InputError, check, warn
from jaxfl.core.options import POSITIVE, check_range
from jaxfl.data.published.originals import Arrays, existing
from jaxfl.data.published.owners import by_owner
from jaxfl.data.published.progress import Track, no_progress
from jaxfl.data.table.windows import cut

SPLITS = ("train", "test")
SIGNALS = tuple(
    f"{kind}_{axis}" for kind in ("body_acc", "body_gyro", "total_acc") for axis in "xyz"
)
HAR_STEPS = 128  # readings of a window: 2.56 s at 50 Hz
HAR_FILES = ("train", "test", "activity_labels.txt", "features.txt")

WISDM_FILE = "WISDM_ar_v1.1_raw.txt"
WISDM_STEPS = 200  # readings of a window: 10 s at 20 Hz
ACTIVITIES = ("Downstairs", "Jogging", "Sitting", "Standing", "Upstairs", "Walking")
GAP = 1_000_000_000  # nanoseconds between two readings of one recording at most
GRAVITY = 10.0  # of WISDM's units are 1 g
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?", re.ASCII)


def read_har(folder: Path, track: Track = no_progress, *, features: bool = False) -> Arrays:
    """UCI-HAR: six activities, whose owners are the 30 persons.

    Anguita et al., 2013, https://doi.org/10.24432/C54S4K. The publisher's training and test set,
    which are of different persons, are read as one: each person is tested on windows of its own.

    Args:
      folder: `UCI HAR Dataset`.
      track: shows progress.
      features: whether x are the publisher's features in place of the readings.

    Returns:
      x float32 [N, 128, 9] in g (gyroscope: radians a second), or [N, 561]; `feature_names`, and
      the arrays of `by_owner`.

    Raises:
      InputError: a file is missing or damaged, or does not fit the others.
    """
    activities = _names(folder / "activity_labels.txt")
    names = _distinct(_names(folder / "features.txt")) if features else SIGNALS
    parts = defaultdict(list)
    for split in track(SPLITS, "reading", len(SPLITS)):
        place = folder / split
        y = _whole(place / f"y_{split}.txt", len(activities))
        subjects = _whole(place / f"subject_{split}.txt", 1000)
        if features:
            x = _table(place / f"X_{split}.txt", len(names))
        else:
            signals = place / "Inertial Signals"
            files = [signals / f"{name}_{split}.txt" for name in SIGNALS]
            channels = [_table(file, HAR_STEPS) for file in files]
            for file, channel in zip(files, channels, strict=True):
                _check_rows(file, channel, y)
            x = np.stack(channels, axis=-1)
        _check_rows(place / f"subject_{split}.txt", subjects, y)
        _check_rows(place / f"X_{split}.txt", x, y)
        for subject in np.unique(subjects):
            rows = subjects == subject
            parts[str(subject)].append((x[rows], y[rows] - 1))
    return by_owner(parts, activities) | {"feature_names": np.array(names, str)}


def _names(file: Path) -> list[str]:
    """The names in lines of a number, from 1, and a name."""
    words = [line.split() for line in existing(file).read_text("latin-1").splitlines()]
    numbers = [pair[0] for pair in words if len(pair) == 2]
    check(
        len(words) > 1 and numbers == [str(i) for i in range(1, len(words) + 1)],
        f"{file} does not hold lines of a number, from 1, and a name: download it again",
    )
    return [name for _, name in words]


def _distinct(names: Sequence[str]) -> list[str]:
    """The names, with its number behind one that others have too."""
    return [
        f"{name} ({i + 1})" if list(names).count(name) > 1 else name for i, name in enumerate(names)
    ]


def _table(file: Path, columns: int) -> np.ndarray:
    """A table of numbers [n, columns], float32."""
    existing(file)
    try:
        table = np.loadtxt(file, np.float32, comments=None, ndmin=2, encoding="latin-1")
    except (ValueError, OverflowError) as error:
        raise InputError(f"{file} holds no table ({error!s:.100}): download it again") from error
    check(
        table.shape[1] == columns and bool(np.isfinite(table).all()),
        f"{file} has {table.shape[1]} columns: expected {columns} of finite numbers, download it "
        "again",
    )
    return table


def _whole(file: Path, high: int) -> np.ndarray:
    """A column of whole numbers from 1 on [n]."""
    column = _table(file, 1)[:, 0]
    check(
        bool(np.isin(column, np.arange(1, high + 1)).all()),
        f"{file} holds numbers other than 1 to {high}: download it again",
    )
    return column.astype(np.int32)


def _check_rows(file: Path, x: np.ndarray, y: np.ndarray) -> None:
    """Raises an `InputError` unless there are as many rows as labels."""
    check(
        len(x) == len(y),
        f"{file} has {len(x)} rows for {len(y)} labels: expected as many, download it again",
    )


def read_wisdm(folder: Path, track: Track = no_progress, *, steps: int | None = None) -> Arrays:
    """WISDM: six activities, whose owners are the 36 persons.

    Kwapisz et al., 2010, version 1.1. A record is `person,activity,nanoseconds,x,y,z;`. Some of the
    published ones are damaged; these are left out, and a warning says how many. A recording ends
    where the person or the activity changes, or where a second or more is missing between two
    readings. It is cut into windows that do not overlap.

    Args:
      folder: with `WISDM_ar_v1.1_raw.txt`.
      track: shows progress.
      steps: readings of a window; 200, which are 10 s, if None.

    Returns:
      x float32 [N, steps, 3] in g, `feature_names`, and the arrays of `by_owner`.

    Raises:
      InputError: the file is missing, or holds no window.
    """
    steps = WISDM_STEPS if steps is None else steps
    check_range(POSITIVE, steps=steps)
    file = folder / WISDM_FILE
    lines = existing(file).read_text("latin-1").splitlines()
    readings, recordings, damaged = [], [], []
    recording, before = 0, None
    for number, line in enumerate(track(lines, f"reading {WISDM_FILE}", len(lines)), start=1):
        for record in filter(None, map(str.strip, line.split(";"))):
            reading = _reading(record)
            if reading is None:
                damaged.append(number)
                continue
            if before is None or before[:2] != reading[:2] or not 0 <= reading[2] - before[2] < GAP:
                recording += 1
            before = reading
            recordings.append(recording)
            readings.append(reading)
    check(
        bool(readings), f"{file} holds no record of person,activity,time,x,y,z;: download it again"
    )
    if damaged:
        warn(
            f"{len(damaged):,} of {len(damaged) + len(readings):,} records of {file} are damaged, "
            f"the first in line {damaged[0]:,}: left out"
        )
    rows = cut(recordings, steps, steps)
    check(
        len(rows) > 0,
        f"{file} holds no {steps} readings of one recording: give fewer --steps",
    )
    values = np.array([reading[3:] for reading in readings], np.float32) / np.float32(GRAVITY)
    persons = np.array([reading[0] for reading in readings])[rows[:, 0]]
    labels = np.array([ACTIVITIES.index(readings[row][1]) for row in rows[:, 0]], np.int32)
    windows = values[rows]
    parts = {
        str(person): [(windows[persons == person], labels[persons == person])]
        for person in np.unique(persons)
    }
    names = np.array([f"acceleration {axis}" for axis in "xyz"])
    return by_owner(parts, ACTIVITIES) | {"feature_names": names}


Reading = tuple[int, str, int, float, float, float]  # person, activity, time, acceleration


def _reading(record: str) -> Reading | None:
    """The fields of a record; None if it is damaged. Some whole ones end with a comma."""
    fields = [field.strip() for field in record.removesuffix(",").split(",")]
    if len(fields) != 6 or fields[1] not in ACTIVITIES:
        return None
    person, activity, time, *values = fields
    if not (person.isascii() and person.isdigit() and len(person) < 5):
        return None
    if not (time.isascii() and time.isdigit() and len(time) < 20):
        return None
    if not all(len(value) < 40 and NUMBER.fullmatch(value) for value in values):
        return None
    x, y, z = map(float, values)
    if max(abs(x), abs(y), abs(z)) > 1000:
        return None
    return int(person), activity, int(time), x, y, z
