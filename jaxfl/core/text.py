"""Text of unknown origin: how it is compared, sorted and shown."""

import re
import unicodedata


def composed(text: str) -> str:
    """The text with each accent and its letter as one character, so that equal names are equal.

    File systems and spreadsheets have them as one character or as two, which look the same.

    Example:
      >>> composed("Zu\u0308rich") == "Z\u00fcrich"
      True
    """
    return unicodedata.normalize("NFC", text)


def by_number(name: str) -> list[str | float]:
    """The key that sorts names by their letters and the numbers in them.

    Example:
      >>> sorted(["block10/up", "block2/up"], key=by_number)
      ['block2/up', 'block10/up']
    """
    # The pieces are letters and digits in turn.
    pieces = re.split(r"(\d+)", name, flags=re.ASCII)
    return [float(piece) if place % 2 else piece for place, piece in enumerate(pieces)]


def visible(text: str) -> str:
    r"""The text on one line: what would break it or steer the terminal stands there escaped.

    Example:
      >>> print(visible("red \x1b[31m, a new\nline, from right to left \u202e"))
      red \x1b[31m, a new\nline, from right to left \u202e
    """
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
