import jax.numpy as jnp
import numpy as np
import pytest

from jaxfl.core.errors import InputError
from jaxfl.kernels.simplex import alpha_for_groups, collaboration_rows


def test_only_similarity():
    """Negative similarities count as 0; a row without a positive one keeps its own model."""
    similarity = jnp.array([[1.0, 0.5, -0.3], [0.2, 0.2, 0.0], [-1.0, -0.1, 0.0]])
    rows = collaboration_rows(similarity, jnp.full(3, 1 / 3), None, "code", "none")
    np.testing.assert_allclose(rows, [[2 / 3, 1 / 3, 0], [0.5, 0.5, 0], [0, 0, 1]], rtol=1e-6)


@pytest.mark.long(every=6)
@pytest.mark.parametrize(("clients", "size"), [(10, 2), (100, 20), (1000, 20)])
@pytest.mark.parametrize(("within", "between"), [(1.0, 0.04), (0.52, 0.04)])
def test_an_alpha_for_groups_tells_groups_of_any_share_of_the_cohort_apart(
    clients, size, within, between
):
    group = np.arange(clients) // size
    same = group[:, None] == group[None]
    cosines = np.where(same, within, between)
    np.fill_diagonal(cosines, 1.0)
    p = np.full(clients, 1 / clients)
    # The smallest group of the docstring, solved for `size`, rounded down.
    smallest = max(int(size * (within - between) / (1 - between)), 1)
    alpha = alpha_for_groups(jnp.asarray(cosines), smallest)
    rows = np.asarray(collaboration_rows(jnp.asarray(cosines), jnp.asarray(p), alpha, "code"))
    assert rows[~same].max() < 1e-6
    assert rows[same].min() > 0
    if clients > 100:
        mixed = collaboration_rows(jnp.asarray(cosines), jnp.asarray(p), None, "code")
        assert float(mixed[~same].min()) > 0


@pytest.mark.slow
@pytest.mark.parametrize("clients", [10, 100, 1000])
def test_an_alpha_for_groups_mixes_all_clients_where_there_are_no_groups(clients):
    cosines = jnp.full((clients, clients), 0.3).at[jnp.diag_indices(clients)].set(1.0)
    p = jnp.full(clients, 1 / clients)
    alpha = alpha_for_groups(cosines, 5)
    rows = np.asarray(collaboration_rows(cosines, p, alpha, "code"))
    others = rows[0, 1:]
    np.testing.assert_allclose(others, others[0], rtol=1e-4)
    np.testing.assert_allclose(rows[0, 0] - others[0], 1 / 5, atol=1e-3)


@pytest.mark.parametrize("alpha", [1e-3, 1e-6])
def test_sizes_decide_between_equal_models_however_small_alpha_is(alpha):
    """Where all similarities are equal the weights are the sizes."""
    p = np.array([0.1, 0.2, 0.7])
    rows = collaboration_rows(jnp.full((3, 3), 0.83), jnp.asarray(p), alpha, "code")
    np.testing.assert_allclose(rows, np.tile(p, (3, 1)), atol=1e-6)


def test_an_alpha_for_groups_ignores_clients_that_have_not_reported():
    similarity = np.float32(np.random.default_rng(0).uniform(-1, 1, (9, 9)))
    there = np.array([0, 2, 3, 7])
    reported = np.isin(np.arange(9), there)
    few = similarity[np.ix_(there, there)]
    similarity[:, ~reported] = -1e30
    found = alpha_for_groups(jnp.asarray(similarity), 2, jnp.asarray(reported))
    assert found == alpha_for_groups(jnp.asarray(few), 2)


def test_caps_are_refused_where_no_program_is_solved():
    with pytest.raises(InputError, match="have no caps"):
        collaboration_rows(jnp.eye(3), jnp.full(3, 1 / 3), 0.5, "code", "none", caps=0.4)
