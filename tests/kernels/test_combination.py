"""FedPAC's combination of heads, beside the solution that its paper's program has."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import nnls

from jaxfl.kernels.combination import combination_rows

rng = np.random.default_rng(0)


@pytest.mark.long(every=4)
@pytest.mark.parametrize("clients", [10, 100])
@pytest.mark.parametrize("variance", [1e-1, 1e-5])
def test_clients_with_one_mean_and_one_variance_weigh_equally(clients, variance):
    mean = rng.standard_normal(64)
    means = np.tile(mean / np.linalg.norm(mean), (clients, 1))
    rows = combination_rows(
        jnp.full(clients, variance), jnp.asarray(means), jnp.ones(clients, bool)
    )
    np.testing.assert_allclose(rows, 1 / clients, atol=1e-6)


def solution(variances, means, client):
    """The least |A x|^2 with x >= 0 and sum x = 1, by an active set: A'A is the paper's matrix."""
    gaps = means[client] - means
    root = np.linalg.cholesky(np.diag(variances) + gaps @ gaps.T).T
    weight = 1e6 * np.linalg.norm(root)
    rows = np.vstack([root, np.full(len(means), weight)])
    x, _ = nnls(rows, np.append(np.zeros(len(means)), weight))
    return x / x.sum()


@pytest.mark.slow
@pytest.mark.parametrize("common", [0.0, 1.0, 100.0])
def test_a_part_that_all_means_share_changes_nothing(common):
    clients = 12
    variances = 1e-3 * rng.uniform(0.3, 3, clients)
    # The same numbers in float32 and in float64.
    means = np.float32(common + 0.1 * rng.standard_normal((clients, 20))).astype(float)
    reported = np.arange(clients) != 5
    # Who has not reported may be far from all others.
    means[5] = 1e4
    rows = combination_rows(jnp.asarray(variances), jnp.asarray(means), jnp.asarray(reported))
    assert not rows[:, 5].any()
    for client in np.flatnonzero(reported):
        expected = solution(variances[reported], means[reported], np.sum(reported[:client]))
        np.testing.assert_allclose(rows[client, reported], expected, atol=2e-4)
