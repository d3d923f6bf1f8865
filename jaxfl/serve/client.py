"""A ClientApp of Flower whose nodes are the clients of a method."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import unflatten_dict
from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from jaxfl.core import tree
from jaxfl.core.errors import InputError, check, warn
from jaxfl.core.messages import Down
from jaxfl.core.ragged import is_ragged
from jaxfl.core.types import Algorithm, Cohort, Federation, Params, PRNGKey, Task
from jaxfl.serve.client_half import ClientHalf, client_half, served_wire
from jaxfl.serve.forms import used
from jaxfl.serve.halves import channel_of
from jaxfl.serve.memory import (
    Memories,
    Shelf,
    decide,
    first_memories,
    shelf_in_context,
    shelf_in_file,
)
from jaxfl.serve.named_arrays import named
from jaxfl.serve.pack import METRICS, ORDER, REPLY, order_of, pack_ups, unpack_down, unpack_key
from jaxfl.serve.state import read_arrays, write_arrays
from jaxfl.simulation.metrics import named_metrics


def partition_of(context: Context) -> int:
    """The id of the client that a node is: "partition-id" of its configuration.

    Raises:
      InputError: the node has none.
    """
    found = context.node_config.get("partition-id")
    check(
        isinstance(found, int),
        "the node does not know which client it is: start it with --node-config 'partition-id=ID'",
    )
    return int(str(found))


def client_app(
    algorithm: Algorithm,
    task: Task,
    data: Callable[[int], Federation],
    *,
    identify: Callable[[Context], int] = partition_of,
    name: str | None = None,
    directory: Path | None = None,
    secret: PRNGKey | Callable[[Context], PRNGKey] | None = None,
    send_loss: bool | None = None,
    send_scores: bool | None = None,
    metric: str | None = None,
) -> ClientApp:
    """A ClientApp whose nodes are clients of a method, for a `FlowerStrategy` of the same method.

    Make it at the top of a module that can be imported, and tell its name, so that each process of
    Flower's simulation compiles it once:

        app = client_app(algorithm, task, data, name=f"{__name__}.app")

    Args:
      algorithm: the method, made of the task.
      task: the model, its training and its uplink. A client applies its half of the uplink (noise,
        compression) before it sends.
      data: the id of a client -> its data, with a client axis [1, n, ...]; it is called once for
        each client of a process.
      identify: which client a node is; by default "partition-id" of the node's configuration.
      name: the module and the name of the app in it, "digits.client.app". None: each message of
        Flower's simulation compiles the app again.
      directory: where clients keep their memories, `ID.npz`, so that a client goes on after a
        restart of itself or of the server, and at each evaluation the model that they deploy,
        `ID-model.npz`, see `read_model`. None: memories are in the state of the node, which ends
        with its process and with a run of Flower, and models nowhere.
      secret: a key of the uplink's noise, or a function that reads the node's own; each upload has
        fresh random bits of the machine beside it, so no noise comes twice. None: the noise of
        simulation, drawn with the key of the round. The server knows that key, and could take the
        noise away.
      send_loss: whether clients tell the server their training loss, to which the uplink adds no
        noise. None: unless the uplink draws random numbers, as one with noise does.
      send_scores: likewise, of the scores of the model that a client deploys.
      metric: of the scores, a name of `jaxfl.metrics.METRICS`; higher is better, so that of a
        metric whose lower values are better it is minus the value. None: the task's own score.

    Raises:
      InputError: the method is not written as messages, the task's upload has no halves, or the
        metric is unknown.

    Example:
      >>> app = client_app(jaxfl.algorithms.fedavg(task), task, data=lambda client: None)
      >>> type(app).__name__
      'ImportedApp'
    """
    served_wire(algorithm)
    named_metrics([] if metric is None else [metric])
    quiet = draws_noise(task)
    tells_loss = not quiet if send_loss is None else send_loss
    tells_scores = not quiet if send_scores is None else send_scores
    known: dict[int, Federation] = {}
    halves: dict[tuple[int, int], ClientHalf] = {}

    def visit(message: Message, context: Context) -> Visit:
        client, order = identify(context), order_of(message.content)
        told = order.get("client", client)
        check(
            told == client,
            f"the message is for client {told}, and this node is client {client} now: the server "
            "asks it again which one it is",
        )
        shelf = shelf_in_context(context)
        if directory is not None:
            shelf = shelf_in_file(directory / f"{client}.npz")
        own = known.get(client) or known.setdefault(client, data(client))
        sizes = int(str(order["clients"])), int(str(order["rows"]))
        if sizes not in halves:
            halves[sizes] = client_half(algorithm, task, example_of(own), *sizes, metric)
        return Visit(client, message.content, order, shelf, own, halves[sizes])

    app = ImportedApp(name)

    @app.query()
    def query(message: Message, context: Context) -> Message:
        client = ConfigRecord({"client": identify(context)})
        return Message(RecordDict({ORDER: client}), reply_to=message)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        own = secret(context) if callable(secret) else secret
        return Message(work(visit(message, context), own, tells_loss), reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        seen = visit(message, context)
        file = None if directory is None else directory / f"{seen.client}-model.npz"
        return Message(scores(seen, tells_scores, file), reply_to=message)

    return app


class ImportedApp(ClientApp):
    """A ClientApp that other processes import by its name, with what they have compiled for it."""

    def __init__(self, name: str | None) -> None:
        super().__init__()
        self._name = name
        if name is not None:
            self.__module__ = name.rpartition(".")[0]

    def __reduce__(self) -> str | tuple:
        """The name by which the app is found in its module."""
        return super().__reduce__() if self._name is None else self._name.rpartition(".")[2]


class Visit(NamedTuple):
    """A message that a client has got, and what it needs to answer."""

    client: int
    content: RecordDict
    order: ConfigRecord
    shelf: Shelf
    data: Federation
    half: ClientHalf

    def number(self, name: str) -> int:
        """A number of the order."""
        return int(str(self.order[name]))

    def key(self, name: str) -> PRNGKey:
        """A key of the order."""
        return unpack_key(self.order[name])

    def cohort(self, number: int | None) -> Cohort:
        """The client alone, as a cohort of a round."""
        number_array = None if number is None else jnp.int32(number)
        return Cohort(jnp.array([self.client]), self.data.train, self.data.val, number_array)


def example_of(data: Federation) -> tuple[Any, np.ndarray]:
    """One example of the data of clients, whose values are zeros.

    Example:
      >>> federation = jaxfl.data.ridge(0, dim=3).federation
      >>> example_of(federation)[0].shape
      (3,)
    """

    def zeros(part: Any) -> np.ndarray:
        return np.zeros(part.shape[2:], part.dtype)

    return jax.tree.map(zeros, (data.train.x, data.train.y), is_leaf=is_ragged)


def draws_noise(task: Task) -> bool:
    """Whether a task's uplink draws random numbers, as noise does, and stochastic compression.

    Raises:
      InputError: the task's upload has no halves.

    Example:
      >>> from jaxfl.uplink import gaussian
      >>> noised = task._replace(
      ...     upload=jaxfl.training.channel.Channel(gaussian(clip=1.0, noise=1.0))
      ... )
      >>> draws_noise(task), draws_noise(noised)
      (False, True)
    """
    key = jax.random.key(0)
    model = jax.eval_shape(lambda: tree.broadcast(task.problem.init(key), 1))
    return used(channel_of(task).uplink, key, model, model, jnp.zeros(1, int))[0]


def noise_key(secret: PRNGKey) -> PRNGKey:
    """A key of noise for one upload: the secret, and 64 random bits of the operating system.

    Two uploads never have the same noise, whatever the server asks for. So neither their difference
    nor a server's second run takes it away.

    Example:
      >>> secret = jax.random.key(0)
      >>> bool(noise_key(secret) == noise_key(secret))
      False
    """
    for word in np.frombuffer(os.urandom(8), np.uint32):
        secret = jax.random.fold_in(secret, word)
    return secret


def memories_of(visit: Visit) -> Memories:
    """What the client keeps, after it has heard what became of its last upload."""
    ids = jnp.array([visit.client])
    first = first_memories(visit.half.start(visit.key("init-key"), ids), visit.number("run"))
    form = visit.half.form
    forms = [form.memory, *(each.memory_after for each in form.exchanges)]
    memories = visit.shelf.read(jax.tree.map(np.asarray, first), forms)
    if visit.number("exchange") > 0:
        return memories
    counted = visit.number("counted")
    settled, counts = decide(memories, counted, len(visit.half.form.exchanges))
    if not counts:
        return settled
    memory = settled.before
    if visit.half.take is not None and form.reply is not None:
        reply = unpack_down(visit.content, form.reply, REPLY)
        reply = reply._replace(counted=jnp.ones(1, bool))
        memory = visit.half.take(visit.key("counted-key"), memory, reply, visit.cohort(counted))
    if not tree.finite(memory, 1)[0]:
        memory = memories.before
    return first_memories(jax.tree.map(np.asarray, memory), visit.number("run"))


def work(visit: Visit, secret: PRNGKey | None, tells_loss: bool) -> RecordDict:
    """A client's answer to a message of training, with its loss if it tells that.

    Raises:
      InputError: the message is not one of this method, or is the second of a round in whose first
        exchange the client did not take part.
    """
    memories = memories_of(visit)
    place, number = visit.number("exchange"), visit.number("round")
    open_round = int(memories.sent) == number and int(memories.exchanges) == place
    check(
        place == 0 or open_round,
        f"exchange {place} of round {number}: the client took no part in the exchange before",
    )
    form = visit.half.form.exchanges[place]
    down = unpack_down(visit.content, form.down)
    if place > 0:
        down = down._replace(counted=jnp.ones(1, bool))
    cohort = visit.cohort(number)
    memory, ups, report = visit.half.steps[place](
        visit.key("key"),
        memories.before if place == 0 else memories.after,
        down,
        cohort,
        None if secret is None else noise_key(secret),
    )
    visit.shelf.write(
        memories._replace(
            after=jax.tree.map(np.asarray, memory),
            sent=np.asarray(number),
            exchanges=np.asarray(place + 1),
        )
    )
    ups = tuple(
        up if start == "client" else up._replace(before=())
        for up, start in zip(ups, form.starts, strict=True)
    )
    metrics: dict = {"num-examples": int(cohort.sizes[0])}
    if tells_loss and report.loss is not None:
        metrics["loss"] = float(report.loss[0])
    return RecordDict({**pack_ups(ups), METRICS: MetricRecord(metrics)})


def read_model(file: Path) -> Params:
    """The model that a client of `client_app` deployed at the last evaluation.

    `algorithm.apply(model, x)` are its predictions of examples [n, ...].

    Args:
      file: `ID-model.npz` in the directory of the client.

    Raises:
      InputError: the file is missing or damaged.

    Example:
      >>> model = task.problem.init(jax.random.key(0))
      >>> write_arrays(Path("3-model.npz"), named(model))
      >>> jax.tree.structure(read_model(Path("3-model.npz"))) == jax.tree.structure(model)
      True
    """
    check(
        file.exists(),
        f"{file} is missing: clients with a directory write their models when they evaluate",
    )
    arrays = read_arrays(file)
    try:
        return unflatten_dict(arrays, sep="/")
    except (TypeError, IndexError):
        raise InputError(f"{file} holds no model: name the ID-model.npz of a client") from None


def scores(visit: Visit, tells_scores: bool, file: Path | None = None) -> RecordDict:
    """A client's answer to a message of evaluation: the scores of the model that it deploys.

    Args:
      visit: the message.
      tells_scores: whether the client tells any.
      file: where it writes this model.

    A set without examples has no score, and a client that tells none answers all the same: with the
    message it has heard what became of its last upload.
    """
    memories = memories_of(visit)
    visit.shelf.write(memories)
    size = int(visit.cohort(None).sizes[0])
    down = unpack_down(visit.content, visit.half.form.release or Down())
    cohort = visit.cohort(None)
    models, val, test = visit.half.score(memories.before, down, cohort, visit.data.test)
    if file is not None:
        model = tree.at(models, 0)
        arrays = named(model)
        if jax.tree.structure(unflatten_dict(arrays, sep="/")) == jax.tree.structure(model):
            write_arrays(file, arrays)
        else:
            warn(
                f"{file} is not written: the model that clients deploy is no nested dict of arrays"
            )
    if not tells_scores:
        return RecordDict({METRICS: MetricRecord({"num-examples": size})})
    found = {"val": float(val[0]), "test": float(test[0])}
    found = {name: score for name, score in found.items() if np.isfinite(score)}
    metrics: dict = {"num-examples": size, **found}
    return RecordDict({METRICS: MetricRecord(metrics)})
