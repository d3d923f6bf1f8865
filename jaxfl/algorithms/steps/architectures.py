"""Clients whose models have different architectures: a stack for each, and one round for all.

The client's half of a method runs for one architecture at a time, as if there were no other; the
server's half gets the messages of all clients. So a method needs nothing of this, if its messages
have the same shapes whatever the model is: prototypes, heads, predictions, statistics.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PyTree
from numpy.typing import ArrayLike

from jaxfl.algorithms.steps.composition import compose
from jaxfl.algorithms.steps.packed import Layout, Packed, in_places
from jaxfl.core import tree
from jaxfl.core.errors import InputError, check
from jaxfl.core.messages import Down, Exchange, Report, ServerState, Wire, wire_of
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


class Architectures(NamedTuple):
    """Who has which architecture."""

    names: tuple[str, ...]
    # one for each architecture
    tasks: tuple[Task, ...]
    # [C] the number of each client's architecture
    of: np.ndarray

    def counts(self, clients: int) -> list[int]:
        """How many clients of a cohort have each architecture.

        Raises:
          InputError: it is neither all clients nor as many of each.
        """
        if clients == len(self.of):
            return np.bincount(self.of, minlength=len(self.tasks)).tolist()
        check(
            clients % len(self.tasks) == 0,
            f"a round of {clients} of {len(self.of)} clients with {len(self.tasks)} architectures: "
            "expected all clients, or as many of each architecture, see "
            "jaxfl.participation.stratified",
        )
        return [clients // len(self.tasks)] * len(self.tasks)

    def places(self, ids: Int[Array, "m"]) -> list[Int[Array, "k"]]:
        """The places in a cohort of the clients of each architecture."""
        order = jnp.argsort(jnp.asarray(self.of)[ids], stable=True)
        ends = np.cumsum(self.counts(ids.size))[:-1]
        return jnp.split(order, ends)

    def loss(self, ids: Int[Array, "m"], loss: Array | None) -> Array | None:
        """The losses of a cohort; NaN if it has other numbers of clients of each architecture."""
        if loss is None:
            return None
        numbers = jnp.sort(jnp.asarray(self.of)[ids])
        expected = np.repeat(np.arange(len(self.tasks)), self.counts(ids.size))
        return jnp.where((numbers == expected).all(), loss, jnp.nan)

    def algorithm(self, made: Sequence[Algorithm], task: Task, name: str) -> Algorithm:
        """The method of all clients, of those that its factory has made for each architecture."""
        wires = tuple(wire for one in made if (wire := wire_of(one)) is not None)
        check(
            len(wires) == len(made),
            f"{name} has a round of its own, not of messages: it cannot have several architectures",
        )
        return compose(task, _Join(self, wires, name).wire())


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
      >>> state = initial_state(jaxfl.algorithms.local(both))
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
    found = Architectures(names, tuple(tasks.values()), given)
    first = found.tasks[0]
    layout = Layout.of([_model(task) for task in found.tasks])

    def init(key: PRNGKey) -> Params:
        raise InputError(
            "the method asks for one initial model, and clients have different architectures"
        )

    def apply(params: Params, x: Any) -> Any:
        return layout.apply([task.problem.apply for task in found.tasks], params, x)

    def trainer(objective: Objective, **changes: Any) -> Fit:
        def of_one(number: int) -> Fit:
            def unpacked(params: Params, batch: Dataset, anchor: PyTree, key: PRNGKey) -> tuple:
                return objective(layout.one(number, params), batch, anchor, key)

            return found.tasks[number].trainer(unpacked, **changes)

        fits = [of_one(number) for number in range(len(names))]

        def fit(key: PRNGKey, params: Packed, anchor: PyTree, cohort: Cohort) -> Fitted:
            places = found.places(cohort.ids)
            fitted = [
                fits[number](
                    key,
                    layout.unpack(number, tree.take(params, rows)),
                    tree.take(anchor, rows),
                    rows_of(cohort, rows),
                )
                for number, rows in enumerate(places)
            ]
            return Fitted(
                layout.marked(places, [one.params for one in fitted]),
                in_places(places, [one.loss for one in fitted]),
                in_places(places, [one.batches for one in fitted]),
            )

        return fit

    def refuse(objective: Objective) -> Any:
        raise InputError("gradients of all data are not there for several architectures")

    problem = Problem(
        init, apply, first.problem.error, first.problem.score, target=first.problem.target
    )
    return first._replace(
        problem=problem,
        trainer=trainer,
        gradient=refuse,
        evaluate=refuse,
        architectures=found,
    )


class _Join(NamedTuple):
    """A method on several architectures, whose messages have the same leaves in each."""

    found: Architectures
    wires: tuple[Wire, ...]
    name: str

    def wire(self) -> Wire:
        """The messages of all clients, with the structures of the first architecture."""
        found, wires = self.found, self.wires
        first = wires[0]
        models = Layout.of([_model(task) for task in found.tasks])

        def init(key: PRNGKey, train: Dataset) -> tuple[Packed, ServerState]:
            check(
                train.mask.shape[0] == len(found.of),
                f"{len(found.of)} clients have an architecture, the federation has "
                f"{train.mask.shape[0]}: name one for each client",
            )
            places = [jnp.asarray(np.flatnonzero(found.of == n)) for n in range(len(wires))]
            each = [
                wire.init(key, tree.take(train, rows))
                for wire, rows in zip(wires, places, strict=True)
            ]
            layout = self.memory(train)
            for row, (memory, _) in zip(layout.rows, each, strict=True):
                check(
                    jax.tree.leaves(row) == jax.tree.leaves(_row(memory)),
                    f"clients of {self.name} keep arrays whose shapes depend on the number of "
                    "clients: it cannot have several architectures",
                )
            memory = in_places(places, [layout.pack(memory) for memory, _ in each])
            servers = [jax.tree.map(lambda x: x[None], state.server) for _, state in each]
            self.alike(servers, "keeps at the server")
            records = self.alike([state.record for _, state in each], "keeps at the server")
            return memory, ServerState(each[0][1].server, in_places(places, records))

        def split(down: Down, places: Sequence[Array], train: Dataset) -> list[Down]:
            """The message to the clients of each architecture, with its structure."""
            structures = [jax.tree.structure(self.downloads(n, train)) for n in range(len(wires))]
            plain = down._replace(counted=None)
            parts = []
            for rows, structure in zip(places, structures, strict=True):
                part = plain._replace(
                    each=tree.take(plain.each, rows),
                    floats=None if plain.floats is None else plain.floats[rows],
                )
                if structure.num_leaves == len(jax.tree.leaves(part)):
                    part = jax.tree.unflatten(structure, jax.tree.leaves(part))
                counted = None if down.counted is None else down.counted[rows]
                parts.append(part._replace(counted=counted))
            return parts

        def clients(number: int) -> Callable:
            def client(key: PRNGKey, memory: Packed, down: Down, cohort: Cohort) -> tuple:
                places = found.places(cohort.ids)
                layout = self.memory(cohort.train)
                turns = [
                    wire.exchanges[number].client(
                        key, layout.unpack(n, tree.take(memory, rows)), part, rows_of(cohort, rows)
                    )
                    for n, (wire, rows, part) in enumerate(
                        zip(wires, places, split(down, places, cohort.train), strict=True)
                    )
                ]
                ups = [one for _, one, _ in turns]
                up = None if ups[0] is None else in_places(places, self.alike(ups, "sends"))
                for row, (kept, _, _) in zip(layout.rows, turns, strict=True):
                    check(
                        jax.tree.leaves(row) == jax.tree.leaves(_row(kept)),
                        f"clients of {self.name} keep more between two messages than between two "
                        "rounds: it cannot have several architectures",
                    )
                after = in_places(places, [layout.pack(one) for one, _, _ in turns])
                report = self.reports(places, [one for _, _, one in turns], models)
                return after, up, report._replace(loss=found.loss(cohort.ids, report.loss))

            return client

        def deploy(memory: Packed, down: Down, cohort: Cohort) -> Packed:
            places = found.places(cohort.ids)
            layout = self.memory(cohort.train)
            parts = split(down, places, cohort.train)
            stacks = [
                wire.deploy(layout.unpack(n, tree.take(memory, rows)), part, rows_of(cohort, rows))
                for n, (wire, rows, part) in enumerate(zip(wires, places, parts, strict=True))
            ]
            for stack, row in zip(stacks, models.rows, strict=True):
                check(
                    jax.tree.structure(stack) == jax.tree.structure(row),
                    f"{self.name} deploys more than a model here: it cannot have several "
                    "architectures with this option",
                )
            return models.marked(places, stacks)

        exchanges = tuple(
            Exchange(clients(number), exchange.server)
            for number, exchange in enumerate(first.exchanges)
        )
        return Wire(init, exchanges, deploy, first.download, first.release)

    def started(self, number: int, train: Dataset) -> tuple[PyTree, ServerState]:
        """The shapes of what one client of an architecture and its server have at first."""
        some = jax.eval_shape(lambda data: tree.take(data, jnp.zeros(1, int)), train)
        return jax.eval_shape(self.wires[number].init, jax.random.key(0), some)

    def memory(self, train: Dataset) -> Layout:
        """How the memory of clients is packed."""
        each = [self.started(number, train)[0] for number in range(len(self.wires))]
        return Layout.of([_row(memory) for memory in each])

    def downloads(self, number: int, train: Dataset) -> Down:
        """The shapes of the message to the clients of an architecture."""
        _, state = self.started(number, train)
        return jax.eval_shape(self.wires[number].download, state)

    def alike(self, parts: Sequence[PyTree], what: str) -> list[PyTree]:
        """The parts, with the structure of the first one.

        Raises:
          InputError: their arrays have different shapes.
        """
        shapes = [[x.shape[1:] for x in jax.tree.leaves(part)] for part in parts]
        for name, shape in zip(self.found.names, shapes, strict=True):
            check(
                shape == shapes[0],
                f"{self.name} {what} arrays whose shapes depend on the model: "
                f"{_told(shapes[0])} of {self.found.names[0]}, {_told(shape)} of {name}. Clients "
                "with different architectures need a method that shares no model, such as "
                "fedproto or lg_fedavg",
            )
        structure = jax.tree.structure(parts[0])
        return [jax.tree.unflatten(structure, jax.tree.leaves(part)) for part in parts]

    def reports(self, places: Sequence[Array], parts: Sequence[Report], models: Layout) -> Report:
        """What all clients report."""
        first = parts[0]
        check(
            first.weights is None,
            f"{self.name} has weights that clients choose: it cannot have several architectures",
        )

        def rows(values: Sequence[Any]) -> Any:
            if values[0] is None:
                return None
            sizes = [len(place) for place in places]
            wide = [jnp.broadcast_to(x, (n,)) for x, n in zip(values, sizes, strict=True)]
            return in_places(places, wide)

        trained = None
        if first.trained is not None:
            trained = models.marked(places, [one.trained for one in parts])
        return Report(
            rows([one.loss for one in parts]),
            rows([one.batches for one in parts]),
            trained,
            rows([one.accepted for one in parts]),
            None,
            {name: rows([one.fractions[name] for one in parts]) for name in first.fractions},
            {name: rows([one.metrics[name] for one in parts]) for name in first.metrics},
        )


def rows_of(cohort: Cohort, rows: Int[Array, "k"]) -> Cohort:
    """Some clients of a cohort."""
    return tree.take(cohort._replace(round=None), rows)._replace(round=cohort.round)


def _model(task: Task) -> PyTree:
    """The shapes of a task's model."""
    return jax.eval_shape(task.problem.init, jax.random.key(0))


def _row(stack: PyTree) -> PyTree:
    """The shapes of a row of a stack."""
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), stack)


def _told(shapes: Sequence[tuple[int, ...]]) -> str:
    """The first shapes, for a message."""
    few = ", ".join(str(list(shape)) for shape in shapes[:3])
    return few + (", ..." if len(shapes) > 3 else "")
