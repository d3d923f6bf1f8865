"""Aggregation that looks for malicious updates: by their spectrum, or by an update one trusts."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from jaxfl.core import tree
from jaxfl.core.columns import column_max, column_sum
from jaxfl.core.options import checked
from jaxfl.core.shapes import Stack
from jaxfl.core.trainable import of_statistics, trainable
from jaxfl.core.types import Scalar
from jaxfl.kernels.mixing import everybody_if_nobody, mix
from jaxfl.kernels.robust import ranks
from jaxfl.kernels.similarity import gram, inverse_norms, scaled


@checked
def dnc(
    stacked: Stack,
    key: Key[Array, ""],
    reported: Bool[Array, "m"] | None = None,
    byzantine: int | None = None,
    *,
    ids: Int[Array, "m"] | None = None,
    coordinates: int | None = None,
    iterations: int = 1,
    filtering: Scalar = 1.0,
) -> Float[Array, "m"]:
    """Equal weights of the updates that no iteration takes for outliers, 0 of the others [M].

    Shejwalkar and Houmansadr, "Manipulating the Byzantine: Optimizing Model Poisoning Attacks and
    Defenses for Federated Learning", NDSS 2021, Algorithm 2 (divide and conquer),
    https://www.ndss-symposium.org/ndss-paper/manipulating-the-byzantine. The score of an update is
    the square of its part along the direction in which the updates, less their mean, vary most; an
    iteration takes the `filtering byzantine` updates with the largest scores for outliers.

    Differs: the direction is that of the matrix of inner products [M, M], the same one; and if no
    update passes every iteration, those of the last one count.

    Args:
      stacked: updates [M, ...].
      key: draws the coordinates of each iteration.
      reported: whose updates count [M], R of them; None, or nobody: all.
      byzantine: how many clients may be malicious. None: floor((R - 1) / 2).
      ids: of the clients [M]; of equal scores that of the smaller id stays. None: their places.
      coordinates: how many are looked at in an iteration. None: all, in one iteration.
      iterations: how often coordinates are drawn.
      filtering: how many updates are left out for each malicious client.

    Example:
      >>> updates = jnp.array([[1.0, 0.0], [1.1, 0.0], [0.9, 0.1], [1.0, 9.0]])
      >>> (3 * dnc(updates, jax.random.key(0), byzantine=1)).round(2).tolist()
      [1.0, 1.0, 1.0, 0.0]
    """
    matrix = tree.wide(tree.ravel(trainable(stacked)))
    reported = everybody_if_nobody(len(matrix), reported)
    places = jnp.arange(len(matrix)) if ids is None else ids
    count = reported.sum()
    malicious = (count - 1) // 2 if byzantine is None else byzantine
    left = count - jnp.floor(filtering * malicious + 1e-4)
    number = jnp.clip(left, 1, count)
    # In units of the largest entry no square overflows.
    largest = jnp.abs(matrix).max()
    matrix = matrix / jnp.where(largest > 0, largest, 1.0)
    rows = reported.astype(matrix.dtype)[:, None]
    good = reported
    last = reported
    for each in jax.random.split(key, iterations):
        part = matrix
        if coordinates is not None and coordinates < matrix.shape[1]:
            chosen = jax.random.choice(each, matrix.shape[1], (coordinates,), replace=False)
            part = matrix[:, chosen]
        centred = rows * (part - column_sum(rows * part)[None] / count)
        values, vectors = jnp.linalg.eigh(gram(centred))
        score = jnp.where(reported, values[-1] * vectors[:, -1] ** 2, jnp.inf)
        last = reported & (ranks(score, places) < number)
        good = good & last
    good = jnp.where(good.any(), good, last)
    return good / good.sum()


@checked
def fltrust(updates: Stack, reference: PyTree, reported: Bool[Array, "m"] | None = None) -> PyTree:
    """The mean of the updates, cut to the length of one that the server trusts, by their likeness.

    Cao et al., "FLTrust: Byzantine-robust Federated Learning via Trust Bootstrapping", NDSS 2021,
    (2) to (4), https://arxiv.org/abs/2012.13995. An update counts by its cosine to the reference,
    as nothing if that is negative.

    Args:
      updates: of the clients [M, ...].
      reference: the update that the server has trained on examples of its own [...].
      reported: whose updates count [M]; None: all.

    Returns:
      The update of the server's model [...]; zeros if no client's update points its way.

    Example:
      >>> updates = jnp.array([[4.0, 0.0], [0.0, 9.0], [-5.0, 0.0]])
      >>> fltrust(updates, jnp.array([2.0, 0.0])).tolist()
      [2.0, 0.0]
    """
    rescaled, _ = scaled(updates)
    norms = inverse_norms(rescaled)
    own, power = scaled(jax.tree.map(lambda x: x[None], reference))
    inverse = inverse_norms(own)
    trust = jnp.maximum(gram(rescaled, own)[:, 0] * norms * inverse, 0.0)
    if reported is not None:
        trust = jnp.where(reported, trust, 0.0)
    total = trust.sum()
    length = jnp.where(inverse > 0, power / jnp.where(inverse > 0, inverse, 1.0), 0.0)[0]
    weights = trust / jnp.where(total > 0, total, 1.0)
    # Statistics have no length.
    update = jax.tree.map(lambda x: length * x, mix(weights * norms, rescaled))
    return tree.cast_like(tree.combine(of_statistics, mix(weights, updates), update), reference)


@checked
def fisher_mean(
    stacked: Stack,
    fisher: Stack,
    weights: Float[Array, "m"] | None = None,
    reported: Bool[Array, "m"] | None = None,
) -> PyTree:
    """The mean of models in which each parameter counts by its Fisher information.

    Matena and Raffel, "Merging Models with Fisher-Weighted Averaging", NeurIPS 2022, (4),
    https://arxiv.org/abs/2111.09832: the mode of the product of Gaussians with these means and
    precisions.

    Args:
      stacked: models [M, ...].
      fisher: the diagonal of each model's Fisher information, the mean of squared gradients of the
        log-likelihood [M, ...]; not below 0.
      weights: of the models beside it [M]; None: all 1.
      reported: whose models count [M]; None, or nobody: all.

    Returns:
      One model [...]. A parameter of which no model has information is the plain mean.

    Example:
      >>> models, fisher = jnp.array([[0.0], [8.0]]), jnp.array([[3.0], [1.0]])
      >>> fisher_mean(models, fisher).tolist()
      [2.0]
    """
    models = jax.tree.leaves(stacked)[0].shape[0]
    counts = everybody_if_nobody(models, reported).astype(float)
    by_model = counts if weights is None else counts * weights
    by_model = jnp.where(by_model.sum() > 0, by_model, counts)

    def leaf(x: Array, information: Array) -> Array:
        column = by_model.reshape(-1, *[1] * (x.ndim - 1))
        # Relative to the largest of a parameter, so that no sum overflows.
        largest = column_max(information * (column > 0))
        known = largest > 0
        relative = information / jnp.where(known, largest, 1.0)[None]
        share = column * jnp.where(known[None], relative, 1.0)
        return column_sum(share / column_sum(share)[None] * x)

    return tree.cast_like(jax.tree.map(leaf, stacked, fisher), stacked)


@checked
def linear_cka(features: Float[Array, "m n d"]) -> Float[Array, "m m"]:
    """Linear CKA of the features of all pairs of models, in [0, 1].

    Kornblith et al., "Similarity of Neural Network Representations Revisited", ICML 2019,
    section 3, https://arxiv.org/abs/1905.00414. It is the cosine of the matrices of inner products
    of centred examples, so rotations and lengths of the features do not matter, nor does their
    number.

    Args:
      features: of the same n examples by each model [M, n, d].

    Returns:
      [M, M]; 0 with features that are the same for all examples.

    Example:
      >>> x = jnp.array([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
      >>> linear_cka(jnp.stack([x, 3 * x[:, ::-1]])).round(3).tolist()
      [[1.0, 1.0], [1.0, 1.0]]
    """
    rescaled = tree.wide(scaled(features)[0])
    examples = max(rescaled.shape[1], 1)
    centred = rescaled - jax.vmap(column_sum)(rescaled)[:, None] / examples
    products = jax.vmap(gram)(centred)
    rows = products.reshape(len(products), -1)
    rows = rows * inverse_norms(rows)[:, None]
    return jnp.clip(gram(rows), 0.0, 1.0)
