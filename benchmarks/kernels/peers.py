"""What the server's kernels are compared with: NumPy, SciPy, scikit-learn and jaxopt.

Each function takes a kernel's arguments as NumPy arrays and computes the same.
`tests/benchmarks/test_benchmarks.py` compares the results.
"""

import functools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import scipy.stats
from scipy.cluster import hierarchy
from scipy.optimize import minimize
from scipy.spatial import distance
from sklearn.cluster import KMeans

from jaxfl.kernels.projection import capped_rows_by_jaxopt

NEGATIVE_SLOPE = 0.2  # of the LeakyReLU in attention


def dice(x: np.ndarray) -> np.ndarray:
    """2 <a, b> / (|a|^2 + |b|^2) [M, M]."""
    products = x @ x.T
    squares = np.diagonal(products)
    return 2 * products / (squares[:, None] + squares[None])


def inverse_norms(x: np.ndarray) -> np.ndarray:
    """One over the norm of each row [M]."""
    return 1 / np.linalg.norm(x, axis=1)


def kmeans_inertia(x: np.ndarray) -> float:
    """Scikit-learn's k-means with 5 clusters and ten restarts."""
    # A checker takes the argument for a text, as its default is one.
    kmeans = KMeans(5, n_init=10, random_state=0)  # pyright: ignore[reportArgumentType]
    return float(kmeans.fit(x).inertia_ or 0.0)


def centres(x: np.ndarray, assignment: np.ndarray, clusters: int = 5) -> np.ndarray:
    """The mean of each cluster [K, D]."""
    return np.stack([x[assignment == k].mean(axis=0) for k in range(clusters)])


def krum(x: np.ndarray) -> np.ndarray:
    """Krum with as many malicious clients as the rule allows [M]."""
    count = len(x)
    malicious = (count - 3) // 2
    near = np.sort(distance.cdist(x, x, "sqeuclidean"), axis=1)[:, 1 : count - malicious - 1]
    chosen = np.argsort(near.sum(axis=1), kind="stable")[: count - malicious]
    weights = np.zeros(count, x.dtype)
    weights[chosen] = 1 / len(chosen)
    return weights


def trimmed_mean(x: np.ndarray) -> np.ndarray:
    """The mean without a fifth of the values at each end [D]."""
    return scipy.stats.trim_mean(x, 0.2, axis=0)


