"""The options of a method that may change what a round does."""

from typing import Any

from jaxfl.core.options import accepts, listed_names, options_of, takes_fractions
from jaxfl.core.types import AlgorithmFactory


def variants(factory: AlgorithmFactory) -> list[dict[str, Any]]:
    """Options of the method that may change what a round does: a name, a yes or no, 0, 1 or null.

    One of them at a time; the method may refuse it.
    """
    found: list[dict[str, Any]] = []
    for name, (hint, default) in options_of(factory).items():
        values = [
            *listed_names(hint),
            True,
            False,
            None,
            *((0.0, 1.0) if takes_fractions(hint) else (0, 1)),
        ]
        found += [{name: value} for value in values if accepts(hint, value) and value != default]
    return found
