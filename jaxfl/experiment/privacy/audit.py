"""What the clients of a method let out, read from the program of a round: nothing is computed."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Literal
from jaxtyping import PyTree

from jaxfl.types import AlgorithmFactory, Cohort, Dataset, Federation, State, Task


class Work(NamedTuple):
    """What one client does."""

    uploads: tuple[PyTree, ...]  # the shapes of each upload
    fits: tuple[dict[str, Any], ...]  # of each local training, what differs of the task's own


class Audit(NamedTuple):
    """What a method makes of its clients' examples."""

    joining: Work  # before the first round
    round: Work  # in a round
    # the server learns of a client's examples by its uploads, or by its trainings, and in no other
    # way
    sealed: bool


def audit(
    factory: AlgorithmFactory,
    task: Task,
    hyper: dict[str, Any],
    federation: Federation,
    unit: str = "client",
) -> Audit:
    """Follows the clients' examples through the initial state and the rounds.

    What is followed is every x and y of training and validation; numbers of examples are no secret,
    the server weighs by them. The server learns its half of the state, and has to know what an
    update is measured from (`before`), or the upload tells it more than the update. An answer of
    "sealed" can be relied on, the other errs on the safe side: what a loop or a compiled part
    returns is taken to depend on all that it is given.

    Args:
      factory: the method.
      task: what it is given.
      hyper: its hyper-parameters.
      federation: of one seed.
      unit: what is to be sealed: uploads ("client"), or also the local training that they stem from
        ("example").
    """
    uploads, fits, learned = [], [], []

    def uplink(key, before, after, ids):
        uploads.append(jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), after))
        learned.append(before if unit == "client" else (before, after))
        return _clean(after), jnp.ones(ids.size, bool)

    def trainer(objective, **changes):
        fit = task.trainer(objective, **changes)

        def watched(key, params, anchor, cohort):
            fits.append(changes)
            if unit == "client":
                return fit(key, params, anchor, cohort)
            learned.append((params, anchor))
            return _clean(params), jnp.zeros(cohort.ids.size)

        return watched

    def done() -> Work:
        work = Work(tuple(uploads), tuple(fits))
        for noted in (uploads, fits, learned):
            noted.clear()
        return work

    algorithm = factory(task._replace(uplink=uplink, trainer=trainer), **hyper)
    train, val = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), (federation.train, federation.val)
    )
    examples, masks = (train.x, train.y, val.x, val.y), (train.mask, val.mask)

    def begin(examples, key, masks):
        state = algorithm.init(key, Dataset(*examples[:2], masks[0]))
        return state.clients, (state.server, learned)

    def proceed(examples, clients, key, masks, server):
        ids = jnp.arange(masks[0].shape[0])
        cohort = Cohort(ids, Dataset(*examples[:2], masks[0]), Dataset(*examples[2:], masks[1]))
        state, _ = algorithm.round(key, State(clients, server), cohort)
        return state.clients, (state.server, learned)

    key, each = jax.random.key(0), len(examples)
    program, (clients, (server, _)) = jax.make_jaxpr(begin, return_shape=True)(examples, key, masks)
    width, joining = len(jax.tree.leaves(clients)), done()
    touched = _touched(program, range(each))
    told = any(touched[width:])
    program, work = jax.make_jaxpr(proceed)(examples, clients, key, masks, server), done()
    own = {
        place for place in range(width) if touched[place]
    }  # of the clients' half, what depends on examples
    while True:
        touched = _touched(program, [*range(each), *(each + place for place in own)])
        further = own | {place for place in range(width) if touched[place]}
        if further == own:
            return Audit(joining, work, sealed=not (told or any(touched[width:])))
        own = further


def _touched(program: ClosedJaxpr, inputs: Sequence[int]) -> list[bool]:
    """Which outputs of a program depend on some of its inputs, by number."""
    reached = {program.jaxpr.invars[place] for place in inputs}
    for step in program.jaxpr.eqns:
        if any(not isinstance(x, Literal) and x in reached for x in step.invars):
            reached.update(step.outvars)
    return [not isinstance(x, Literal) and x in reached for x in program.jaxpr.outvars]


def _clean(values: PyTree) -> PyTree:
    """As many numbers that depend on nothing."""
    return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), values)
