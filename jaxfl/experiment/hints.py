"""Type hints as checks of JSON: what a value of a config or a hyper-parameter may be."""

import math
import typing
from typing import Any

from jaxfl.hints import alternatives


def accepts(hint: Any, value: Any) -> bool:
    """Whether a JSON value fits a type hint; of its types only those that JSON can hold count."""
    return any(_fits(alternative, value) for alternative in alternatives(hint))


def _fits(hint: Any, value: Any) -> bool:
    origin = typing.get_origin(hint) or hint
    if origin is typing.Literal:
        return value in typing.get_args(hint)
    if origin is float:
        return type(value) in (int, float) and math.isfinite(value)
    return type(value) is origin
