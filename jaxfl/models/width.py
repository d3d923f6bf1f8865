"""Models with fewer units in their hidden layers."""

from collections.abc import Sequence

from jaxfl.core.errors import check


def divided(widths: Sequence[int], narrow: int) -> tuple[int, ...]:
    """1 / narrow of each width.

    Raises:
      InputError: narrow does not divide them all.

    Example:
      >>> divided((16, 32), 4)
      (4, 8)
    """
    check(
        narrow >= 1 and all(width % narrow == 0 for width in widths),
        f"a model {narrow} times narrower: expected a number that divides its widths "
        f"{', '.join(map(str, widths))}",
    )
    return tuple(width // narrow for width in widths)
