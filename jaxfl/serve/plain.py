"""Clients that train with something else than jaxfl: they get arrays, and send arrays back.

The server keeps the clients' memories for them, and runs the whole method but for the training. So
a client needs no state and no jaxfl, and the server knows the model of each client.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from jaxfl.core import tree
from jaxfl.core.errors import InputError, check, warn
from jaxfl.core.messages import (
    Down,
    Exchange,
    Outcome,
    Report,
    ServerState,
    Up,
    Uploads,
    Wire,
    models_of,
    ups_of,
)
from jaxfl.core.types import Cohort, Dataset, Fit, Fitted, Params, PRNGKey, Problem, Task, Uplink
from jaxfl.training.channel import Channel, faithful


class Elsewhere:
    """`Task.trainer` of clients that train without jaxfl: what it is asked for is the message.

    Example:
      >>> trainer = Elsewhere()
      >>> with trainer.answer(jnp.ones((4, 1))):
      ...     fitted = trainer(None)(jax.random.key(0), jnp.zeros((4, 1)), None, cohort)
      >>> fitted.params[0].tolist(), trainer.asked[0][0][0].tolist()
      ([1.0], [0.0])
    """

    def __init__(self, model: Mapping[str, jax.Array] | None = None) -> None:
        # the form of the whole model, which clients run; None: any
        self.model = model
        # what came back, while the server goes on with it
        self._trained: Params | None = None
        # (the models from which clients train, the anchor) of each training that was asked for
        self.asked: list[tuple[Params, PyTree]] = []

    def __call__(self, objective: Any, **changes: Any) -> Fit:
        """See `Task`."""
        return self._fit

    def _fit(self, key: PRNGKey, params: Params, anchor: PyTree, cohort: Cohort) -> Fitted:
        self.asked.append((params, anchor))
        none = jnp.zeros(cohort.ids.size)
        trained = params if self._trained is None else self._trained
        return Fitted(trained, none, none.astype(int))

    @contextmanager
    def answer(self, trained: Params | None) -> Iterator[None]:
        """Trainings return the given models, or those from which they start."""
        self._trained, self.asked = trained, []
        try:
            yield
        finally:
            self._trained = None


def plain_task(arrays: Mapping[str, np.ndarray], defence: Uplink = faithful) -> Task:
    """The task of clients that train without jaxfl.

    Args:
      arrays: the first model by name, such as the `state_dict` of a PyTorch model. The values are
        those from which all clients start.
      defence: what the server does to the uploads before it looks at them.

    Returns:
      A task for methods whose client half is plain training. Others raise an InputError.

    Raises:
      InputError: an array does not hold floats that JAX keeps, such as float32.

    Example:
      >>> task = plain_task({"fc.weight": np.zeros((2, 8), np.float32)})
      >>> task.problem.init(jax.random.key(0))["fc.weight"].shape
      (2, 8)
    """
    model = {name: jnp.asarray(array) for name, array in arrays.items()}
    for name, array in arrays.items():
        dtype = np.asarray(array).dtype
        check(
            dtype == model[name].dtype and jnp.issubdtype(dtype, jnp.floating),
            f"{name} is {dtype} in the first model: expected floats, such as float32, which a "
            "server can average: convert them, or leave the array out of the first model and out "
            "of what clients send",
        )
    problem = Problem(lambda key: model, _refuse, _refuse, _refuse)
    upload = Channel(faithful, defence)
    return Task(problem, Elsewhere(model), _refuse, _refuse, upload)


def _refuse(*_: Any, **__: Any) -> Any:
    raise InputError(
        "the method asks clients for more than plain training, which clients without jaxfl cannot "
        "do: choose another method, or clients of jaxfl.serve.client"
    )


def plain_wire(wire: Wire, trainer: Elsewhere) -> Wire:
    """The messages of a method whose server does all but the training.

    Args:
      wire: the method, made of a `plain_task`.
      trainer: that of the task.

    Returns:
      The method, whose messages are the models from which clients train and the trained ones, and
      whose records have the clients' memories. What a client gets that deploys is its model.

    Raises:
      InputError: the client's half of the method is more than one training, or trains a part of
        the model, which a client without the rest of it cannot run.

    Example:
      >>> task = plain_task({"w": np.zeros(3, np.float32)})
      >>> wire = plain_wire(jaxfl.algorithms.fedavg(task).wire, task.trainer)
      >>> wire.download(wire.init(jax.random.key(0), cohort.train)[1]).each["w"].shape
      (4, 3)
    """
    serves = [exchange.server for exchange in wire.exchanges if exchange.server is not None]
    if len(serves) != 1:
        _refuse()
    first, serve = wire.exchanges[0].client, serves[0]
    warned: list[bool] = []

    def inner(state: ServerState) -> tuple[ServerState, Any, Cohort]:
        record, memory, here = state.record
        return ServerState(state.server, record), memory, _nobody(here.size)

    def client(key: Any, memory: Any, down: Down, cohort: Cohort, trained: Any) -> tuple:
        with trainer.answer(trained):
            try:
                memory, ups, _ = first(key, memory, down, cohort)
            except (AttributeError, TypeError):  # it looks at the data, or draws random numbers
                _refuse()
            asked = trainer.asked
        if len(asked) != 1:
            _refuse()
        _check_whole(asked[0][0], trainer.model)
        if asked[0][1] is not None and not warned:
            warned.append(True)
            warn("clients without jaxfl train on their loss alone, without the method's own term")
        return asked[0][0], memory, ups

    def init(key: PRNGKey, train: Dataset) -> tuple[tuple, ServerState]:
        memory, state = wire.init(key, train)
        here = jnp.zeros(train.mask.shape[0], bool)
        return (), ServerState(state.server, (state.record, memory, here))

    def download(state: ServerState) -> Down:
        known, memory, cohort = inner(state)
        return Down(each=client(jax.random.key(0), memory, wire.download(known), cohort, None)[0])

    def train(key: PRNGKey, memory: tuple, down: Down, cohort: Cohort) -> tuple[tuple, Up, Report]:
        return (), Up(down.each, down.each), Report()

    def server(key: PRNGKey, state: ServerState, uploads: Uploads) -> Outcome:
        known, memory, cohort = inner(state)
        cohort = cohort._replace(ids=uploads.ids)
        down = wire.download(known)
        _, memory, ups = client(key, memory, down, cohort, uploads.received)
        parts = tuple(
            uploads._replace(
                received=tree.choose(uploads.reported, up.after, up.before),
                before=up.before,
                plain=up.plain,
            )
            for up in ups_of(ups)
        )
        outcome = serve(key, known, parts[0] if isinstance(ups, Up) else parts)
        if len(wire.exchanges) > 1:
            reply = outcome.reply._replace(counted=uploads.reported)
            memory, _, _ = wire.exchanges[1].client(key, memory, reply, cohort)
        record = (outcome.state.record, memory, state.record[2])
        return outcome._replace(state=ServerState(outcome.state.server, record), reply=Down())

    def release(state: ServerState) -> Down:
        known, memory, cohort = inner(state)
        return Down(each=models_of(wire, memory, known, cohort))

    def deploy(memory: tuple, down: Down, cohort: Cohort) -> Params:
        return down.each

    return Wire(init, (Exchange(train, server),), deploy, download, release)


def _check_whole(params: Params, model: Params | None) -> None:
    """Raises an `InputError` if what clients train [M, ...] has not the form of the model."""
    if model is None:
        return
    same = jax.tree.structure(params) == jax.tree.structure(model) and all(
        x.shape[1:] == y.shape
        for x, y in zip(jax.tree.leaves(params), jax.tree.leaves(model), strict=True)
    )
    check(
        same,
        f"the method sends clients {len(jax.tree.leaves(params))} arrays, which are not the whole "
        f"model of {len(jax.tree.leaves(model))}, so clients without jaxfl cannot run it: choose "
        "another method, or clients of jaxfl.serve.client",
    )


def _nobody(clients: int) -> Cohort:
    """A cohort whose data nobody has."""
    nothing = Dataset(None, None, None)  # pyright: ignore[reportArgumentType]
    return Cohort(jnp.arange(clients), nothing, nothing)
