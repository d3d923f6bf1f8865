"""A method on real clients: its two halves, the messages between them, and what each side keeps.

May import `core`, `training`, `algorithms` and `simulation`. A new transport goes here, beside
`flower`; what a message means is `core.messages`, and a method that needs other messages is at
fault in `algorithms`.
"""

from importlib.util import find_spec

from jaxfl.core.errors import check

check(
    find_spec("flwr") is not None,
    "jaxfl.serve sends messages by Flower, which is not installed: pip install 'jaxfl[flower]'",
)
