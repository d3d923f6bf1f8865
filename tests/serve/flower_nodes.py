"""Nodes of Flower in this process: a grid that hands each message to its client at once."""

import numpy as np
from flwr.app import Context, Error, Message, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

# Flower sets these in the process of a server.
TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1


class Nodes(Grid):
    """A grid with one node for each client; the node of client i has the id `100 + i`."""

    def __init__(self, app, clients, lost=lambda kind, number, client: False, change=None):
        self.app, self.lost, self.change = app, lost, change
        self.contexts = {
            100 + i: Context(0, 100 + i, {"partition-id": i}, RecordDict(), {})
            for i in range(clients)
        }
        self.away = set()
        self.sent = []
        self.replies = {}

    # Flower's class asks for these three; a strategy calls none of them.
    run = None

    def set_run(self, run):
        raise AssertionError("a strategy sets no run")

    def create_message(self, *arguments):
        raise AssertionError("a strategy makes its messages itself")

    def get_node_ids(self):
        return [node for node in self.contexts if node - 100 not in self.away]

    def push_messages(self, messages):
        ids = []
        for message in messages:
            name = str(len(self.sent))
            ids.append(name)
            reply = self.answer(message, name)
            if reply is not None:
                self.replies[name] = reply
        return ids

    def pull_messages(self, message_ids):
        return [self.replies.pop(one) for one in message_ids if one in self.replies]

    def send_and_receive(self, messages, *, timeout=None):
        return self.pull_messages(self.push_messages(messages))

    def answer(self, message, name):
        """The reply of a node; None if it is lost."""
        node, kind = message.metadata.dst_node_id, message.metadata.message_type
        self.sent.append((kind, node - 100, message.content))
        number = message.content["jaxfl"].get("round", -1)
        try:
            reply = self.app(message, self.contexts[node])
        except Exception as error:
            reply = Message(Error(0, str(error)), reply_to=message)
        reply.metadata.__dict__["_src_node_id"] = node
        reply.metadata.__dict__["_reply_to_message_id"] = name
        if self.change is not None:
            reply = self.change(kind, number, node - 100, reply)
        return None if self.lost(kind, number, node - 100) else reply


def floats(content):
    """How many numbers a message holds, by record."""
    return {
        name: sum(int(np.prod(array.shape)) for array in record.values())
        for name, record in content.array_records.items()
    }
