"""Local training: minibatch steps on masked data, for all clients of a cohort in one program."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from jaxfl.core import tree
from jaxfl.core.errors import check
from jaxfl.core.options import NOT_NEGATIVE, POSITIVE, check_range, checked
from jaxfl.core.over_clients import on_every_device, over_clients, side_by_side, some_at_a_time
from jaxfl.core.streams import client_keys
from jaxfl.core.types import (
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
from jaxfl.training.batches import minibatches, read
from jaxfl.training.gradients import CacheSize, Micro, accumulated_gradient, private
from jaxfl.training.loop import repeat, repeat_in_lanes
from jaxfl.training.objectives import with_augmentation
from jaxfl.training.optimizers import (
    Optimizer,
    first_opt_state,
    optimizer_of_round,
    optimizer_step,
)


class _Batches(NamedTuple):
    """All batches of one client, those with examples first; or of clients, stacked [M, ...]."""

    # of the random numbers of the steps
    key: Key[Array, "*m"]
    # row numbers of the client's data [S, B]
    rows: Int[Array, "*m s b"]
    # which of them count [S, B]
    counts: Bool[Array, "*m s b"]
    # the number of batches that the client computes, all of which have examples
    steps: Int[Array, "*m"]


# From this number of clients on, those side by side are a part of them, so that the others fill
# the places of clients that are done. With fewer, a step on an accelerator takes about as long for
# a part of them as for all.
MANY = 32
PARTS = 4


def _lanes(chunk: Chunk, clients: int) -> int:
    """How many clients a device trains side by side, if their numbers of steps differ."""
    size = side_by_side(chunk)
    if size == "all":
        size = clients if clients < MANY else -(-clients // PARTS)
    return min(size, clients)


def steps_of_work(steps: Int[Array, "*m"], work: Float[Array, "*m"]) -> Int[Array, "*m"]:
    """The number of steps that a client takes which computes a part of its local training.

    It is work * steps, rounded up; at least 1 step where there are any.

    Args:
      steps: all steps of its local training.
      work: the fraction of them that it computes, in (0, 1].

    Example:
      >>> steps_of_work(jnp.array([200, 200, 3, 0]), jnp.array([1.0, 0.6, 0.1, 0.5])).tolist()
      [200, 120, 1, 0]
    """
    # Less a little: a fraction k / E of E times b steps is k times b steps, whatever its rounding.
    count = jnp.ceil(work * steps * (1 - 1e-6)).astype(steps.dtype)
    return jnp.clip(count, jnp.minimum(steps, 1), steps)


@checked
def trainer(
    objective: Objective,
    optimizer: Optimizer,
    *,
    batch_size: int,
    steps: int | None = None,
    epochs: int | None = None,
    times: int = 1,
    micro: Micro = None,
    whole_batch: bool = False,
    chunk: Chunk = "auto",
    augment: Callable[[PRNGKey, Array], Array] | None = None,
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
      times: factor of `steps`, for one that trains in the place of so many clients; `epochs` stay,
        as they are of more examples.
      epochs: passes over the client's own data. Only batches with examples are computed; a
        derivative through the training costs as many steps for each client as for the largest.
      micro: number of examples whose gradient is computed at a time, see
        `accumulated_gradient`.
      whole_batch: whether the objective depends on a batch as a whole; then a batch is never
        computed in parts.
      chunk: clients trained side by side, see `over_clients`. With `epochs` or unequal work,
        the next client takes the place of one that is done, and "all" is a quarter of 32 or more
        clients.
      augment: (key, x [B]) -> x [B], changes the inputs of each batch at random.
      example_clip: largest L2 norm of an example's gradient, see `private`. None: no clipping and
        no noise.
      example_noise: noise on the sum of a batch's gradients, in units of `example_clip`.

    Returns:
      fit(key, params [M], anchor [M], cohort) -> Fitted. A client's random numbers depend only on
      the key and the client's id. If the cohort has `work`, each client takes only the first part
      of its steps, see `steps_of_work`; a client that is done leaves its place to the next, as with
      `epochs`.

    Raises:
      InputError: not exactly one of `steps` and `epochs` is given, a number is below 1, examples
        are to be clipped and the objective needs whole batches, or there is noise without a clip.

    Example:
      >>> loss = lambda w, batch, anchor, key: (jnp.mean((w - batch.x) ** 2), jnp.zeros(()))
      >>> data = Dataset(jnp.full((2, 8), 3.0), jnp.zeros((2, 8)), jnp.ones((2, 8), bool))
      >>> fit = trainer(loss, optax.sgd(0.5), batch_size=4, steps=5)
      >>> fitted = fit(jax.random.key(0), jnp.zeros(2), None, Cohort(jnp.arange(2), data, data))
      >>> fitted.params.tolist(), fitted.batches.tolist()
      ([3.0, 3.0], [5, 5])
    """
    check(
        (steps is None) != (epochs is None),
        "local training takes either steps or epochs: give exactly one of them",
    )
    for name, value in (
        ("batch size", batch_size),
        ("steps", steps),
        ("epochs", epochs),
        ("times", times),
        ("micro", micro),
        ("chunk", chunk),
    ):
        check(
            value is None or isinstance(value, str | CacheSize) or value >= 1,
            f"{name} of local training is {value}: expected 1 or more",
        )
    steps = None if steps is None else steps * times
    check_range(POSITIVE, example_clip=example_clip)
    check_range(NOT_NEGATIVE, example_noise=example_noise)
    check(
        example_clip is not None or (isinstance(example_noise, int | float) and not example_noise),
        "example_noise is in units of example_clip: give example_clip too, or no noise",
    )
    check(
        example_clip is None or not whole_batch,
        "the method trains on a batch as a whole, which clipping example by example (example_clip) "
        "takes apart: choose another method, or clip and noise its uploads",
    )
    if augment is not None:
        objective = with_augmentation(objective, augment)
    if example_clip is None:
        gradient = accumulated_gradient(objective, batch_size, None if whole_batch else micro)
    else:
        gradient = private(objective, example_clip, example_noise)

    def draw(key: PRNGKey, mask: Array, work: Array | None) -> _Batches:
        order_key, step_key = jax.random.split(key)
        rows, counts = minibatches(order_key, mask, batch_size, steps=steps, epochs=epochs)
        count = jnp.count_nonzero(counts.any(axis=1))
        if work is not None:
            count = steps_of_work(count, work)
        return _Batches(step_key, rows, counts, count)

    def step(
        optimizer: optax.GradientTransformation,
        batches: _Batches,
        anchor: PyTree,
        data: Dataset,
        client: tuple,
        carry: tuple,
        number: Array,
    ) -> tuple:
        """A step of one client; `client` is its row (i,) where the clients are stacked, else ()."""
        params, opt_state, total = carry
        counts = batches.counts[(*client, number)]
        # The order within a batch does not change its mean. With sorted rows, XLA on CPU does not
        # fuse the gather into the operations after it, which is faster. The rows that do not count
        # come last: copies of the last one that does, for padding may hold NaN, see `read`.
        rows = batches.rows[(*client, number)]
        rows = jnp.sort(jnp.where(counts, rows, jnp.max(jnp.where(counts, rows, 0))))
        mask = jnp.arange(batch_size) < jnp.count_nonzero(counts)
        index = (*client, rows)
        real = counts.any()
        weight = None if data.weight is None else data.weight[index]
        batch = Dataset(read(data.x, index, real), read(data.y, index, real), mask, weight)
        key = jax.random.fold_in(batches.key[client], number)
        own_anchor = jax.tree.map(lambda x: x[client], anchor)
        grads, aux = gradient(params, batch, own_anchor, key)
        updates, opt_state = optimizer_step(optimizer, grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, total + aux

    def begin(optimizer: optax.GradientTransformation, params: Params) -> tuple:
        return params, first_opt_state(optimizer, params), jnp.zeros(())

    def fitted(carry: tuple, count: Array) -> Fitted:
        params, _, total = carry
        return Fitted(params, total / jnp.maximum(count, 1), count)

    def fit_client(
        optimizer: optax.GradientTransformation,
        key: PRNGKey,
        params: Params,
        anchor: PyTree,
        data: Dataset,
        work: Array | None,
    ) -> Fitted:
        batches = draw(key, data.mask, work)
        one = partial(step, optimizer, batches, anchor, data, ())
        start = begin(optimizer, params)
        if steps is None or work is not None:
            most = batches.rows.shape[0]
            return fitted(repeat(one, start, batches.steps, most=most), batches.steps)

        def masked(carry: tuple, number: Array) -> tuple[tuple, None]:
            return tree.where(number < batches.steps, one(carry, number), carry), None

        return fitted(lax.scan(masked, start, jnp.arange(steps))[0], batches.steps)

    def fit_in_lanes(
        optimizer: optax.GradientTransformation,
        lanes: int,
        keys: Key[Array, "m"],
        params: Params,
        anchor: PyTree,
        data: Dataset,
        work: Array | None,
    ) -> Fitted:
        batches = jax.vmap(draw)(keys, data.mask, work)

        def of_client(client: Array, carry: tuple, number: Array) -> tuple:
            return step(optimizer, batches, anchor, data, (client,), carry, number)

        starts = jax.vmap(partial(begin, optimizer))(params)
        most = batches.rows.shape[1]
        ends = repeat_in_lanes(of_client, starts, batches.steps, lanes=lanes, most=most)
        return fitted(ends, batches.steps)

    def fit(key: PRNGKey, params: Params, anchor: PyTree, cohort: Cohort) -> Fitted:
        keys = client_keys(key, cohort.ids)
        round_optimizer = optimizer_of_round(optimizer, cohort.round)
        one = partial(fit_client, round_optimizer)
        arguments = (keys, params, anchor, cohort.train, cohort.work)
        if steps is not None and cohort.work is None:
            return over_clients(one, chunk)(*arguments)

        def on_device(shared: tuple, *stacked: PyTree) -> Fitted:
            clients = stacked[0].size
            lanes = _lanes(chunk, clients)
            if lanes in (1, clients):
                return some_at_a_time(one, 1 if lanes == 1 else "all")(*stacked)
            return fit_in_lanes(round_optimizer, lanes, *stacked)

        return on_every_device(on_device)(*arguments)

    return fit
