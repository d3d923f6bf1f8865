"""What a graph of mixing weights is judged by: how many collaborate, and whether they should.

All functions take the weights W [M, M] (receiver, sender) of one round, whose rows sum to one, on
the host. Numbers of all eigenvalues or singular values would cost more than the rounds of thousands
of clients; these are approximated, with an error that the functions state.
"""

from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from jaxfl.core.edges import SparseRows
from jaxfl.core.errors import InputError, check

EXACT = 512  # clients at most, of whom all singular values are computed
EXACT_DIRECTED = 256  # clients at most, of whose directed graph all eigenvalues are computed
BLOCK = 8  # vectors by which a Krylov space grows
ERROR = 1e-3  # of a singular value, at most
DOUBLINGS = 12  # of the number of products
STEADY = 1e-4  # difference of two estimates of an eigenvalue, of which the second one is taken
SPARSE = 0.1  # share of the weights that are not 0, below which products leave out the others

Weights = Float[np.ndarray, "m m"]
Groups = Int[np.ndarray, "m"]


def measure_graph(
    weights: Weights,
    groups: Groups | None = None,
    malicious: Bool[np.ndarray, "m"] | None = None,
) -> dict[str, float | None]:
    """Numbers that describe a graph of mixing weights, by name.

    Malicious clients do not count as receivers, except in `second_singular_value`, and the groups
    are those of the benign clients.

    Args:
      weights: of one round.
      groups: the true group of each client; None if all clients differ.
      malicious: which clients attack; None if nobody does.

    Returns:
      `collaborators`, `self_weight`, `second_singular_value`; with two groups or more
      `group_agreement`, `edge_precision`, `edge_recall`; with malicious clients
      `malicious_weight`. None where a number is not defined. The functions of this module say what
      each of them is.

    Raises:
      InputError: the weights are no matrix [M, M].

    Example:
      >>> weights = np.kron(np.eye(2), np.full((2, 2), 0.5))  # two groups of two clients
      >>> measures = measure_graph(weights, groups=np.array([0, 0, 1, 1]))
      >>> measures["collaborators"], measures["self_weight"], measures["second_singular_value"]
      (2.0, 0.5, 1.0)
      >>> measures["group_agreement"], measures["edge_precision"], measures["edge_recall"]
      (1.0, 1.0, 1.0)
    """
    if isinstance(weights, dict):
        raise InputError(
            f"the weights are those of the parts {', '.join(map(str, weights))}: measure those of "
            "one part"
        )
    weights = np.asarray(weights, float)
    check(
        weights.ndim == 2 and weights.shape[0] == weights.shape[1],
        f"the weights have shape {weights.shape}: expected [M, M], those of one round",
    )
    if malicious is None:
        malicious = np.zeros(len(weights), bool)
    benign = ~malicious
    if not benign.any() or not np.isfinite(weights).all():
        return {}
    measures: dict[str, float | None] = {
        "collaborators": float(effective_collaborators(weights)[benign].mean()),
        "self_weight": float(np.diagonal(weights)[benign].mean()),
        "second_singular_value": second_singular_value(weights),
    }
    if groups is not None and np.unique(groups[benign]).size > 1:
        between = weights[np.ix_(benign, benign)]
        precision, recall = edge_precision_recall(between, groups[benign])
        measures["group_agreement"] = group_agreement(between, groups[benign])
        measures["edge_precision"] = precision
        measures["edge_recall"] = recall
    if malicious.any():
        measures["malicious_weight"] = float(weights[np.ix_(benign, malicious)].sum(axis=1).mean())
    # Six digits: the last ones of a singular value depend on the linear algebra library.
    return {name: None if value is None else round(value, 6) for name, value in measures.items()}


def effective_collaborators(weights: Weights) -> Float[np.ndarray, "m"]:
    """How many clients each receiver listens to: exp of the entropy of its weights [M].

    1 for a client that keeps its own model, M for a client that weighs all M clients equally.

    Example:
      >>> effective_collaborators(np.array([[1.0, 0.0], [0.5, 0.5]])).round(6).tolist()
      [1.0, 2.0]
    """
    positive = np.where(weights > 0, weights, 1.0)
    return np.exp(-np.sum(positive * np.log(positive), axis=1))


