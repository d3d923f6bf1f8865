"""Loops that end when the work does: their numbers of steps are known only as the program runs."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_derivatives import SymbolicZero
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun
from jaxtyping import Array, Int, PyTree

from jaxfl.core import order, tree
from jaxfl.core.types import Dataset
from jaxfl.training.batches import read


def repeat(step: Callable, start: PyTree, count: Int[Array, ""], *, most: int) -> PyTree:
    """The carry after the first `count` steps; further steps are not computed.

    Under `vmap` the loop ends with the largest count, and a carry keeps its bits after its own last
    step. Derivatives are those of a scan over all `most` steps in which the steps after the first
    `count` change nothing, since a loop of unknown length has no derivative in reverse mode; they
    therefore cost `most` steps.

    Args:
      step: (carry, number of the step) -> carry. It may use values from outside.
      start: the first carry.
      count: number of steps, 0 to `most`.
      most: an upper bound of the count.

    Example:
      >>> double = lambda carry, number: 2 * carry
      >>> repeat(double, jnp.array(1.0), jnp.array(3), most=10).item()
      8.0
      >>> jax.grad(lambda x: repeat(double, x, jnp.array(3), most=10))(1.0).item()
      8.0
    """
    step, outside = _with_outside(step, start, jnp.zeros((), int))

    def run(count: Array, start: PyTree, outside: list) -> PyTree:
        return lax.fori_loop(0, count, lambda number, carry: step(carry, number, *outside), start)

    def scan(count: Array, start: PyTree, outside: list) -> PyTree:
        return _scan(lambda carry, number: step(carry, number, *outside), start, count, most)

    return _with_derivative_of(scan, run)(count, start, outside)


def repeat_in_lanes(
    step: Callable, starts: PyTree, counts: Int[Array, "m"], *, lanes: int, most: int
) -> PyTree:
    """The carries of M clients, each after its own number of steps, `lanes` of them side by side.

    A lane takes one client after the other. Clients are dealt to lanes by their counts, the largest
    first, each to the lane with the least steps so far, so that all lanes end at about the same
    time. Derivatives are those of `repeat`, all clients side by side.

    Args:
      step: (client 0 to M - 1, carry, number of the step) -> carry, of one client. It may use
        values from outside.
      starts: the first carries [M, ...].
      counts: number of steps of each client [M], 0 to `most`.
      lanes: clients side by side, 1 to M.
      most: an upper bound of the counts.

    Returns:
      The carries [M, ...].

    Example:
      >>> add = lambda client, carry, number: carry + 10 * client + 1
      >>> counts = jnp.array([1, 0, 2])
      >>> repeat_in_lanes(add, jnp.zeros(3), counts, lanes=2, most=5).tolist()
      [1.0, 0.0, 42.0]
    """
    clients = counts.size
    first = jax.tree.map(lambda x: x[0], starts)
    zero = jnp.zeros((), int)
    step, outside = _with_outside(step, zero, first, zero)

    def run(counts: Array, starts: PyTree, outside: list) -> PyTree:
        queues = _deal(counts, lanes)
        step_lanes = jax.vmap(lambda client, carry, number: step(client, carry, number, *outside))

        def advance(time: Array, state: _Lanes) -> _Lanes:
            carries = step_lanes(state.client, state.carry, state.number)
            number = state.number + 1
            ended = (number == counts[state.client]) & (time < queues.loads)
            # What a lane has not finished is written nowhere: there is no row M.
            row = jnp.where(ended, state.client, clients)
            out = jax.tree.map(lambda x, m: x.at[row].set(m, mode="drop"), state.out, carries)
            client = jnp.where(ended, queues.next[state.client], state.client)
            carry = tree.choose(ended, tree.take(starts, client), carries)
            return _Lanes(client, jnp.where(ended, 0, number), carry, out)

        begin = _Lanes(queues.first, jnp.zeros(lanes, int), tree.take(starts, queues.first), starts)
        return lax.fori_loop(0, queues.loads.max(), advance, begin).out

    def scan(counts: Array, starts: PyTree, outside: list) -> PyTree:
        def one(client: Array, start: PyTree, count: Array) -> PyTree:
            return _scan(lambda c, number: step(client, c, number, *outside), start, count, most)

        return jax.vmap(one)(jnp.arange(clients), starts, counts)

    return _with_derivative_of(scan, run)(counts, starts, outside)


def sum_parts(function: Callable, data: Dataset, size: int) -> PyTree:
    """The sum of a function over parts of a client's examples, of `size` rows each.

    Parts after the last example that counts are not computed. Rows that are 0 in the mask, as those
    that fill the last part, are copies of an example that counts, or zeros if there is none:
    padding may hold NaN. If such rows add nothing to the function's value, padding changes no bit
    of the sum.

    Args:
      function: a part [size, ...] -> pytree.
      data: of one client [n, ...].
      size: rows of a part.

    Example:
      >>> x = jnp.array([1.0, 2.0, 3.0, 7.0])
      >>> data = Dataset(x, x, jnp.array([True, True, True, False]))
      >>> sum_parts(lambda part: jnp.sum(part.x * part.mask), data, size=2).item()
      6.0
    """
    n = data.mask.size
    real = (data.mask > 0).any()

    def examples(number: Array) -> Dataset:
        rows = number * size + jnp.arange(size)
        places = jnp.minimum(rows, n - 1)
        mask = jnp.where(rows < n, data.mask[places], jnp.zeros((), data.mask.dtype))
        # As in local training: the gather of sorted rows is not fused into what follows.
        places = jnp.sort(order.real_only(data.mask, places))
        weight = None if data.weight is None else data.weight[places]
        return Dataset(read(data.x, (places,), real), read(data.y, (places,), real), mask, weight)

    result = jax.eval_shape(function, tree.shapes(data, size, axes=1))
    zero = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), result)
    if n == 0:
        return zero

    def add(total: PyTree, number: Array) -> PyTree:
        return jax.tree.map(jnp.add, total, function(examples(number)))

    last = jnp.max(jnp.where(data.mask > 0, jnp.arange(1, n + 1), 0))
    return repeat(add, zero, -(-last // size), most=-(-n // size))


class _Lanes(NamedTuple):
    """What each of L lanes works on, and the carries of all clients."""

    client: Int[Array, "l"]
    # steps that the client has behind it
    number: Int[Array, "l"]
    carry: PyTree  # [L, ...]
    # of clients that are done; of the others, their starts [M, ...]
    out: PyTree


class _Queues(NamedTuple):
    """Which clients each of L lanes takes."""

    # the first client of each lane
    first: Int[Array, "l"]
    # the client after each client in its lane; any client after the last one
    next: Int[Array, "m"]
    # steps of each lane in all
    loads: Int[Array, "l"]


def _deal(counts: Int[Array, "m"], lanes: int) -> _Queues:
    """Deals clients to lanes, the largest first, each to the lane with the least steps so far."""
    by_count = jnp.argsort(-counts, stable=True)

    def give(state: tuple[_Queues, Array], client: Array) -> tuple[tuple[_Queues, Array], None]:
        queues, last = state
        lane = jnp.argmin(queues.loads)
        return (
            _Queues(
                queues.first,
                queues.next.at[last[lane]].set(client),
                queues.loads.at[lane].add(counts[client]),
            ),
            last.at[lane].set(client),
        ), None

    # The first clients fill the lanes.
    first = by_count[:lanes]
    begin = _Queues(first, jnp.zeros_like(counts), counts[first])
    return lax.scan(give, (begin, first), by_count[lanes:])[0][0]


def _scan(step: Callable, start: PyTree, count: Array, most: int) -> PyTree:
    """The carry after `most` steps, of which those after the first `count` change nothing."""

    def masked(carry: PyTree, number: Array) -> tuple[PyTree, None]:
        return tree.where(number < count, step(carry, number), carry), None

    return lax.scan(masked, start, jnp.arange(most))[0]


def _with_outside(function: Callable, *example: PyTree) -> tuple[Callable, list]:
    """The function with the values that it uses from outside as further arguments; these values.

    A function with its own derivative has to take learning rates, examples and random keys so,
    because they may be traced.
    """
    closed, shapes = jax.make_jaxpr(function, return_shape=True)(*example)
    structure = jax.tree.structure(shapes)

    def call(*arguments: PyTree) -> PyTree:
        inside = jax.tree.leaves(arguments[: len(example)])
        outside = arguments[len(example) :]
        results = jaxpr_as_fun(ClosedJaxpr(closed.jaxpr, outside))(*inside)
        return jax.tree.unflatten(structure, results)

    return call, closed.consts


def _with_derivative_of(slow: Callable, fast: Callable) -> Callable:
    """A function that computes what `fast` does and has the derivatives of `slow`."""
    function = jax.custom_jvp(fast)

    def derivative(primals: tuple, tangents: tuple) -> tuple[PyTree, PyTree]:
        leaves, structure = jax.tree.flatten(primals)
        directions = jax.tree.leaves(tangents, is_leaf=_is_zero)
        # Only what varies is differentiated: a batch of examples has no derivatives to carry.
        places = [number for number, t in enumerate(directions) if not _is_zero(t)]

        def of_places(*values: Array) -> PyTree:
            arguments = list(leaves)
            for number, value in zip(places, values, strict=True):
                arguments[number] = value
            return slow(*jax.tree.unflatten(structure, arguments))

        start = [leaves[number] for number in places]
        return jax.jvp(of_places, start, [directions[number] for number in places])

    function.defjvp(derivative, symbolic_zeros=True)
    return function


def _is_zero(tangent: object) -> bool:
    """Whether a tangent is known to be zero when the program is traced."""
    return isinstance(tangent, SymbolicZero)
