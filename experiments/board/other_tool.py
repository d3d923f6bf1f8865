"""A row that jaxfl does not train: each client's own logistic regression, by scikit-learn.

`python -m experiments.board example DIR` reads what `python -m experiments.board data` wrote there,
for all settings of which all seeds are there, and writes DIR/row.json. Take this file as the
beginning of a row of your own tool.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import sklearn
from sklearn.linear_model import LogisticRegression
from tyro.conf import Positional

from experiments.board.rows import FORMAT
from experiments.board.settings import SEEDS, SETTINGS, file_of
from jaxfl.core.errors import check
from jaxfl.experiment.store import files

LINK = "https://scikit-learn.org/stable/modules/linear_model.html#logistic-regression"


def score_alone(arrays: Any, client: int) -> tuple[float, int]:
    """The accuracy of a client that trains by itself, and how many gradients it computes."""

    def examples(part: str) -> tuple[np.ndarray, np.ndarray]:
        mask = arrays[f"{part}_mask"][client] > 0
        x, y = arrays[f"{part}_x"][client], arrays[f"{part}_y"][client]
        return x[mask].reshape(mask.sum(), -1) / 16, y[mask]

    x, y = examples("train")
    if len(np.unique(y)) == 1:
        # scikit-learn fits two labels or more.
        return float((examples("test")[1] == y[0]).mean()), 0
    model = LogisticRegression(max_iter=1000).fit(x, y)
    return float(model.score(*examples("test"))), int(model.n_iter_.max())


def entry(paths: list[Path]) -> dict[str, Any]:
    """What the row says of one setting, from the file of each seed."""
    scores, gradients = [], []
    for path in paths:
        with np.load(path, allow_pickle=False) as arrays:
            unseen = arrays["unseen"]
            each = np.array([score_alone(arrays, client) for client in range(len(unseen))])
        scores.append(np.round(each[:, 0], 5).tolist())
        gradients.append(each[~unseen, 1].mean())
    # Nothing is sent, and a model that is trained to the end has no more to learn.
    return {
        "deployed": scores,
        "fine_tuned": scores,
        "floats": 0,
        "gradients": round(float(np.mean(gradients))),
    }


def write_row(folder: Positional[Path]) -> None:
    """Writes the row of another tool, from the arrays of a folder.

    Args:
      folder: of the arrays.
    """
    of = {name: [folder / file_of(name, seed) for seed in range(SEEDS)] for name in SETTINGS}
    whole = {name: entry(paths) for name, paths in of.items() if all(p.exists() for p in paths)}
    check(
        bool(whole),
        f"{folder} has no setting: write one with `python -m experiments.board data SETTING "
        f"--out {folder}`",
    )
    row = {
        "format": FORMAT,
        "method": "logistic regression, alone",
        "by": f"scikit-learn {sklearn.__version__}",
        "link": LINK,
        "settings": whole,
    }
    files.write_file(folder / "row.json", json.dumps(row) + "\n")
    print(f"written to {folder / 'row.json'}")
