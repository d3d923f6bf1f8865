"""Local training: every client of a cohort runs masked minibatch steps from its own model, in one program.

And local gradients: what a client says of a model when it is asked.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jaxtyping import Array, Bool, Int, PyTree, Shaped

from jaxfl import tree
from jaxfl.errors import check, check_not_negative, check_positive
from jaxfl.streams import client_keys
from jaxfl.types import (
    Chunk,
    Cohort,
    Dataset,
    Evaluate,
    Fit,
    Fitted,
    Gradient,
    Gradients,
    Objective,
    Params,
    PRNGKey,
    Scalar,
)


def minibatches(
    key: PRNGKey,
    mask: Bool[Array, "n"],
    batch_size: int,
    *,
    steps: int | None = None,
    epochs: int | None = None,
) -> tuple[Int[Array, "s b"], Bool[Array, "s b"]]:
    """The whole batch order of one client: epochs laid end to end, each a fresh permutation of its real examples.

    An epoch of n_i examples is ceil(n_i / B) batches; the last one is short. With `steps` the
    epochs go on until that many batches are drawn; with `epochs` the batches beyond the client's
    own last one are empty. The order depends on the key and on the real examples in their order,
    not on the padding.

    Args:
      key: of this client in this round.
      mask: which examples are real [n].
      batch_size: B.
      steps: S, or
      epochs: passes over the data; then S = epochs * ceil(n / B).

    Returns:
      Row numbers into the client's data [S, B], and which of them count [S, B]; all False if the
      client has no data.
    """
    n = mask.shape[0]
    real = jnp.count_nonzero(mask)
    per_epoch = jnp.maximum(-(-real // batch_size), 1)
    total = steps if steps is not None else epochs * -(-n // batch_size)
    # One stream holds all epochs: example l % n_i of epoch l // n_i, sorted within its epoch by a
    # random number. `steps` batches use at most steps * B examples and one epoch more.
    length = total * batch_size + n
    slot = jnp.arange(length)
    count = jnp.maximum(real, 1)
    _, _, rank = lax.sort(
        (slot // count, jax.random.bits(key, (length,)), slot % count), num_keys=2
    )
    rows = jnp.argsort(~mask, stable=True)  # real examples first, in their order

    step = jnp.arange(total)[:, None]  # [S, 1]
    within = (step % per_epoch) * batch_size + jnp.arange(batch_size)[
        None
    ]  # place in the epoch [S, B]
    counts = within < real
    if steps is None:
        counts &= step < epochs * per_epoch
    position = (step // per_epoch) * count + within
    return rows[rank[jnp.where(counts, position, 0)]], counts


def trainer(
    objective: Objective,
    optimizer: optax.GradientTransformation,
    *,
    batch_size: int,
    steps: int | None = None,
    epochs: int | None = None,
    micro: int | None = None,
    whole_batch: bool = False,
    chunk: Chunk = "auto",
    example_clip: Scalar | None = None,
    example_noise: Scalar = 0.0,
) -> Fit:
    """A function that trains every client of a cohort from its own model on its own data.

    The optimiser's state is new in every call. A batch without a real example changes nothing: not
    the parameters, not the optimiser's state, and the random numbers of a step depend on its number
    alone.

    Args:
      objective: (params, batch [B], anchor, key) -> (loss to differentiate, aux to report), for one
        client.
      optimizer: any optax optimiser.
      batch_size: B.
      steps: gradient steps, the same for each client, reshuffling at the end of each epoch, or
      epochs: passes over the client's own data.
      micro: examples whose gradient is computed at a time, see `accumulated`.
      whole_batch: the objective depends on a batch as a whole, so that a batch is never computed in
        parts.
      chunk: clients trained side by side, see `tree.over_clients`.
      example_clip: largest L2 norm of an example's gradient, see `private`; None: no clipping and
        no noise.
      example_noise: of a batch's gradient, in units of `example_clip`.

    Returns:
      fit(key, params [M], anchor [M], cohort) -> Fitted. A client's random numbers come from the key
      and its id alone.

    Raises:
      InputError: not exactly one of `steps` and `epochs` is given, a number is below 1, or examples
        are to be clipped and the objective needs whole batches.
    """
    check(
        (steps is None) != (epochs is None),
        "local training takes either steps or epochs: give exactly one of them",
    )
    for name, value in (
        ("batch size", batch_size),
        ("steps", steps),
        ("epochs", epochs),
        ("micro", micro),
        ("chunk", chunk),
    ):
        check(
            value is None or isinstance(value, str) or value >= 1,
            f"{name} of local training is {value}: expected 1 or more",
        )
    check_positive(example_clip=example_clip)
    check_not_negative(example_noise=example_noise)
    check(
        example_clip is None or not whole_batch,
        "the method trains on a batch as a whole, which clipping example by example (example_clip) "
        "takes apart: choose another method, or clip and noise its uploads",
    )
    if example_clip is None:
        gradient = accumulated(objective, batch_size, None if whole_batch else micro)
    else:
        gradient = private(objective, example_clip, example_noise)

    def fit_client(key: PRNGKey, params: Params, anchor: PyTree, data: Dataset) -> Fitted:
        order_key, step_key = jax.random.split(key)
        rows, counts = minibatches(order_key, data.mask, batch_size, steps=steps, epochs=epochs)

        def step(carry, inputs):
            params, opt_state, total = carry
            number, rows, counts = inputs
            # A mean does not care for the order; sorted, XLA on CPU does not fuse the gather into
            # what follows it, which is faster. What does not count comes last.
            rows = jnp.sort(jnp.where(counts, rows, data.mask.size - 1))
            batch = Dataset(
                data.x[rows], data.y[rows], jnp.arange(batch_size) < jnp.count_nonzero(counts)
            )
            grads, aux = gradient(params, batch, anchor, jax.random.fold_in(step_key, number))
            updates, next_state = optimizer.update(grads, opt_state, params)
            moved = (optax.apply_updates(params, updates), next_state, total + aux)
            return tree.where(counts.any(), moved, carry), None

        start = (params, optimizer.init(params), jnp.zeros(()))
        (params, _, total), _ = lax.scan(step, start, (jnp.arange(rows.shape[0]), rows, counts))
        taken = jnp.count_nonzero(counts.any(axis=1))
        return Fitted(params, total / jnp.maximum(taken, 1), taken)

    def fit(key: PRNGKey, params: Params, anchor: PyTree, cohort: Cohort) -> Fitted:
        keys = client_keys(key, cohort.ids)
        return tree.over_clients(fit_client, chunk)(keys, params, anchor, cohort.train)

    return fit


def count_batches(
    mask: Shaped[Array, "m n"],
    batch_size: int,
    *,
    steps: int | None = None,
    epochs: int | None = None,
) -> Int[Array, "m"]:
    """The batches of each client in a `fit` of `trainer` [M]; 0 for a client without examples."""
    sizes = (mask > 0).sum(axis=1)
    return (steps if epochs is None else epochs * -(-sizes // batch_size)) * (sizes > 0)


def full_gradient(
    objective: Objective, *, batch_size: int, micro: int | None = None, chunk: Chunk = "auto"
) -> Gradient:
    """A function that gives every client's mean loss and its gradient on all of its data.

    The examples are taken in parts of one size, so that padding changes no bit and memory does not
    grow with them.

    Args:
      objective: as of `trainer`, without an anchor.
      batch_size: B, the examples that count as one batch.
      micro: examples whose gradient is computed at a time; B if None.
      chunk: clients computed side by side, see `tree.over_clients`.

    Returns:
      gradient(key, params [M], data [M, n], ids [M]) -> Gradients.
    """

    def one(key: PRNGKey, params: Params, data: Dataset) -> tuple[Array, Params]:
        def weighted(part: Dataset) -> tuple[Array, Params]:
            (loss, _), grads = jax.value_and_grad(objective, has_aux=True)(params, part, None, key)
            return jax.tree.map(lambda x: x * part.mask.sum(), (loss, grads))

        return _mean_over_parts(weighted, data, micro or batch_size)

    def gradient(key: PRNGKey, params: Params, data: Dataset, ids: Int[Array, "m"]) -> Gradients:
        keys = client_keys(key, ids)
        loss, grads = tree.over_clients(one, chunk)(keys, params, data)
        return Gradients(loss, grads, count_batches(data.mask, batch_size, epochs=1))

    return gradient


def full_loss(objective: Objective, *, batch_size: int, chunk: Chunk = "auto") -> Evaluate:
    """A function that gives every client's mean loss on all of its data.

    Args:
      objective: as of `trainer`, without an anchor.
      batch_size: examples whose loss is computed at a time.
      chunk: clients computed side by side, see `tree.over_clients`.

    Returns:
      evaluate(key, params [M], data [M, n], ids [M]) -> mean loss [M], weighted by the mask; 0 for a
      client without examples.
    """

    def one(key: PRNGKey, params: Params, data: Dataset) -> Array:
        def weighted(part: Dataset) -> Array:
            return objective(params, part, None, key)[0] * part.mask.sum()

        return _mean_over_parts(weighted, data, batch_size)

    def evaluate(key: PRNGKey, params: Params, data: Dataset, ids: Int[Array, "m"]) -> Array:
        return tree.over_clients(one, chunk)(client_keys(key, ids), params, data)

    return evaluate


def _mean_over_parts(weighted: Callable, data: Dataset, size: int) -> PyTree:
    """The sums that `weighted` gives for parts of the data, over the sum of the mask; 0 without data."""
    total = data.mask.sum()
    sums = tree.sum_batches(weighted, data, size)
    return jax.tree.map(lambda x: x / jnp.where(total > 0, total, 1), sums)


def accumulated(objective: Objective, batch_size: int, micro: int | None) -> Callable:
    """The gradient of an objective on a batch, computed a few examples at a time.

    That is faster where the work on a whole batch does not fit the cache. The objective is a mean
    over the batch's real examples plus terms that do not depend on them, so the gradient is the
    mean of the parts' gradients weighted by their numbers of real examples: the same up to
    rounding, for an objective that draws no random numbers. One that does gets a key of its own for
    each part.

    Args:
      objective: (params, batch [B], anchor, key) -> (loss, aux).
      batch_size: B.
      micro: examples of a part. None, or no smaller divisor of B: the whole batch at once.

    Returns:
      gradient(params, batch [B], anchor, key) -> (gradient, aux).
    """
    gradient = jax.grad(objective, has_aux=True)
    if micro is None or micro >= batch_size or batch_size % micro:
        return gradient

    def in_parts(
        params: Params, batch: Dataset, anchor: PyTree, key: PRNGKey
    ) -> tuple[Params, Array]:
        parts = jax.tree.map(lambda x: x.reshape(-1, micro, *x.shape[1:]), batch)
        real = jnp.maximum(jnp.count_nonzero(batch.mask), 1)
        fractions = jnp.count_nonzero(parts.mask, axis=1) / real

        def add(total, inputs):
            number, part, fraction = inputs
            found = gradient(params, part, anchor, jax.random.fold_in(key, number))
            return jax.tree.map(lambda t, f: t + fraction * f, total, found), None

        zero = jax.tree.map(jnp.zeros_like, jax.eval_shape(gradient, params, batch, anchor, key))
        return lax.scan(add, zero, (jnp.arange(fractions.size), parts, fractions))[0]

    return in_parts


def private(objective: Objective, clip: Scalar, noise: Scalar) -> Callable:
    """The gradient of an objective on a batch: each example's is clipped, and their sum is noised.

    Abadi et al., "Deep Learning with Differential Privacy", CCS 2016, Algorithm 1,
    https://arxiv.org/abs/1607.00133, by optax. An example's gradient is that of the objective on it
    alone, with the terms that do not depend on it. A padded row adds nothing.

    Differs: in the paper a batch is drawn anew from all examples and divided by its expected size;
    here it is a batch of an epoch and divided by its own size.

    Args:
      objective: (params, batch, anchor, key) -> (loss, aux).
      clip: largest L2 norm of an example's gradient.
      noise: standard deviation of the noise on each parameter of the sum, in units of `clip`.

    Returns:
      gradient(params, batch [B], anchor, key) -> (gradient, mean aux).
    """

    def gradient(
        params: Params, batch: Dataset, anchor: PyTree, key: PRNGKey
    ) -> tuple[Params, Array]:
        noise_key, key = jax.random.split(key)
        rows = batch.mask.size

        def one(x: Array, y: Array, key: PRNGKey) -> tuple[Params, Array]:
            alone = Dataset(x[None], y[None], jnp.ones(1, bool))
            return jax.grad(objective, has_aux=True)(params, alone, anchor, key)

        each = jax.vmap(one)(batch.x, batch.y, jax.random.split(key, rows))
        grads, aux = tree.choose(batch.mask, each, jax.tree.map(jnp.zeros_like, each))
        inverse = 1 / jnp.maximum(jnp.count_nonzero(batch.mask), 1)
        aggregate = optax.contrib.differentially_private_aggregate(clip, noise, noise_key)
        # The mean is over all rows, of which the padded ones are zero.
        mean, _ = aggregate.update(grads, aggregate.init(params))
        return jax.tree.map(lambda g: g * (rows * inverse), mean), jnp.sum(aux) * inverse

    return gradient
