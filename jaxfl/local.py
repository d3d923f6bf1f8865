"""Local training: minibatch steps on masked data, for all clients of a cohort in one program."""

from functools import partial

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jaxtyping import Array, Bool, Int, PyTree

from jaxfl import tree
from jaxfl.errors import check
from jaxfl.gradients import accumulated, private
from jaxfl.optimizers import Optimizer, optimizer_of_round
from jaxfl.options import NOT_NEGATIVE, POSITIVE, check_range
from jaxfl.streams import client_keys
from jaxfl.types import (
    Chunk,
    Cohort,
    Dataset,
    Fit,
    Fitted,
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
    """All batches of one client: epochs one after the other, each a new permutation of its data.

    An epoch of n_i real examples has ceil(n_i / B) batches, of which the last may be short. With
    `steps`, epochs follow one another until that many batches are drawn. With `epochs`, the batches
    after the client's last one are empty. The batches depend on the key and on the order of the
    real examples, not on the padding.

    Args:
      key: of this client in this round.
      mask: which examples are real [n].
      batch_size: B.
      steps: S; give this or `epochs`.
      epochs: passes over the data; then S = epochs * ceil(n / B).

    Returns:
      Row numbers of the client's data [S, B], and which of them count [S, B]. None of them counts
      if the client has no data.
    """
    n = mask.shape[0]
    real = jnp.count_nonzero(mask)
    per_epoch = jnp.maximum(-(-real // batch_size), 1)
    passes = epochs or 0
    total = passes * -(-n // batch_size) if steps is None else steps
    # One sequence holds all epochs. Its element l is example l % n_i of epoch l // n_i, and a sort
    # by random numbers permutes the elements within each epoch. S batches use at most S * B
    # elements and one epoch more.
    length = total * batch_size + n
    slot = jnp.arange(length)
    count = jnp.maximum(real, 1)
    # Neither is negative; `//` and `%` are longer programs.
    epoch = lax.div(slot, count)
    example = lax.rem(slot, count)
    _, _, rank = lax.sort((epoch, jax.random.bits(key, (length,)), example), num_keys=2)
    # The rows of the real examples come first, in their order.
    rows = jnp.argsort(~mask, stable=True)

    step = jnp.arange(total)[:, None]  # [S, 1]
    # The position of each batch element within its epoch [S, B].
    within = (step % per_epoch) * batch_size + jnp.arange(batch_size)[None]
    counts = within < real
    if steps is None:
        counts &= step < passes * per_epoch
    position = (step // per_epoch) * count + within
    return rows[rank[jnp.where(counts, position, 0)]], counts


def trainer(
    objective: Objective,
    optimizer: Optimizer,
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

    Each call starts with a new state of the optimiser. A batch without a real example changes
    neither the parameters nor the optimiser's state. The random numbers of a step depend only on
    the client's key and the number of the step.

    Args:
      objective: (params, batch [B], anchor, key) -> (loss to differentiate, aux to report), for one
        client.
      optimizer: any optax optimiser, or a function from the number of the round (`cohort.round`) to
        the optimiser of that round.
      batch_size: B.
      steps: gradient steps, the same number for each client, with new permutations after each
        epoch; give this or `epochs`.
      epochs: passes over the client's own data.
      micro: number of examples whose gradient is computed at a time, see `accumulated`.
      whole_batch: whether the objective depends on a batch as a whole; then a batch is never
        computed in parts.
      chunk: clients trained side by side, see `tree.over_clients`.
      example_clip: largest L2 norm of an example's gradient, see `private`. None: no clipping and
        no noise.
      example_noise: noise on the sum of a batch's gradients, in units of `example_clip`.

    Returns:
      fit(key, params [M], anchor [M], cohort) -> Fitted. A client's random numbers depend only on
      the key and the client's id.

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
    check_range(POSITIVE, example_clip=example_clip)
    check_range(NOT_NEGATIVE, example_noise=example_noise)
    check(
        example_clip is None or not whole_batch,
        "the method trains on a batch as a whole, which clipping example by example (example_clip) "
        "takes apart: choose another method, or clip and noise its uploads",
    )
    if example_clip is None:
        gradient = accumulated(objective, batch_size, None if whole_batch else micro)
    else:
        gradient = private(objective, example_clip, example_noise)

    def fit_client(
        optimizer: optax.GradientTransformation,
        key: PRNGKey,
        params: Params,
        anchor: PyTree,
        data: Dataset,
    ) -> Fitted:
        order_key, step_key = jax.random.split(key)
        rows, counts = minibatches(order_key, data.mask, batch_size, steps=steps, epochs=epochs)

        def step(carry, inputs):
            params, opt_state, total = carry
            number, rows, counts = inputs
            # The order within a batch does not change its mean. With sorted rows, XLA on CPU does
            # not fuse the gather into the operations after it, which is faster. The rows that do
            # not count come last.
            rows = jnp.sort(jnp.where(counts, rows, data.mask.size - 1))
            mask = jnp.arange(batch_size) < jnp.count_nonzero(counts)
            batch = Dataset(data.x[rows], data.y[rows], mask)
            grads, aux = gradient(params, batch, anchor, jax.random.fold_in(step_key, number))
            updates, next_opt_state = optimizer.update(grads, opt_state, params)
            moved = (optax.apply_updates(params, updates), next_opt_state, total + aux)
            return tree.where(counts.any(), moved, carry), None

        start = (params, optimizer.init(params), jnp.zeros(()))
        (params, _, total), _ = lax.scan(step, start, (jnp.arange(rows.shape[0]), rows, counts))
        taken = jnp.count_nonzero(counts.any(axis=1))
        return Fitted(params, total / jnp.maximum(taken, 1), taken)

    def fit(key: PRNGKey, params: Params, anchor: PyTree, cohort: Cohort) -> Fitted:
        keys = client_keys(key, cohort.ids)
        one = partial(fit_client, optimizer_of_round(optimizer, cohort.round))
        return tree.over_clients(one, chunk)(keys, params, anchor, cohort.train)

    return fit
