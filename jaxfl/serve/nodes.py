"""Which client each node of Flower is: nodes come, go and come back."""

import time
from logging import WARN
from typing import NamedTuple

from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid
from flwr.supercore import log

from jaxfl.core.errors import warn
from jaxfl.serve.pack import ORDER

# Between two looks at the answers, in seconds.
PAUSE = 0.5
# Between two lines that say that the server waits for nodes, in seconds.
REMINDER = 60.0


class Roster(NamedTuple):
    """What the server knows of the nodes."""

    # the node of each client that is connected, by the client's id
    node_of: dict[int, int] = {}  # noqa: RUF012 - never written
    # the nodes that were ever asked which client they are
    asked: frozenset[int] = frozenset()
    # the node of each question without an answer, by the id of the question
    questions: dict[str, int] = {}  # noqa: RUF012 - never written


def meet(
    grid: Grid,
    roster: Roster,
    clients: int,
    *,
    least: int,
    timeout: float,
    anonymous: bool = False,
) -> Roster:
    """The nodes that are connected now, and which client each of them is.

    A node that the server does not know is asked. For the answer of a new node it waits, for that
    of others it does not: a node that has died may stay in Flower's list for a while. Where clients
    need no number of their own (`anonymous`), a node that says none becomes the first client that
    has no node. A client that comes back may be on another node. Of two connected nodes that say
    the same number, the one that said it first stays that client, until it is gone.

    Args:
      grid: with the nodes.
      roster: as this function has returned it before.
      clients: C.
      least: how many nodes to wait for.
      timeout: how long to wait for the answers, in seconds.
      anonymous: whether nodes that say no number may be any client.
    """
    nodes = set(grid.get_node_ids())
    said = time.monotonic()
    while len(nodes) < least:
        if time.monotonic() - said >= REMINDER:
            said = time.monotonic()
            log(WARN, "%d nodes are connected: waiting for %d", len(nodes), least)
        time.sleep(PAUSE)
        nodes = set(grid.get_node_ids())
    present = {client: node for client, node in roster.node_of.items() if node in nodes}
    strangers = nodes - set(present.values())
    questions = {key: node for key, node in roster.questions.items() if node in strangers}
    ask = sorted(strangers - set(questions.values()))
    if ask:
        content = RecordDict({ORDER: ConfigRecord()})
        sent = grid.push_messages([Message(content, node, MessageType.QUERY) for node in ask])
        questions |= dict(zip(sent, ask, strict=True))
    new = set(ask) - roster.asked
    end = time.monotonic() + timeout
    silent = set()
    while questions:
        for answer in grid.pull_messages(list(questions)):
            node = questions.pop(answer.metadata.reply_to_message_id)
            client = _client_in(answer)
            if client is None:
                silent.add(node)
            elif not 0 <= client < clients:
                warn(f"node {node} says that it is client {client}: expected 0 to {clients - 1}")
            else:
                first = present.setdefault(client, node)
                if first != node:
                    warn(
                        f"node {node} says that it is client {client}, as node {first} does, which "
                        "is connected and stays that client: give each node an id of its own"
                    )
        if not new & set(questions.values()) or time.monotonic() > end:
            break
        time.sleep(PAUSE)
    free = [client for client in range(clients) if client not in present]
    for node in sorted(silent):
        if anonymous and free:
            present[free.pop(0)] = node
        else:
            warn(
                f"node {node} does not say which client it is, and takes no part in this round: "
                "its app has to answer a query by a record 'jaxfl' with the number 'client'"
            )
    return Roster(present, roster.asked | set(ask), questions)


def _client_in(answer: Message) -> int | None:
    """The client that a node says it is; None if it says none."""
    record = answer.content.config_records.get(ORDER) if answer.has_content() else None
    client = None if record is None else record.get("client")
    return client if isinstance(client, int) and not isinstance(client, bool) else None
