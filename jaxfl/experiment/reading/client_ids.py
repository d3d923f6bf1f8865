"""Which client is meant: by its id, or by its name."""

import re
from collections.abc import Sequence

from jaxfl.core.errors import check, did_you_mean
from jaxfl.core.text import composed


def id_of(client: int | str, names: Sequence[str], count: int) -> int:
    """The id of a client, which may be given by its name.

    Args:
      client: its id, from 0, or its name.
      names: of all clients, in the order of their ids; none if they have no names.
      count: of the clients.

    Raises:
      InputError: there is no such client.

    Example:
      >>> id_of("north", ["south", "north"], 2), id_of(0, [], 2)
      (1, 0)
    """
    expected = f"expected an id from 0 to {count - 1}"
    if names:
        expected += f", or one of the names {', '.join(names[:20])}"
    if not isinstance(client, str):
        check(0 <= client < count, f"client is {client}: {expected}")
        return int(client)
    known = [composed(name) for name in names]
    name = composed(client)
    check(name in known, f"client is {name:.60}: {did_you_mean(name, known) or expected}")
    return known.index(name)


def id_or_name(word: str, names: Sequence[str]) -> int | str:
    """The id that a word is, unless clients have numbers for names; else the word, as a name.

    Args:
      word: of a command line.
      names: of all clients; none if they have no names.

    Example:
      >>> id_or_name("3", ["south", "north"]), id_or_name("3", ["3", "4"])
      (3, '3')
    """
    number = re.compile(r"-?\d{1,18}", re.ASCII)
    is_id = number.fullmatch(word) and not any(map(number.fullmatch, names))
    return int(word) if is_id else word
