"""Readers of what the files of runs, comparisons and searches hold, see `records`."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jaxfl.core.errors import InputError
from jaxfl.experiment.config import parse_json
from jaxfl.experiment.store.parse import parse
from jaxfl.experiment.store.records import (
    ComparisonRun,
    Digests,
    Line,
    Plan,
    Search,
    Summary,
    Trial,
    TrialLine,
)


def read_summary(file: Path, mend: str = "run again") -> Summary:
    """The summary of a run.

    Args:
      file: `summary.json`.
      mend: what to do if it is none, for the message.

    Raises:
      InputError: the file cannot be read or has a wrong field.
    """
    with _input_errors(f"{file.parent} is no run of jaxfl", mend):
        summary: Summary = _parse_text(file.read_text(), Summary, file)
        label = summary.get("label", "none")
        if not summary["algorithm"].isidentifier():
            raise ValueError(f"{file.name}: algorithm is no name of a method")
        if not (label.isprintable() and label.strip()):
            raise ValueError(f"{file.name}: label is no name")
    return summary


def read_lines(file: Path, mend: str = "run again") -> list[Line]:
    """The lines of `metrics.jsonl`.

    Args:
      file: with the lines.
      mend: as in `read_summary`.

    Raises:
      InputError: as `read_summary`.
    """
    with _input_errors(f"{file.parent} is no run of jaxfl", mend):
        texts = enumerate(file.read_text().splitlines(), start=1)
        return [_parse_text(text, Line, file, f", line {number}") for number, text in texts]


def read_comparison(file: Path) -> list[ComparisonRun]:
    """The entries of `comparison.json`.

    Raises:
      InputError: the file cannot be read or has a wrong field.
    """
    mend = "remove it, or name the runs"
    return _read(file, list[ComparisonRun], "is no comparison of jaxfl", mend)


def read_search(file: Path) -> Search:
    """The content of `sweep.json`.

    Raises:
      InputError: the file cannot be read or has a wrong field.
    """
    with _input_errors(f"{file} is no search of jaxfl", "run jaxfl sweep again"):
        search: Search = _parse_text(file.read_text(), Search, file)
        names = {tuple(trial["point"]) for trial in search["trials"]}
        if len(names) != 1:
            raise ValueError(f"{file.name}: trials do not have one set of names")
    return search


def read_plan(file: Path) -> Plan:
    """The content of `search.json`.

    Raises:
      InputError: the file cannot be read or has a wrong field.
    """
    return _read(file, Plan, "is no search of jaxfl", "run jaxfl sweep again")


def read_trials(file: Path, points: list[dict[str, Any]]) -> dict[int, Trial]:
    """The trials of a search so far, by their places in the list of points; none without a file.

    Raises:
      InputError: the file cannot be read or has a wrong field.
    """
    if not file.exists():
        return {}
    trials: dict[int, Trial] = {}
    with _input_errors(f"{file} holds no trials of jaxfl", "remove it, and all trials run again"):
        for number, text in enumerate(file.read_text().splitlines(), start=1):
            line: TrialLine = _parse_text(text, TrialLine, file, f", line {number}")
            if line["place"] not in range(len(points)):
                raise ValueError(f"{file.name}, line {number}: there is no such trial")
            point = points[line["place"]]
            test = line["test_not_for_choosing"]
            trials[line["place"]] = {"point": point, "val": line["val"], "test": test}
    return trials


def read_digests(file: Path) -> Digests:
    """The content of `inputs.json`.

    Raises:
      InputError: the file cannot be read or has a wrong field.
    """
    return _read(file, Digests, "does not say what was read", "run anew with --overwrite")


def _read(file: Path, hint: Any, fault: str, mend: str) -> Any:
    """The JSON value of a file, which fits the hint.

    Raises:
      InputError: it does not; the message says the fault and how to mend it.
    """
    with _input_errors(f"{file} {fault}", mend):
        return _parse_text(file.read_text(), hint, file)


@contextmanager
def _input_errors(what: str, mend: str) -> Iterator[None]:
    """Within, what is wrong with a file is an `InputError`."""
    try:
        yield
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InputError(f"{what} ({reason!s:.200}): {mend}") from error


def _parse_text(text: str, hint: Any, file: Path, place: str = "") -> Any:
    """A JSON value of a file, or of a place in it, which fits the hint.

    Raises:
      ValueError: it does not; the message names the file and the field.
    """
    try:
        value = parse_json(text)
        parse(value, hint)
    except ValueError as error:
        raise ValueError(f"{file.name}{place}: {error}") from error
    return value
