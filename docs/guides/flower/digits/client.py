"""The clients' half."""

import functools
import os
from pathlib import Path

from digits.data import federation
from digits.method import algorithm, task
from jaxfl.serve.client import client_app
from jaxfl.serve.client_half import client_of

# Where clients keep their memories. Without it they are in the state of the node.
MEMORIES = os.environ.get("DIGITS_MEMORIES")


@functools.cache
def data(client):
    """The data of one client, with the client axis [1, ...]."""
    return client_of(federation(), client)


app = client_app(
    algorithm,
    task,
    data,
    name="digits.client.app",
    directory=None if MEMORIES is None else Path(MEMORIES),
)
