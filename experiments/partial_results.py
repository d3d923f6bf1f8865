"""The results of a script that goes on after a stop, in one JSON file: `options` and `results`."""

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxfl.core.errors import InputError, check
from jaxfl.experiment.store import files

Results = dict[str, Any]  # by the name of a part: an array, or a dict of such


def load(file: Path, options: dict[str, Any]) -> Results:
    """The results that a file has; none if there is no file.

    Args:
      file: what `save` wrote.
      options: those of this run, which JSON can hold.

    Raises:
      InputError: the file is not JSON, or its results are those of other options.
    """
    if not file.exists():
        return {}
    try:
        content = json.loads(file.read_text())
    except ValueError as error:
        raise InputError(f"{file} is not JSON: give another --out, or remove it") from error
    check(
        isinstance(content, dict) and content.get("options") == json.loads(json.dumps(options)),
        f"{file} has results of other options, which are not written over: give another --out, or "
        "remove it",
    )
    return jax.tree.map(np.asarray, content["results"], is_leaf=lambda x: isinstance(x, list))


def save(file: Path, options: dict[str, Any], results: Results) -> None:
    """Writes the options and the results of a run, and makes the folder if there is none."""
    plain = jax.tree.map(lambda x: np.asarray(x).tolist(), results)
    files.make_directory(file.parent)
    files.write_json(file, {"options": options, "results": plain})
