"""Clients whose models have different architectures: a stack for each, and one round for all.

The client's half of a method runs for one architecture at a time, as if there were no other; the
server's half gets the messages of all clients. So a method needs nothing of this, if its messages
have the same shapes whatever the model is: prototypes, heads, predictions, statistics.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Int, PyTree
from numpy.typing import ArrayLike

from jaxfl.algorithms.steps.composition import compose
from jaxfl.algorithms.steps.packed import ARCHITECTURE, Layout, Packed, in_places, packed_report
from jaxfl.algorithms.steps.problems import model_shapes
from jaxfl.core import tree
from jaxfl.core.errors import InputError, check
from jaxfl.core.messages import Down, Exchange, ServerState, Wire, wire_of
from jaxfl.core.types import (
    Algorithm,
    Cohort,
    Dataset,
    Fit,
    Fitted,
    Objective,
    Params,
    PRNGKey,
    Problem,
    Task,
)
from jaxfl.training.objectives import training_predictions


class Architectures(NamedTuple):
    """Who has which architecture."""

    names: tuple[str, ...]
    # one for each architecture
    tasks: tuple[Task, ...]
    # [C] the number of each client's architecture; a task can be hashed
    of: tuple[int, ...]

    def places(self, ids: Int[Array, "m"]) -> list[Int[Array, "k"]]:
        """The places in a cohort of the clients of each architecture.

        Raises:
          InputError: it is neither all clients nor as many of each.
        """
        order = jnp.argsort(jnp.asarray(self.of)[ids], stable=True)
        return jnp.split(order, np.cumsum(self._counts(ids.size))[:-1])

    def loss(self, ids: Int[Array, "m"], loss: Array | None) -> Array | None:
        """The losses of a cohort; NaN if it has other numbers of clients of each architecture."""
        if loss is None:
            return None
        numbers = jnp.sort(jnp.asarray(self.of)[ids])
        expected = np.repeat(np.arange(len(self.tasks)), self._counts(ids.size))
        return jnp.where((numbers == expected).all(), loss, jnp.nan)

    def own(self, ids: Int[Array, "m"], stacks: Sequence[PyTree]) -> PyTree:
        """Of what was computed for all clients [M, ...] by each architecture, that of their own."""
        numbers = jnp.asarray(self.of)[ids]
        found = stacks[0]
        for number, stack in enumerate(stacks[1:], 1):
            found = tree.choose(numbers == number, stack, found)
        return found

    def _counts(self, clients: int) -> list[int]:
        """How many clients of a cohort have each architecture."""
        if clients == len(self.of):
            return np.bincount(self.of, minlength=len(self.tasks)).tolist()
        check(
            clients % len(self.tasks) == 0,
            f"a round of {clients} of {len(self.of)} clients with {len(self.tasks)} architectures: "
            "expected all clients, or as many of each architecture, see "
            "jaxfl.participation.stratified",
        )
        return [clients // len(self.tasks)] * len(self.tasks)

    def algorithm(self, made: Sequence[Algorithm], task: Task, name: str) -> Algorithm:
        """The method of all clients, of those that its factory has made for each architecture.

        Raises:
          InputError: it is not one message each way, or clients deploy more than a model.
        """
        wires = [wire_of(one) for one in made]
        single = [wire for wire in wires if wire is not None and len(wire.exchanges) == 1]
        check(
            len(single) == len(made),
            f"{name} has more than one message each way in a round: it cannot have several "
            "architectures",
        )
        plain = all(
            one.apply is part.problem.apply and one.recall is None
            for one, part in zip(made, self.tasks, strict=True)
        )
        check(plain, f"clients of {name} deploy more than a model: it takes no architectures")
        return compose(
            task,
            join(self, single, name),
            validates=made[0].validates,
            warn_of_sizes=made[0].warn_of_sizes,
        )


def heterogeneous(tasks: Mapping[str, Task], architecture_of: ArrayLike) -> Task:
    """A task in which clients have models of different architectures.

    A method that is given this task has a stack of models and a program for each architecture, and
    one round for all clients. It refuses the task if its messages depend on the model. A round has
    all clients, or as many of each architecture (`jaxfl.participation.stratified`); the losses of
    any other are NaN.

    Args:
      tasks: what clients of each architecture train, by its name; their outputs have one shape. The
        score, the loss and the uplink are those of the first one.
      architecture_of: the architecture of each client, by number or by name [C].

    Raises:
      InputError: there are fewer than two tasks, or a client has none of them.

    Example:
      >>> tasks = {"small": task, "large": task}
      >>> both = heterogeneous(tasks, ["small", "large", "small", "large"])
      >>> start = jaxfl.algorithms.local(both).init
      >>> state = jax.eval_shape(start, jax.random.key(0), cohort.train)
      >>> {name: x.shape for name, x in state.clients.memory.items()}
      {'float32': (4, 90)}
    """
    names = tuple(tasks)
    check(len(names) > 1, f"tasks has {len(names)} architecture: expected two or more")
    given = np.asarray(architecture_of)
    if given.dtype.kind in "US":
        unknown = sorted(set(given.tolist()) - set(names))
        check(
            not unknown,
            f"architecture_of names {', '.join(unknown)}: expected some of {', '.join(names)}",
        )
        given = np.array([names.index(name) for name in given.tolist()])
    check(
        given.ndim == 1
        and given.dtype.kind in "iu"
        and bool(((given >= 0) & (given < len(names))).all()),
        f"architecture_of has type {given.dtype} and shape {given.shape}: expected the number or "
        "the name of an architecture for each client [C]",
    )
    for number, name in enumerate(names):
        check(number in given, f"no client has the architecture {name}: leave it out")
    problems = tuple(task.problem for task in tasks.values())
    each = tuple(task._replace(problems=problems) for task in tasks.values())
    found = Architectures(names, each, tuple(given.tolist()))
    first = found.tasks[0]
    layout = Layout.of([model_shapes(task.problem) for task in found.tasks])

    for name, task in tasks.items():
        check(
            task.problem.recall is None,
            f"models of {name} predict with statistics of the client's own examples: several "
            "architectures need models that do not",
        )

    # Of clients there is no common one: a method begins with those of each architecture.
    def init(key: PRNGKey) -> Params:
        return layout.one(0, first.problem.init(key)) | {ARCHITECTURE: jnp.zeros((), jnp.int32)}

    def refuse(objective: Objective) -> Any:
        raise InputError("gradients of all data are not there for several architectures")

    def apply(params: Params, x: Any) -> Any:
        return layout.apply([task.problem.apply for task in found.tasks], params, x)

    def predict(params: Params, x: Any, mask: Array, key: PRNGKey) -> Any:
        parts = [training_predictions(task.problem) for task in found.tasks]
        return layout.apply(parts, params, x, mask, key)

    def trainer(objective: Objective, **changes: Any) -> Fit:
        def of_one(number: int) -> Fit:
            def unpacked(params: Params, batch: Dataset, anchor: PyTree, key: PRNGKey) -> tuple:
                return objective(layout.one(number, params), batch, anchor, key)

            return found.tasks[number].trainer(unpacked, **changes)

        fits = [of_one(number) for number in range(len(names))]

        def fit(key: PRNGKey, params: Packed, anchor: PyTree, cohort: Cohort) -> Fitted:
            # Any clients may be asked for: each architecture trains all of them.
            each = [
                one(key, layout.unpack(number, params), anchor, cohort)
                for number, one in enumerate(fits)
            ]
            packed = [one._replace(params=layout.pack(one.params, cohort.ids.size)) for one in each]
            fitted = found.own(cohort.ids, packed)
            return fitted._replace(params=fitted.params | {ARCHITECTURE: params[ARCHITECTURE]})

        return fit

    predicts = any(task.problem.predict is not None for task in found.tasks)
    problem = Problem(
        init,
        apply,
        first.problem.error,
        first.problem.score,
        predict=predict if predicts else None,
        target=first.problem.target,
    )
    return first._replace(
        problem=problem,
        trainer=trainer,
        gradient=refuse,
        evaluate=refuse,
        architectures=found,
    )


def join(found: Architectures, wires: Sequence[Wire], name: str) -> Wire:
    """The messages of all clients, with the structures of the first architecture.

    Args:
      found: who has which architecture.
      wires: the method's messages for each, one each way.
      name: of the method.

    Example:
      >>> found = heterogeneous({"small": task, "large": task}, [0, 1, 0, 1]).architectures
      >>> wires = [jaxfl.algorithms.lg_fedavg(one).wire for one in found.tasks]
      >>> memory, _ = join(found, wires, "lg_fedavg").init(jax.random.key(0), cohort.train)
      >>> memory["float32"].shape  # the bodies of four clients
      (4, 72)
    """
    first = wires[0]
    models = Layout.of([model_shapes(task.problem) for task in found.tasks])

    def started(train: Dataset) -> list[tuple[PyTree, ServerState]]:
        """The shapes of what one client of each architecture and its server have at first."""
        some = jax.eval_shape(lambda data: tree.take(data, jnp.zeros(1, int)), train)
        return [jax.eval_shape(wire.init, jax.random.key(0), some) for wire in wires]

    def alike(parts: Sequence[PyTree], what: str) -> list[PyTree]:
        """The parts with the structure of the first one, if their arrays have the same shapes."""
        shapes = [[x.shape[1:] for x in jax.tree.leaves(part)] for part in parts]
        for which, shape in zip(found.names, shapes, strict=True):
            check(
                shape == shapes[0],
                f"{name} {what} arrays whose shapes depend on the model: {_told(shapes[0])} of "
                f"{found.names[0]}, {_told(shape)} of {which}. Clients with different "
                "architectures need a method that shares no whole model, such as feddistill",
            )
        structure = jax.tree.structure(parts[0])
        return [jax.tree.unflatten(structure, jax.tree.leaves(part)) for part in parts]

    def init(key: PRNGKey, train: Dataset) -> tuple[Packed, ServerState]:
        check(
            train.mask.shape[0] == len(found.of),
            f"{len(found.of)} clients have an architecture, the federation has "
            f"{train.mask.shape[0]}: name one for each client",
        )
        places = [jnp.asarray(np.flatnonzero(np.equal(found.of, n))) for n in range(len(wires))]
        each = [
            wire.init(key, tree.take(train, rows)) for wire, rows in zip(wires, places, strict=True)
        ]
        layout = memory_layout(train)
        for row, (memory, _) in zip(layout.rows, each, strict=True):
            check(
                jax.tree.leaves(row) == jax.tree.leaves(_row(memory)),
                f"clients of {name} keep arrays whose shapes depend on the number of clients: it "
                "cannot have several architectures",
            )
        packed = [
            layout.pack(memory, len(rows)) for (memory, _), rows in zip(each, places, strict=True)
        ]
        servers = [jax.tree.map(lambda x: x[None], state.server) for _, state in each]
        alike(servers, "keeps at the server")
        records = alike([state.record for _, state in each], "keeps at the server")
        state = ServerState(each[0][1].server, in_places(places, records))
        return in_places(places, packed), state

    def memory_layout(train: Dataset) -> Layout:
        return Layout.of([_row(memory) for memory, _ in started(train)])

    def of_each(down: Down, train: Dataset, message: Callable[[Wire], Callable]) -> list[Down]:
        """The message with the structure of each architecture."""
        likes = [
            jax.eval_shape(message(wire), state)
            for wire, (_, state) in zip(wires, started(train), strict=True)
        ]
        leaves = jax.tree.leaves(down)
        if not leaves:  # nothing that the method reads, as where clients deploy what they keep
            return [down for _ in wires]
        return [jax.tree.unflatten(jax.tree.structure(like), leaves) for like in likes]

    def client(key: PRNGKey, memory: Packed, down: Down, cohort: Cohort) -> tuple:
        layout = memory_layout(cohort.train)
        downs = of_each(down, cohort.train, lambda wire: wire.download)

        def turn(number: int, memory: Packed, each: PyTree, cohort: Cohort) -> tuple:
            own = layout.unpack(number, memory)
            asked = downs[number]._replace(each=each)
            kept, up, report = wires[number].exchanges[0].client(key, own, asked, cohort)
            check(
                report.weights is None,
                f"{name} has weights that clients choose: it cannot have several architectures",
            )
            clients = cohort.ids.size
            return layout.pack(kept, clients), up, packed_report(models, number, report, clients)

        if cohort.ids.size == 1:
            # A client alone, which is one node of many: its own program is what it computes.
            return alone(turn, memory, down.each, cohort)
        places = found.places(cohort.ids)
        turns = [
            turn(
                number,
                tree.take(memory, rows),
                tree.take(downs[number].each, rows),
                rows_of(cohort, rows),
            )
            for number, rows in enumerate(places)
        ]
        kept, ups, reports = zip(*turns, strict=True)
        if ups[0] is not None:
            ups = alike(ups, "sends")
        memory, up, report = in_places(places, list(zip(kept, ups, reports, strict=True)))
        return memory, up, report._replace(loss=found.loss(cohort.ids, report.loss))

    def alone(turn: Callable, memory: Packed, each: PyTree, cohort: Cohort) -> tuple:
        """The turn of a cohort of one client."""
        numbers = range(len(wires))
        shapes = [jax.eval_shape(partial(turn, number), memory, each, cohort) for number in numbers]
        if shapes[0][1] is not None:
            alike([up for _, up, _ in shapes], "sends")
        structure = jax.tree.structure(shapes[0])

        def leaves(number: int) -> Callable:
            return lambda *given: jax.tree.leaves(turn(number, *given))

        of = jnp.asarray(found.of)[cohort.ids[0]]
        result = lax.switch(of, [leaves(number) for number in numbers], memory, each, cohort)
        return jax.tree.unflatten(structure, result)

    def deploy(memory: Packed, down: Down, cohort: Cohort) -> Packed:
        layout = memory_layout(cohort.train)
        # Any clients may be asked for: each architecture deploys for all of them.
        stacks = [
            wire.deploy(layout.unpack(number, memory), part, cohort)
            for number, (wire, part) in enumerate(
                zip(wires, of_each(down, cohort.train, _release), strict=True)
            )
        ]
        packed = [models.pack(stack, cohort.ids.size) for stack in stacks]
        numbers = jnp.asarray(found.of)[cohort.ids]
        return found.own(cohort.ids, packed) | {ARCHITECTURE: numbers}

    exchange = Exchange(client, first.exchanges[0].server)
    return Wire(init, (exchange,), deploy, first.download, first.release)


def _release(wire: Wire) -> Callable[[ServerState], Down]:
    """What clients get that deploy."""
    return wire.download if wire.release is None else wire.release


def rows_of(cohort: Cohort, rows: Int[Array, "k"]) -> Cohort:
    """Some clients of a cohort.

    Example:
      >>> rows_of(cohort, jnp.array([3, 1])).ids.tolist()
      [3, 1]
    """
    return tree.take(cohort._replace(round=None), rows)._replace(round=cohort.round)


def _row(stack: PyTree) -> PyTree:
    """The shapes of a row of a stack."""
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), stack)


def _told(shapes: Sequence[tuple[int, ...]]) -> str:
    """The first shapes, for a message."""
    few = ", ".join(str(list(shape)) for shape in shapes[:3])
    return few + (", ..." if len(shapes) > 3 else "")
