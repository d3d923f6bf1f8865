"""Text of unknown origin where it is shown."""


def visible(text: str) -> str:
    r"""The text on one line: what would break it or steer the terminal stands there escaped.

    Example:
      >>> print(visible("red \x1b[31m, a new\nline, from right to left \u202e"))
      red \x1b[31m, a new\nline, from right to left \u202e
    """
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
