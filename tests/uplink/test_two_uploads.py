"""Methods whose clients upload twice in a round, under noise."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import jit, opposite_groups, quick_key, shallow

from jaxfl.algorithms import gfedmtl, pfedgat
from jaxfl.core import tree
from jaxfl.core.types import Cohort
from jaxfl.uplink import gaussian


def drawn(factory, **options):
    """The noise of each upload of a round [uploads, M * D]."""
    plain = shallow()
    noise = gaussian(1.0, 1.0)
    found = []

    def upload(key, before, after, ids, lost=None):
        still = noise(key, before, before, ids)
        found.append((tree.ravel(still) - tree.ravel(before)).ravel())
        return plain.upload(key, before, after, ids, lost)

    algorithm = factory(plain._replace(upload=upload), **options)

    def round(key, state, federation):
        found.clear()
        ids = jnp.arange(federation.train.mask.shape[0])
        algorithm.round(key, state, Cohort(ids, federation.train, federation.val))
        return list(found)

    data = opposite_groups()
    key = quick_key(0)
    return np.array(jax.jit(round)(key, jit(algorithm.init)(key, data.train), data))


@pytest.mark.long(every=2)
@pytest.mark.parametrize(
    ("make", "options"),
    [(pfedgat, {"wire": "gradient"}), (gfedmtl, {"tau": "learned", "servers": 1})],
    ids=["pfedgat", "gfedmtl"],
)
def test_the_noises_of_two_uploads_of_a_round_are_independent(make, options):
    noises = drawn(make, **options)
    assert noises.shape[0] == 2
    size = noises.shape[1]
    assert size > 400
    assert np.abs(noises.std(axis=1) - 1).max() < 5 / np.sqrt(2 * size)
    assert abs(np.corrcoef(noises)[0, 1]) < 5 / np.sqrt(size)
    # No client has the noise of another client, in either upload.
    clients = noises.reshape(-1, size // 6)
    correlations = np.corrcoef(clients) - np.eye(len(clients))
    assert np.abs(correlations).max() < 5 / np.sqrt(size // 6)
