"""How many floats a client sends and gets in a round, read from the messages of a method."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxfl.algorithms.steps.composition import compose
from jaxfl.core.messages import Exchange, Outcome, floats, ups_of
from jaxfl.core.types import Algorithm, Cohort, Dataset, Task


class Traffic(NamedTuple):
    """The messages of a client in a round."""

    # floats that it sends; the most, where not all clients send all of a message
    up: int
    # floats that it gets, likewise
    down: int
    # whether these are sent to and come from each of its neighbours, without a server
    to_neighbours: bool


def traffic(task: Task, algorithm: Algorithm, train: Dataset, val: Dataset) -> Traffic:
    """The floats of the messages of a round with all clients; nothing is computed.

    Args:
      task: that of the algorithm.
      algorithm: a method of messages.
      train: shapes of the clients' examples [C, n, ...].
      val: likewise.

    Example:
      >>> algorithm = jaxfl.algorithms.ditto(task)
      >>> traffic(task, algorithm, cohort.train, cohort.val)  # the model has 90 parameters
      Traffic(up=90, down=90, to_neighbours=False)
    """
    up, down, copies = [], [], []
    clients = train.mask.shape[0]

    def counted(exchange: Exchange) -> Exchange:
        def client(key, memory, message, cohort):
            memory, ups, report = exchange.client(key, memory, message, cohort)
            down.append(floats(message._replace(floats=None), clients))
            messages = () if ups is None else ups_of(ups)
            up.append(sum(floats(one._replace(floats=None), clients) for one in messages))
            return memory, ups, report

        def server(*arguments) -> Outcome:
            outcome = exchange.server(*arguments)  # pyright: ignore[reportOptionalCall]
            copies.append(outcome.copies is not None)
            return outcome

        return Exchange(client, None if exchange.server is None else server)

    wire = algorithm.wire
    exchanges = tuple(counted(exchange) for exchange in wire.exchanges)
    composed = compose(task, wire._replace(exchanges=exchanges))

    def one_round(key, train, val):
        cohort = Cohort(jnp.arange(clients), train, val, 0)
        return composed.round(key, composed.init(key, train), cohort)

    jax.eval_shape(one_round, jax.random.key(0), train, val)
    return Traffic(sum(up), sum(down), any(copies))
