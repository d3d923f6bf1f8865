"""UCI heart disease: four hospitals, the natural clients of a small medical federation."""

from pathlib import Path

import numpy as np

from jaxfl.core.errors import check
from jaxfl.data.arrays import from_arrays, read_npz
from jaxfl.data.source import Source

HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")


def load_heart_disease(file: Path) -> Source:
    """Whether a patient has a heart disease, from 13 findings; the owners are four hospitals.

    Findings are standardised over all hospitals. A missing value is replaced by the mean (0); a
    hospital often misses a finding for all of its patients. Each finding has a second column that
    says whether it was measured: 26 features in all. There is no test set.

    Args:
      file: npz with x [920, 13] (NaN where missing), y [920] in {0, 1}, hospital [920].

    Raises:
      InputError: the file is damaged, or a column is missing for all patients.
    """
    arrays = read_npz(file, ("x", "y", "hospital"))
    x = arrays["x"]
    check(
        x.ndim == 2
        and x.dtype.kind == "f"
        and not np.isinf(x).any()
        and not np.isnan(x).all(axis=0).any(),
        f"x of {file} has shape {x.shape} and type {x.dtype}: expected real numbers [patients, 13],"
        " all finite or NaN and no column all NaN; remove the file and prepare it again",
    )
    x = x.astype(np.float32)
    mask = ~np.isnan(x)
    x = (x - np.nanmean(x, axis=0)) / np.maximum(np.nanstd(x, axis=0), 1e-6)
    findings = np.concatenate([np.where(mask, x, 0), mask], axis=1)
    hospitals = arrays["hospital"]
    known = np.array_equal(np.unique(hospitals), np.arange(len(HOSPITALS)))
    names = HOSPITALS if known else ()
    source = from_arrays(findings, arrays["y"], owners=hospitals, owner_names=names, name=str(file))
    # As in the first version, whose numbers are published.
    return source._replace(split="random")
