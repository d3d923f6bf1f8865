"""What the server sends to one client: arrays, and the order that says what to do with them."""

import jax
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, RecordDict

from jaxfl.core.messages import Down
from jaxfl.serve.named_arrays import row
from jaxfl.serve.pack import ORDER, REPLY, pack_down
from jaxfl.serve.server import Progress


def message_to(
    client: int,
    node: int,
    down: Down,
    exchange: int,
    progress: Progress,
    order: dict,
    config: ConfigRecord,
    delivered: int,
) -> Message:
    """The message of an exchange, or of an evaluation, to one client.

    Args:
      client: its id.
      node: on which it is.
      down: to this client [1, ...].
      exchange: its place in the round; -1: an evaluation.
      progress: of the server.
      order: what is the same in all exchanges of the round.
      config: for clients that train without jaxfl; it gets the number of the round.
      delivered: the last round whose reply the client has.
    """
    rounds, counted = int(progress.rounds), int(progress.counted[client])
    order = order | {
        "client": client,
        "run": int(progress.run),
        "round": rounds,
        "exchange": max(exchange, 0),
        "counted": counted,
    }
    config = ConfigRecord({**config, "server-round": rounds + (exchange >= 0)})
    content = {"config": config, ORDER: ConfigRecord(order), **pack_down(down)}
    if exchange <= 0 and counted > delivered:
        content |= last_reply(progress, client)
    kind = MessageType.EVALUATE if exchange < 0 else MessageType.TRAIN
    return Message(RecordDict(content), node, kind)


def last_reply(progress: Progress, client: int) -> dict[str, ArrayRecord]:
    """The records of the reply to a client's last upload that counted, if clients take replies."""
    if not jax.tree.leaves(progress.replies):
        return {}
    common, each = row(progress.replies, client)
    return pack_down(Down(jax.tree.map(lambda x: x[0], common), each), REPLY)
