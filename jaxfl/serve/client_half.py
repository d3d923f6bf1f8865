"""The client's half of a method: the compiled functions of its work and of its scores."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxfl.core import messages, tree
from jaxfl.core.errors import InputError
from jaxfl.core.messages import Wire
from jaxfl.core.over_clients import over_clients
from jaxfl.core.types import Algorithm, Cohort, Federation, Pool, PRNGKey, Task
from jaxfl.serve.forms import Form, examples_of, form_of
from jaxfl.serve.halves import channel_of, client_step
from jaxfl.simulation.evaluate import make_evaluate_cohort
from jaxfl.training import completion


class ClientHalf(NamedTuple):
    """The compiled functions of a client; they are the same for all clients of a process."""

    form: Form
    # (key, id [1]) -> the memory before the first round [1, ...]
    start: Callable
    # of each exchange, see `halves.client_step`
    steps: tuple[Callable, ...]
    # (key, memory [1], Down, cohort) -> memory [1]; None: no reply is taken
    take: Callable | None
    # (memory [1], Down, cohort, test) -> the model [1, ...] that the client deploys, complete, and
    # its scores on validation [1] and test examples [1]
    score: Callable


def client_of(federation: Federation, client: int) -> Federation:
    """The data of one client of a federation, with the client axis [1, ...].

    Example:
      >>> federation = jaxfl.data.ridge(0, dim=3).federation
      >>> client_of(federation, 5).train.mask.shape[0]
      1
    """
    one = jnp.array([client])
    train, val, test = federation
    own_test = (
        test._replace(mask=test.mask[one]) if isinstance(test, Pool) else tree.take(test, one)
    )
    return Federation(tree.take(train, one), tree.take(val, one), own_test)


def served_wire(algorithm: Algorithm, name: str = "the method") -> Wire:
    """The messages of a method.

    Raises:
      InputError: the method is not written as messages.

    Example:
      >>> len(served_wire(jaxfl.algorithms.fedavg(task)).exchanges)
      1
    """
    wire = messages.wire_of(algorithm)
    if wire is None:
        raise InputError(
            f"{name} is not written as messages, or its round is another (Algorithm.wire), so its "
            "server and its clients cannot be apart: choose another method"
        )
    return wire


def client_half(
    algorithm: Algorithm,
    task: Task,
    example: tuple,
    clients: int,
    rows: int,
    metric: str | None = None,
) -> ClientHalf:
    """The client's half of a method.

    Args:
      algorithm: the method.
      task: that of the method.
      example: (x [*feature], y [*target]), whose values are not read.
      clients: C.
      rows: M, the size of a cohort.
      metric: by which models are scored; None: the mean of the task's own score.

    Raises:
      InputError: the method is not written as messages, or the metric is unknown.

    Example:
      >>> example = (np.zeros(8, np.float32), np.int32(0))
      >>> half = client_half(jaxfl.algorithms.ditto(task), task, example, 4, 2)
      >>> half.start(jax.random.key(0), jnp.array([3])).seen.tolist()
      [False]
    """
    wire, channel = served_wire(algorithm), channel_of(task)
    form = form_of(wire, channel, example, clients, rows)
    metrics = [] if metric is None else [metric]
    evaluate = make_evaluate_cohort(algorithm, task, after="none", metrics=metrics)
    complete = completion(task.problem)

    @jax.jit
    def start(key: PRNGKey, ids: jax.Array) -> Any:
        # XLA makes this client's row alone.
        return tree.take(wire.init(key, examples_of(example, clients))[0], ids)

    @jax.jit
    def score(
        memory: Any, down: Any, cohort: Cohort, test: Any
    ) -> tuple[Any, jax.Array, jax.Array]:
        models = wire.deploy(memory, down, cohort)
        scores = evaluate(jax.random.key(0), cohort, test, models).deployed
        models = complete(models, cohort)
        if algorithm.recall is not None:
            models = over_clients(algorithm.recall, "auto")(models, cohort.train)
        return models, scores.val, scores.test

    steps = tuple(
        jax.jit(client_step(channel, wire.exchanges[place], exchange.first))
        for place, exchange in enumerate(form.exchanges)
    )
    take = None
    if form.reply is not None:
        last = wire.exchanges[len(form.exchanges)].client
        take = jax.jit(lambda *arguments: last(*arguments)[0])

    def scored(*given: Any) -> tuple[Any, jax.Array, jax.Array]:
        with jax.debug_nans(False):  # NaN is no score
            return score(*given)

    return ClientHalf(form, start, steps, take, scored)
