"""What the clients of a method let out, read from their functions: nothing is computed."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.core import Jaxpr
from jaxtyping import PyTree

from jaxfl.algorithms.steps.composition import compose
from jaxfl.core.facts import facts_of
from jaxfl.core.messages import Clients, Exchange, Up, ups_of, wire_of
from jaxfl.core.types import AlgorithmFactory, Cohort, Dataset, Federation, State, Task
from jaxfl.experiment.privacy.dataflow import find_marks, follow, mark, mark_passing, traced_call

# What protects examples in local training.
PROTECTION = {"example_clip", "example_noise"}


class Work(NamedTuple):
    """What one client does."""

    uploads: tuple[PyTree, ...]  # the shapes of what goes through the uplink, for each upload
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
    the server weighs by them. Of a method of messages the server learns what its clients' functions
    send: what is told in the clear (`plain`), and what an update is measured from (`before`), which
    it has to know. Of another method it learns its half of the state, and what `Task.upload` is
    given. An answer of "sealed" can be relied on, the other errs on the safe side. Messages and
    trainings are marked in the traced program (`dataflow`), so that a method may have them in a
    scan or a condition.

    Args:
      factory: the method.
      task: what it is given.
      hyper: its hyper-parameters.
      federation: of one seed.
      unit: what is to be sealed: uploads ("client"), or also the local training that they stem from
        ("example").

    Raises:
      InputError: the method trains or uploads in a loop without a fixed number of turns, or takes a
        gradient through an upload.
    """
    shapes: list[PyTree] = []  # of what one client sends, by the number in the mark's label
    changes: list[dict[str, Any]] = []  # of each training, likewise

    def upload(key, before, after, ids, lost=None):
        shapes.append(jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), after))
        learned = before if unit == "client" else (before, after)
        reports = jax.ShapeDtypeStruct((ids.size,), bool)
        return mark(("upload", len(shapes) - 1), learned, (after, reports))

    def trainer(objective, **options):
        fit = task.trainer(objective, **options)
        if not PROTECTION.isdisjoint(options):
            # It has not the noise of the task, so it is followed like any other computation.
            return fit
        changes.append(options)
        label = ("fit", len(changes) - 1)

        def marker(key, params, anchor, cohort):
            if unit == "client":
                return fit(key, mark_passing(label, params), anchor, cohort)
            outside, results = traced_call(fit, key, params, anchor, cohort)
            return mark(label, (params, anchor, outside), results)

        return marker

    def work(program: Jaxpr) -> Work:
        marks = [(*one.label, one.times) for one in find_marks(program)]
        return Work(
            tuple(shapes[i] for kind, i, n in marks if kind == "upload" for _ in range(n)),
            tuple(changes[i] for kind, i, n in marks if kind == "fit" for _ in range(n)),
        )

    def marked(exchange: Exchange) -> Exchange:
        def client(*arguments):
            memory, ups, report = exchange.client(*arguments)
            if ups is None:
                return memory, None, report
            messages = tuple(message(up) for up in ups_of(ups))
            return memory, messages[0] if isinstance(ups, Up) else messages, report

        return exchange._replace(client=client)

    def message(up: Up) -> Up:
        """The message, of which the server learns and which depends on nothing then."""
        hidden = jax.tree.leaves(up.after)
        if hidden:
            shapes.append(
                jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), up.after)
            )
        label = ("upload", len(shapes) - 1) if hidden else ("plain", 0)
        learned = (up.before, up.plain) if unit == "client" else up
        return mark(label, learned, up)

    algorithm = factory(task._replace(upload=upload, trainer=trainer), **hyper)
    wire = wire_of(algorithm)
    if wire is not None:
        exchanges = tuple(marked(exchange) for exchange in wire.exchanges)
        algorithm = compose(task._replace(upload=arrive), wire._replace(exchanges=exchanges))
    train, val = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), (federation.train, federation.val)
    )
    examples = (train.x, train.y, val.x, val.y, train.weight, val.weight)
    masks = (train.mask, val.mask)

    def halves(state: State) -> tuple[PyTree, tuple]:
        """What the clients have, and what the server has: its state and its records."""
        if wire is None:
            return state.clients, (state.server, ())
        return state.clients.memory, (state.server, state.clients.record)

    def begin(examples, key, masks):
        return halves(algorithm.init(key, Dataset(examples[0], examples[1], masks[0], examples[4])))

    def proceed(examples, clients, key, masks, server):
        ids = jnp.arange(masks[0].shape[0])
        train = Dataset(examples[0], examples[1], masks[0], examples[4])
        val = Dataset(examples[2], examples[3], masks[1], examples[5])
        cohort = Cohort(ids, train, val, round=0)
        clients = clients if wire is None else Clients(clients, server[1])
        state, _ = algorithm.round(key, State(clients, server[0]), cohort)
        return halves(state)

    key = jax.random.key(0)
    start, (clients, server) = jax.make_jaxpr(begin, return_shape=True)(examples, key, masks)
    width = len(jax.tree.leaves(clients))
    count = len(jax.tree.leaves(examples))
    flow = follow(start.jaxpr, _first(count, start.jaxpr))
    leak = flow.learned or any(flow.outputs[width:])
    flags = flow.outputs[:width]  # which leaves of the clients' half depend on examples

    loop = jax.make_jaxpr(proceed)(examples, clients, key, masks, server).jaxpr
    while True:  # until no further leaf does
        others = len(loop.invars) - count - width
        flow = follow(loop, [True] * count + flags + [False] * others)
        leak |= flow.learned or any(flow.outputs[width:])
        union = [a or b for a, b in zip(flags, flow.outputs[:width], strict=True)]
        if union == flags:
            return Audit(
                work(start.jaxpr), work(loop), sealed=not (leak or facts_of(factory).pools)
            )
        flags = union


def arrive(key, before, after, ids, lost=None):
    """`Task.upload` where every upload arrives as it is sent."""
    return after, jnp.ones(ids.size, bool)


def _first(count: int, program: Jaxpr) -> list[bool]:
    return [place < count for place in range(len(program.invars))]
