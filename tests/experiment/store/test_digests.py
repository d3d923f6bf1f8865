"""Digests of what a checkpoint rests on."""

import numpy as np

from jaxfl.experiment.store import digests


def test_digests_of_arrays_see_types_shapes_and_values():
    x = np.arange(6, dtype=np.float32)
    others = [x.astype(np.float64), x.reshape(2, 3), x + 1, [x[:3], x[3:]], np.zeros(0)]
    found = {digests.digest_arrays(y) for y in [x, *others]}
    assert len(found) == 6
    assert digests.digest_arrays(x.copy()) == digests.digest_arrays(x)
