"""UCI heart disease: four hospitals, the natural clients of a small medical federation."""

from pathlib import Path

import numpy as np

from jaxfl.data.arrays import Source, from_arrays, read_npz
from jaxfl.errors import check


def heart_disease(file: Path) -> Source:
    """Whether a patient has a heart disease, from 13 findings; four hospitals are the clients; no test set.

    Numbers are standardised over all hospitals. What a hospital did not measure, often for all of
    its patients, is the mean (0), and each finding has a second column that says whether it was
    measured: 26 features in all.

    Args:
      file: npz with x [920, 13] (NaN where missing), y [920] in {0, 1}, hospital [920].
    """
    held = read_npz(file, ("x", "y", "hospital"))
    x = held["x"]
    check(
        x.ndim == 2
        and x.dtype.kind == "f"
        and not np.isinf(x).any()
        and not np.isnan(x).all(axis=0).any(),
        f"x of {file} has shape {x.shape} and type {x.dtype}: expected real numbers [patients, 13], none of them "
        "infinite and no column missing throughout; remove the file and prepare it again",
    )
    x = x.astype(np.float32)
    known = ~np.isnan(x)
    x = (x - np.nanmean(x, axis=0)) / np.maximum(np.nanstd(x, axis=0), 1e-6)
    findings = np.concatenate([np.where(known, x, 0), known], axis=1)
    return from_arrays(findings, held["y"], owners=held["hospital"], name=str(file))
