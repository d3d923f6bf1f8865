"""What nodes answer: arrays that anyone may have sent, looked at before the server uses them."""

import math
from collections.abc import Iterable
from typing import NamedTuple

import jax
import numpy as np
from flwr.app import Message, RecordDict

from jaxfl.core import tree
from jaxfl.core.errors import InputError, warn
from jaxfl.core.messages import MOST_EXAMPLES, Up
from jaxfl.serve.forms import ExchangeForm, stacked
from jaxfl.serve.pack import METRICS, unpack_ups
from jaxfl.serve.round_log import ScoreLog


class Arrivals(NamedTuple):
    """The uploads of a cohort; the rows of what has not arrived are zeros."""

    ups: tuple[Up, ...]  # [M, ...]
    sizes: np.ndarray  # [M]
    arrived: np.ndarray  # [M]
    loss: np.ndarray  # [M] NaN where no loss was told


def arrivals(
    replies: Iterable[Message], ids: np.ndarray, client_of: dict[int, int], form: ExchangeForm
) -> Arrivals:
    """The uploads of a cohort, without those that are not what the server expects.

    An upload that is refused is warned of in one line, which names its sender, what was wrong and
    what was expected. A NaN is no fault of form: the server's step leaves it out.

    Args:
      replies: of nodes.
      ids: of the cohort [M].
      client_of: the client that each node is.
      form: of the exchange.
    """
    zeros = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), stacked(form.sent, len(ids)))
    found = Arrivals(
        zeros,
        np.zeros(len(ids), int),
        np.zeros(len(ids), bool),
        np.full(len(ids), np.nan, np.float32),
    )
    place_of = {int(client): place for place, client in enumerate(ids)}
    silent = {client for client in client_of.values() if client in place_of}
    gone = 0
    for reply in replies:
        node = reply.metadata.src_node_id
        client = client_of.get(node, -1)
        silent.discard(client)
        place = place_of.get(client)
        if place is None or found.arrived[place]:
            if reply.has_error():  # Flower answers for a node that is gone
                gone += 1
                warn(f"the upload of a client does not count: {_reason(reply)}")
            continue
        try:
            ups, size, loss = _upload(reply, form)
        except InputError as error:
            warn(f"the upload of client {client} (node {node}) does not count: {error}")
            continue
        for table, one in zip(jax.tree.leaves(zeros), jax.tree.leaves(ups), strict=True):
            table[place] = one[0]
        found.sizes[place], found.arrived[place], found.loss[place] = size, True, loss
    if len(silent) > gone:
        some = ", ".join(map(str, sorted(silent)[:8])) + (", ..." if len(silent) > 8 else "")
        warn(f"no answer came in time from {len(silent)} of {len(ids)} clients: {some}")
    return found


def _upload(reply: Message, form: ExchangeForm) -> tuple[tuple[Up, ...], int, float]:
    """What a client sent, the number of its examples and its loss."""
    content = content_of(reply)
    ups = unpack_ups(content, form.sent)
    told = jax.tree.leaves([(up.plain, up.before) for up in ups])
    finite = all((np.abs(np.asarray(x, float)) <= tree.LARGEST_ENTRY).all() for x in told)
    if not finite:
        raise InputError(
            f"a number beside the model is not finite or beyond {tree.LARGEST_ENTRY:g}: expected "
            "numbers whose squares have a finite sum"
        )
    record = content.metric_records.get(METRICS, {})
    size = record.get("num-examples")
    good = isinstance(size, int) and 0 <= size <= MOST_EXAMPLES
    if not good:
        raise InputError(
            f"num-examples is {size!r:.80}: expected a whole number up to {MOST_EXAMPLES}"
        )
    return ups, int(str(size)), _number(record.get("loss"))


def content_of(reply: Message) -> RecordDict:
    """The content of a reply.

    Raises:
      InputError: the node could not answer.
    """
    if reply.has_error():
        raise InputError(_reason(reply))
    return reply.content


def _reason(reply: Message) -> str:
    """Why a node could not answer, in one line: the last line of a traceback says it."""
    lines = [line.strip() for line in str(reply.error.reason or "").splitlines() if line.strip()]
    last = lines[-1][:200] if lines else "no reason given"
    # A node may send characters that a terminal obeys.
    return f"its node could not answer ({''.join(x if x.isprintable() else '?' for x in last)})"


def score_log(number: int, replies: Iterable[Message], client_of: dict[int, int]) -> ScoreLog:
    """The scores that clients tell; NaN where a client tells none.

    A client that could not answer is warned of in one line, and is not in the log.

    Args:
      number: of the rounds that are done.
      replies: of nodes.
      client_of: the client that each node is.
    """
    scores: dict[int, tuple[float, float]] = {}
    for reply in replies:
        client = client_of.get(reply.metadata.src_node_id)
        try:
            record = content_of(reply).metric_records.get(METRICS, {})
        except InputError as error:
            # Flower answers for a node that is gone, and does not say which it is.
            warn(f"{'a client' if client is None else f'client {client}'} is not scored: {error}")
            continue
        if client is None:
            continue
        scores[client] = _number(record.get("val")), _number(record.get("test"))
    ids = np.array(sorted(scores), int)
    val, test = np.array([scores[client] for client in ids]).reshape(-1, 2).T
    return ScoreLog(number, ids, val, test)


def _number(value: object) -> float:
    """A number of which sums with others are finite, or NaN."""
    real = isinstance(value, int | float) and abs(value) <= tree.LARGEST_ENTRY
    return float(str(value)) if real else math.nan