def second_singular_value(weights: Weights) -> float:
    """How far the clients are from one common model: 0 if all rows are equal, 1 without mixing.

    It is at most 1 if the columns sum to one too. Where few clients are heard by many it can be
    larger, up to sqrt(M / 2), if one half of the clients hears one client only and the other half
    another one.

    Up to 512 clients it is exact. Of more clients it is a Ritz value of a block Krylov space, which
    grows until two values agree to 0.001 and the residual is as small; the true value is not
    smaller, and in practice as near. That takes some hundred products of the matrix with a vector.
    Where the space would become so large that it saves nothing, the value is exact again.

    Source: Musco and Musco 2015, Randomized Block Krylov Methods for Stronger and Faster
    Approximate Singular Value Decomposition, Algorithm 2, https://arxiv.org/abs/1504.05477.

    Example:
      >>> second_singular_value(np.full((3, 3), 1 / 3)), second_singular_value(np.eye(3))
      (0.0, 1.0)
    """
    if len(weights) == 1:
        return 0.0
    # In float64, so that a value near 0 is told from rounding beside a large first one.
    value = _second_ritz_value(np.asarray(weights, float)) if len(weights) > EXACT else None
    if value is None:
        value = float(np.linalg.svd(weights, compute_uv=False)[1])
    return round(value, 6)


def _second_ritz_value(weights: Float[np.ndarray, "m m"]) -> float | None:
    """The second largest singular value of W in a block Krylov space of W'W, from below.

    None if a space of a third of all dimensions is too small.
    """

    def orthogonal(block: np.ndarray) -> np.ndarray:
        """A basis of what the block adds; twice, since the first time leaves a rest."""
        for _ in range(2):
            block = np.linalg.qr(block - basis @ (basis.T @ block))[0]
        return block

    clients = len(weights)
    basis = np.zeros((clients, 0))  # Q
    images, back = basis, basis  # W Q and W'W Q
    block = np.random.default_rng(0).standard_normal((clients, BLOCK))
    before = np.inf
    # A direction apart from many that are alike has a small part in the first blocks.
    size = 4 * BLOCK
    while size <= clients / 3:
        while basis.shape[1] < size:
            block = orthogonal(block)
            basis = np.hstack([basis, block])
            images = np.hstack([images, weights @ block])
            block = weights.T @ images[:, -BLOCK:]
            back = np.hstack([back, block])
        # Rayleigh and Ritz: the eigenvalues of Q'W'WQ are squares of singular values.
        squares, vectors = np.linalg.eigh(images.T @ images)
        square, vector = max(float(squares[-2]), 0.0), vectors[:, -2]
        change, before = abs(np.sqrt(square) - before), np.sqrt(square)
        # An eigenvalue of W'W is as near as the norm of the residual.
        residual = float(np.linalg.norm(back @ vector - square * (basis @ vector)))
        if change <= ERROR and np.sqrt(square + residual) - np.sqrt(square) <= ERROR:
            return float(np.linalg.svd(images, compute_uv=False)[1])
        size *= 2
    return None


def spectral_gap(weights: Weights | SparseRows) -> float:
    """One minus the second largest modulus of an eigenvalue of weights whose rows sum to one.

    With a gap of g, models that are only mixed approach their limit by a factor of 1 - g in each
    round. 0: the graph is not connected, or goes around a circle; 1: one round is enough.

    Of symmetric weights the moduli are the singular values, see `second_singular_value`. Else, up
    to 256 clients, all eigenvalues are computed. Of more clients, and of sparse rows, a few vectors
    are multiplied by the matrix less 1 / M, whose eigenvalues are the same but for one 1 that is 0
    there, up to 4,095 times, until they shrink by the same factor in twice as many products. The
    error is then mostly below 0.001. But on a directed graph that is long and thin, vectors may
    shrink more slowly than the moduli say in many products: the gap is then that of these products,
    and smaller.

    Args:
      weights: a matrix, or sparse rows, of which no matrix is made.

    Returns:
      The gap, from 0 to 1; NaN if a weight is not finite.

    Example:
      >>> spectral_gap(np.array([[0.75, 0.25], [0.25, 0.75]]))
      0.5
    """
    if isinstance(weights, SparseRows):
        return _gap_of_rows(weights)
    weights = np.asarray(weights, float)
    if not np.isfinite(weights).all():
        return float("nan")
    if len(weights) == 1:
        return 1.0
    if np.array_equal(weights, weights.T):
        modulus = second_singular_value(weights)
    elif len(weights) <= EXACT_DIRECTED:
        modulus = float(np.sort(np.abs(np.linalg.eigvals(weights)))[-2])
    else:
        modulus = _modulus_by_powers(weights)
    return round(min(max(1 - modulus, 0.0), 1.0), 6)


