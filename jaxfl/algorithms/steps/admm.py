"""The clients' side of consensus ADMM: a model and a dual for each client, and their updates.

The numbers of equations are those of GFedMtl (Gauthier et al., Asilomar 2022).
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import flatten_util
from jax.scipy.linalg import cho_factor, cho_solve
from jaxtyping import Array, Bool, Float, Int, PyTree

from jaxfl.core import tree
from jaxfl.core.ragged import padded
from jaxfl.core.trainable import of_statistics, trainable
from jaxfl.core.types import Cohort, Dataset, Fit, Fitted, Objective, Params, PRNGKey, Scalar


class Client(NamedTuple):
    """The state of each client."""

    # [C, ...] w_k
    model: Params
    # [C] whether the client has taken part in a round and reported
    seen: Bool[Array, "*c"]
    # [C, ...] phi_k
    dual: Params
    # [C] the number of clients in its cell, of one server and one cluster, including this one
    peers: Int[Array, "*c"]
    # [C, D, D] the inverse of the Hessian of (13) if (13) is solved exactly, otherwise ()
    inverse: PyTree


class Primal(NamedTuple):
    """The functions with which clients start, and solve (13)."""

    # (model, train [C], cell [C], cells) -> Client: each with this one model and a dual of 0
    enlist: Callable
    # (key, Client [M], centre [M, ...], cohort) -> Fitted
    solve: Callable[[PRNGKey, Client, Params, Cohort], Fitted]


def primal(
    loss: Objective, trainer: Callable[..., Fit], rho: Scalar, lam: Scalar, exact: bool
) -> Primal:
    """(13): argmin_w loss(w) + lam / peers |w|^2 - <dual, w - centre> + rho / 2 |w - centre|^2.

    Args:
      loss: (params, batch [n], anchor, key) -> (mean loss, aux).
      trainer: objective -> fit, which trains the client's model if (13) is not solved exactly.
      rho: the penalty.
      lam: weight of the regulariser of a cell, of which each client of the cell takes an equal
        part.
      exact: solve (13) by one Newton step on all examples of a client, which is exact for a loss
        that is quadratic in the parameters. `enlist` inverts the Hessian once, and each round
        multiplies by the inverse.

    Example:
      >>> side = primal(lambda w, x, *_: (w @ w, w @ w), lambda objective: None, 0.5, 0.1, True)
      >>> train = Dataset(jnp.zeros((2, 1)), jnp.zeros((2, 1)), jnp.ones((2, 1), bool))
      >>> side.enlist(jnp.zeros(3), train, jnp.zeros(2, int), 1).model.shape
      (2, 3)
    """

    def objective(params: Params, batch: PyTree, anchor: tuple, key: PRNGKey):
        dual, centre, decay = anchor
        value, aux = loss(params, batch, None, key)
        pull = augmented(trainable(params), trainable(dual), trainable(centre), decay, rho)
        return value + pull, aux

    fit = trainer(objective)

    def enlist(model: Params, train: PyTree, cell: Int[Array, "c"], cells: int) -> Client:
        models = jax.tree.map(lambda x: jnp.broadcast_to(x, (cell.size, *x.shape)), model)
        dual = tree.zeros_like(models)
        peers = jnp.bincount(cell, length=cells)[cell]
        nobody = jnp.zeros(cell.size, bool)
        client = Client(models, nobody, dual, peers, ())
        if not exact:
            return client

        def invert(data: PyTree, dual: Params, peers: Array) -> Float[Array, "d d"]:
            flat, unflatten = flatten_util.ravel_pytree(model)
            anchor = (dual, model, lam / peers)
            # A loss whose minimum is solved exactly draws no random numbers, so any key will do.
            key = jax.random.key(0)
            hessian = jax.hessian(lambda w: objective(unflatten(w), data, anchor, key)[0])(flat)
            return cho_solve(cho_factor(hessian), jnp.eye(flat.size))

        return client._replace(inverse=jax.vmap(invert)(_zero_padded(train), dual, peers))

    def newton(
        start: Params, data: PyTree, anchor: tuple, inverse: Array, key: PRNGKey
    ) -> tuple[Params, Array]:
        grads, aux = jax.grad(objective, has_aux=True)(start, data, anchor, key)
        flat, unflatten = flatten_util.ravel_pytree(grads)
        step = jnp.matmul(inverse, flat, precision=jax.lax.Precision.HIGHEST)
        return jax.tree.map(jnp.subtract, start, unflatten(step)), aux

    def solve(key: PRNGKey, client: Client, centre: Params, cohort: Cohort) -> Fitted:
        decay = lam / client.peers
        anchor = (client.dual, centre, decay)
        if not exact:
            # A client that was never seen starts from the model of its cell.
            start = tree.choose(client.seen, client.model, centre)
            fitted = fit(key, start, anchor, cohort)
            # Without examples (13) has a closed form: training would leave the model where it is,
            # and the dual would draw the whole cell there.
            alone = _without_examples(client.dual, centre, decay)
            empty = ~(cohort.train.mask > 0).any(axis=1)
            return fitted._replace(params=tree.choose(empty, alone, fitted.params))
        steps = jax.vmap(newton, (0, 0, 0, 0, None))
        models, losses = steps(centre, _zero_padded(cohort.train), anchor, client.inverse, key)
        return Fitted(models, losses, jnp.zeros_like(cohort.ids))

    def _without_examples(dual: Params, centre: Params, decay: Array) -> Params:
        sums = jax.tree.map(lambda phi, u: phi + rho * u, dual, centre)
        return tree.combine(of_statistics, centre, tree.scale(sums, 1 / (rho + 2 * decay)))

    return Primal(enlist, solve)


def _zero_padded(data: Dataset) -> Dataset:
    """The examples of clients as arrays in which padding is 0: it may hold NaN, which spreads."""
    data = jax.tree.map(jnp.asarray, padded(data))

    def clear(values: Array) -> Array:
        mask = data.mask.reshape(*data.mask.shape, *[1] * (values.ndim - data.mask.ndim))
        return jnp.where(mask > 0, values, jnp.zeros((), values.dtype))

    return data._replace(x=jax.tree.map(clear, data.x), y=clear(data.y))


def augmented(
    params: PyTree, dual: PyTree, centre: PyTree, decay: Scalar, rho: Scalar
) -> Float[Array, ""]:
    """The terms that (13) adds to the loss of a client.

    decay |w|^2 - <dual, w - centre> + rho / 2 |w - centre|^2. Finite for entries up to 1e15.

    Args:
      params: w.
      dual: phi.
      centre: the model with which the client should agree.
      decay: weight of the regulariser.
      rho: the penalty.

    Example:
      >>> augmented(jnp.array([3.0]), jnp.array([1.0]), jnp.array([1.0]), 0.0, 2.0).item()
      2.0
    """

    def leaf(w: Array, phi: Array, anchor: Array) -> Array:
        gap = w - anchor
        return jnp.sum(decay * w * w - phi * gap + rho / 2 * gap * gap)

    return sum(jax.tree.leaves(jax.tree.map(leaf, params, dual, centre)), jnp.zeros(()))


def message(model: PyTree, dual: PyTree, rho: Scalar) -> PyTree:
    """The upload of a client, which is all that (14) needs from it: w_k - phi_k / rho.

    Args:
      model: w_k.
      dual: phi_k.
      rho: the penalty.

    Example:
      >>> message(jnp.array([3.0]), jnp.array([1.0]), 0.5).tolist()
      [1.0]
    """
    return jax.tree.map(lambda w, phi: w - phi / rho, model, dual)


def ascend(dual: PyTree, model: PyTree, shared: PyTree, rate: Scalar) -> PyTree:
    """(16): the new dual of a client, phi_k + rate (u - w_k); 0 for statistics of BatchNorm.

    Args:
      dual: phi_k.
      model: w_k.
      shared: u, the model of the client's cell after (15).
      rate: rho in the paper, where (13) is solved exactly.

    Example:
      >>> ascend(jnp.array([1.0]), jnp.array([3.0]), jnp.array([5.0]), 0.5).tolist()
      [2.0]
    """
    after = jax.tree.map(lambda phi, w, u: phi + rate * (u - w), dual, model, shared)
    return tree.combine(of_statistics, dual, after)


def dual_rate(rho: Scalar, step: Scalar | None, exact: bool) -> Scalar:
    """The rate of (16), `step` times rho.

    The dual integrates u - w_k. Training of a few steps follows the dual only in part. With the
    whole of rho the dual then grows faster than the models can follow, and does not come back.

    Args:
      rho: the penalty.
      step: of the dual, in units of rho. None: 1 if (13) is solved exactly, as in
        the paper, else .1.
      exact: whether (13) is solved exactly.

    Example:
      >>> dual_rate(2.0, None, True), dual_rate(2.0, 0.5, False)
      (2.0, 1.0)
    """
    if step is None:
        step = 1.0 if exact else 0.1
    return step * rho
