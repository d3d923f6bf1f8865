"""Which client each node of Flower is: nodes come, go and come back."""

import time
from collections.abc import Iterable

from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid

from jaxfl.core.errors import warn
from jaxfl.serve.pack import ORDER


def meet(
    grid: Grid,
    known: dict[int, int],
    clients: int,
    *,
    least: int,
    timeout: float,
    anonymous: bool = False,
) -> dict[int, int]:
    """The node of each client that is connected.

    A node that the server does not know yet is asked which client it is. If it does not answer, it
    is asked again the next time; or, where clients need no number of their own (`anonymous`), it
    becomes the first client that has no node. A client that comes back may be on another node.

    Args:
      grid: with the nodes.
      known: the node of each client, as this function has returned it before.
      clients: C.
      least: how many nodes to wait for.
      timeout: how long to wait for the answers, in seconds.
      anonymous: whether nodes that do not answer may be any client.

    Returns:
      The node of each client, by the client's id.
    """
    nodes = set(grid.get_node_ids())
    while len(nodes) < least:
        time.sleep(1)
        nodes = set(grid.get_node_ids())
    present = {client: node for client, node in known.items() if node in nodes}
    strangers = sorted(nodes - set(present.values()))
    if not strangers:
        return present
    question = RecordDict({ORDER: ConfigRecord()})
    answers = grid.send_and_receive(
        [Message(question, node, MessageType.QUERY) for node in strangers], timeout=timeout
    )
    named = _answers(answers)
    for node, client in sorted(named.items()):
        if not 0 <= client < clients:
            warn(f"node {node} says that it is client {client}: expected 0 to {clients - 1}")
            continue
        if client in present:
            warn(f"node {node} says that it is client {client}, as node {present[client]} did")
        present[client] = node
    free = iter([client for client in range(clients) if client not in present])
    for node in strangers:
        if node in named:
            continue
        client = next(free, None) if anonymous else None
        if client is None:
            warn(f"node {node} does not say which client it is, and takes no part in this round")
        else:
            present[client] = node
    return present


def _answers(answers: Iterable[Message]) -> dict[int, int]:
    """The client that each node says it is, of the nodes that say it."""
    found = {}
    for answer in answers:
        record = answer.content.config_records.get(ORDER) if answer.has_content() else None
        client = None if record is None else record.get("client")
        if isinstance(client, int) and not isinstance(client, bool):
            found[answer.metadata.src_node_id] = client
    return found