def _gap_of_rows(rows: SparseRows) -> float:
    """The spectral gap of sparse rows."""
    from scipy.sparse import csr_array

    columns, values = np.asarray(rows.columns), np.asarray(rows.values, float)
    if not np.isfinite(values).all():
        return float("nan")
    clients, count = columns.shape
    places = np.repeat(np.arange(clients), count), columns.ravel()
    matrix = csr_array((values.ravel(), places), shape=(clients, clients))
    return round(min(max(1 - _modulus_by_powers(matrix), 0.0), 1.0), 6)


def _modulus_by_powers(weights: Any) -> float:
    """The second largest modulus: the growth of some vectors over 1, 2, 4, ... products.

    Args:
      weights: a matrix of NumPy or of SciPy [M, M].
    """
    from scipy.sparse import csr_array

    matrix = weights
    if isinstance(weights, np.ndarray) and np.count_nonzero(weights) < SPARSE * weights.size:
        matrix = csr_array(weights)
    vectors = np.random.default_rng(0).standard_normal((weights.shape[0], 4))
    growths = [np.inf]
    for doubling in range(DOUBLINGS):
        logarithm = 0.0
        for _ in range(2**doubling):
            vectors = matrix @ vectors - vectors.mean(axis=0)
            # Not by BLAS, whose threads take longer than the sum of so few squares.
            norm = float(np.sqrt(np.square(vectors).sum()))
            if norm == 0:
                return 0.0
            logarithm += np.log(norm)
            vectors /= norm
        growths.append(float(np.exp(logarithm / 2**doubling)))
        if doubling > 3 and abs(growths[-1] - growths[-2]) < STEADY:
            break
    return growths[-1]


def group_agreement(weights: Weights, groups: Groups) -> float:
    """Adjusted Rand index of the blocks of the weights and the true groups.

    The blocks are found from the weights in both directions, W + W', by hierarchical clustering
    with average linkage into as many blocks as there are groups. 1: the blocks are the groups;
    about 0: they have no more in common than blocks drawn at random; 0 if all weights between
    different clients are equal.

    Source: Hubert and Arabie 1985, Comparing partitions,
    https://doi.org/10.1007/BF01908075.

    Example:
      >>> weights = np.kron(np.eye(2), np.full((2, 2), 0.5))
      >>> group_agreement(weights, np.array([0, 0, 1, 1]))
      1.0
    """
    from sklearn.cluster import AgglomerativeClustering
    from sklearn.metrics import adjusted_rand_score

    both = weights + weights.T
    distances = both.max() - both
    between = distances[~np.eye(len(weights), dtype=bool)]
    if np.ptp(between) <= 1e-6 * np.abs(both).max():
        return 0.0
    np.fill_diagonal(distances, 0.0)
    clustering = AgglomerativeClustering(
        np.unique(groups).size, metric="precomputed", linkage="average"
    )
    return float(adjusted_rand_score(groups, clustering.fit_predict(distances)))


def weight_within_groups(weights: Weights, groups: Groups) -> float:
    """The weight that a client gives to the clients of its group, with itself; mean over clients.

    1: it listens to its group alone. If all weights are 1 / M it is the mean share of a client's
    group among all clients.

    Example:
      >>> weight_within_groups(np.full((4, 4), 0.25), np.array([0, 0, 0, 1]))
      0.625
    """
    same = groups[:, None] == groups[None]
    return float(np.sum(weights * same, axis=1).mean())


def edge_precision_recall(weights: Weights, groups: Groups) -> tuple[float | None, float | None]:
    """Precision and recall of the edges between clients of the same group.

    An edge goes from a sender to each receiver that gives it more than the mean of the weights that
    this receiver gives to other clients. Precision is the share of edges within a group, recall
    the share of the pairs (receiver, other client of its group) that have an edge.

    Returns:
      (precision, recall); None for the precision without edges, and for the recall if no group has
      two clients.

    Example:
      >>> weights = np.array([[0.5, 0.4, 0.1], [0.1, 0.5, 0.4], [0.25, 0.25, 0.5]])
      >>> edge_precision_recall(weights, np.array([0, 0, 1]))
      (0.5, 0.5)
    """
    others = ~np.eye(len(weights), dtype=bool)
    mean = np.sum(weights * others, axis=1, keepdims=True) / max(len(weights) - 1, 1)
    # Equal weights differ by rounding, and make no edge.
    edges = others & (weights > mean * (1 + 1e-4))
    same = others & (groups[:, None] == groups[None])
    hits = int((edges & same).sum())
    precision = hits / int(edges.sum()) if edges.any() else None
    recall = hits / int(same.sum()) if same.any() else None
    return precision, recall