def clip_updates(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Updates cut to their median norm [M, D]."""
    updates = after - before
    norms = np.linalg.norm(updates, axis=1)
    return before + updates * np.minimum(1, np.median(norms) / norms)[:, None]


def geometric_median(x: np.ndarray, steps: int) -> np.ndarray:
    """Weiszfeld's algorithm from the mean [D]."""
    centre = x.mean(axis=0)
    for _ in range(steps):
        nearness = 1 / np.linalg.norm(x - centre, axis=1)
        centre = nearness @ x / nearness.sum()
    return centre


def layer_norm(x: np.ndarray) -> np.ndarray:
    """Each row with mean 0 and variance 1 [M, D]."""
    return (x - x.mean(axis=1, keepdims=True)) / x.std(axis=1, keepdims=True)


def projected(rows: np.ndarray) -> np.ndarray:
    """Each row projected onto the simplex by a sort [M, M]."""
    below = -np.sort(-rows, axis=1)
    shifts = (np.cumsum(below, axis=1) - 1) / np.arange(1, rows.shape[1] + 1)
    last = np.count_nonzero(below > shifts, axis=1) - 1
    return np.maximum(rows - shifts[np.arange(len(rows)), last][:, None], 0)


def slsqp(rows: np.ndarray, cap: float = 1.0) -> np.ndarray:
    """The same quadratic program by SciPy's SLSQP, row by row [M, M]."""
    size = rows.shape[1]

    def solve(row: np.ndarray) -> np.ndarray:
        return minimize(
            lambda w: 0.5 * np.sum((w - row) ** 2),
            np.full(size, 1 / size),
            jac=lambda w: w - row,
            bounds=[(0, cap)] * size,
            constraints={"type": "eq", "fun": lambda w: w.sum() - 1, "jac": np.ones_like},
            method="SLSQP",
        ).x

    return np.stack([solve(row.astype(float)) for row in rows])


@functools.cache
def _jaxopt_program(solver: str, cap: float):
    """A compiled function of rows [M, M] that solves the quadratic program of each row."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        import jaxopt

    def osqp(row: jax.Array) -> jax.Array:
        size = row.size
        equal = (jnp.ones((1, size)), jnp.ones(1))
        below = (
            jnp.concatenate([-jnp.eye(size), jnp.eye(size)]),
            jnp.repeat(jnp.array([0, cap]), size),
        )
        program = jaxopt.OSQP(tol=1e-4)
        return program.run(None, (jnp.eye(size), -row), equal, below).params.primal

    def gradient(row: jax.Array) -> jax.Array:
        if cap < 1:
            limits = (jnp.zeros_like(row), jnp.full_like(row, cap), jnp.ones_like(row), 1.0)
            project = jaxopt.projection.projection_box_section
        else:
            limits = 1.0
            project = jaxopt.projection.projection_simplex
        descent = jaxopt.ProjectedGradient(
            lambda w: 0.5 * jnp.sum((w - row) ** 2), project, maxiter=100, tol=1e-5
        )
        return descent.run(jnp.full(row.size, 1 / row.size), limits).params

    return jax.jit(jax.vmap(osqp if solver == "osqp" else gradient))


def jaxopt_osqp(rows: np.ndarray, cap: float = 1.0) -> np.ndarray:
    """The same quadratic program by jaxopt's OSQP, all rows side by side [M, M]."""
    return np.asarray(_jaxopt_program("osqp", cap)(rows))


@functools.cache
def _jaxopt_projection(cap: float):
    """The compiled projection of rows [M, M]."""
    return jax.jit(lambda rows: capped_rows_by_jaxopt(rows, jnp.full(rows.shape, cap)))


def jaxopt_bisection(rows: np.ndarray, cap: float = 1.0) -> np.ndarray:
    """Each row projected onto the simplex with caps by jaxopt's bisection [M, M]."""
    return np.asarray(_jaxopt_projection(cap)(rows))


def jaxopt_gradient(rows: np.ndarray, cap: float = 1.0) -> np.ndarray:
    """The same quadratic program by jaxopt's projected gradient, all rows side by side [M, M]."""
    return np.asarray(_jaxopt_program("gradient", cap)(rows))


def graph_rows(cosines: np.ndarray) -> np.ndarray:
    """Positive cosines over their sum [M, M]."""
    edges = np.maximum(cosines, 0)
    return edges / edges.sum(axis=1, keepdims=True)


def contraction(rows: np.ndarray, hops: int = 2) -> float:
    """Half the largest L1 distance of two rows of the power."""
    power = np.linalg.matrix_power(rows.astype(float), hops)
    return distance.pdist(power, "cityblock").max() / 2


def bipartition(similarity: np.ndarray) -> np.ndarray:
    """Single linkage down to two groups: who is not in the group of the first client [M]."""
    apart = distance.squareform(1 - similarity, checks=False)
    groups = hierarchy.fcluster(hierarchy.linkage(apart, "single"), 2, "maxclust")
    return groups != groups[0]


def attentive(distances: np.ndarray, alpha: float = 0.001, sigma: float = 1.0) -> np.ndarray:
    """FedAMP's weights [M, M]; alpha is so small that no row is scaled."""
    others = alpha / sigma * np.exp(-distances / sigma)
    np.fill_diagonal(others, 0)
    return others + np.diag(1 - others.sum(axis=1))


def heuristic(cosines: np.ndarray, own: float = 0.5, sigma: float = 10.0) -> np.ndarray:
    """HeurFedAMP's weights [M, M]."""
    exponent = sigma * cosines
    np.fill_diagonal(exponent, -np.inf)
    others = np.exp(exponent - exponent.max(axis=1, keepdims=True))
    weights = (1 - own) * others / others.sum(axis=1, keepdims=True)
    np.fill_diagonal(weights, own)
    return weights


def server_round(
    uploads: np.ndarray, before: np.ndarray, cells: np.ndarray, tau: float = 0.5
) -> tuple[np.ndarray, np.ndarray]:
    """GFedMtl's equations (14) to (18) for a ring of three servers with two clusters each.

    Returns:
      u of each client [M, D] and w [6, D].
    """
    means = [
        uploads[cells == cell].mean(axis=0) if (cells == cell).any() else before[cell]
        for cell in range(6)
    ]
    mean = np.stack(means).reshape(3, 2, -1)
    # (15)
    u = (mean + tau * mean[:, ::-1]) / (1 + tau)
    # (17), where each server is a neighbour of the two others, and (18)
    total = u.sum(axis=0, keepdims=True)
    foreign = tau * (total - u)[:, ::-1]
    w = (total / 3 + foreign) / (1 + 2 * tau)
    return u.reshape(6, -1)[cells], w.reshape(6, -1)


def admm_step(
    model: np.ndarray, dual: np.ndarray, shared: np.ndarray, rho: float = 0.1
) -> tuple[np.ndarray, np.ndarray]:
    """The upload and the new dual of each client, [M, D] each."""
    return model - dual / rho, dual + rho * (shared - model)


def attention_weights(score: str, x: np.ndarray, *maps: np.ndarray) -> np.ndarray:
    """Mixing weights of graph attention [M, M]."""
    return _attention(score, x, *maps)[0].mean(axis=2)


def attention_grads(
    score: str,
    x: np.ndarray,
    receiver: np.ndarray,
    sender: np.ndarray,
    vector: np.ndarray,
    cotangent: np.ndarray,
) -> tuple[np.ndarray, ...]:
    """The gradients by the parameters of the weights times the cotangent [M, M]."""
    weights, z, y, sums = _attention(score, x, receiver, sender, vector)
    heads = weights.shape[2]
    given = cotangent[:, :, None] / heads
    scores = weights * (given - (given * weights).sum(axis=1, keepdims=True))
    if score == "gat":
        scores = scores * np.where(sums > 0, 1, NEGATIVE_SLOPE)
        own = scores.sum(axis=1)
        other = scores.sum(axis=0)
        by_z = own[:, :, None] * vector[None, :, 0] + other[:, :, None] * vector[None, :, 1]
        by_vector = np.stack(
            [np.einsum("nh,nhk->hk", own, z), np.einsum("nh,nhk->hk", other, z)], axis=1
        )
        return np.tensordot(by_z, x, (0, 0)), by_vector
    if score == "gatv2":
        by_vector = np.einsum("ijh,ijhk->hk", scores, _leaky(sums))
        by_sums = scores[..., None] * vector * np.where(sums > 0, 1, NEGATIVE_SLOPE)
        by_z = by_sums.sum(axis=1)
        by_y = by_sums.sum(axis=0)
        return np.tensordot(by_z, x, (0, 0)), np.tensordot(by_y, x, (0, 0)), by_vector
    scores = scores * z.shape[2] ** -0.5
    by_z = np.matmul(scores.transpose(2, 0, 1), y.transpose(1, 0, 2))
    by_y = np.matmul(scores.transpose(2, 1, 0), z.transpose(1, 0, 2))
    return np.matmul(by_z.transpose(0, 2, 1), x), np.matmul(by_y.transpose(0, 2, 1), x)


def _leaky(x: np.ndarray) -> np.ndarray:
    """The LeakyReLU."""
    return np.where(x > 0, x, NEGATIVE_SLOPE * x)


def _attention(
    score: str, x: np.ndarray, receiver: np.ndarray, sender: np.ndarray, vector: np.ndarray
) -> tuple[np.ndarray, ...]:
    """The weights of each head [M, M, H], projections [M, H, k], and what the LeakyReLU takes."""
    z = np.tensordot(x, receiver, (1, 2))
    y = z if score == "gat" else np.tensordot(x, sender, (1, 2))
    sums = np.zeros(0)  # "dot" has none
    if score == "gat":
        own, other = np.einsum("nhk,hsk->snh", z, vector)
        sums = own[:, None] + other[None]
        scores = _leaky(sums)
    elif score == "gatv2":
        sums = z[:, None] + y[None]
        scores = np.einsum("ijhk,hk->ijh", _leaky(sums), vector)
    else:
        products = np.matmul(z.transpose(1, 0, 2), y.transpose(1, 2, 0))
        scores = products.transpose(1, 2, 0) * z.shape[2] ** -0.5
    exponents = np.exp(scores - scores.max(axis=1, keepdims=True))
    return exponents / exponents.sum(axis=1, keepdims=True), z, y, sums
