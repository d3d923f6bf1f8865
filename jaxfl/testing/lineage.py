"""The lineage of the random keys in a program, read from its jaxpr without running it.

The lineage of a key lists the steps by which it was made from the program's key: a number that was
folded in, "ids" for data that were folded in, or "split".
"""

from collections import Counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

MOVES = ("convert_element_type", "broadcast_in_dim", "reshape", "squeeze")


def lineages(program: ClosedJaxpr, keys: list[int]) -> Counter:
    """How the keys of a program are used.

    Args:
      program: made by `jax.make_jaxpr`.
      keys: the positions of its arguments that are keys.

    Returns:
      A count for each (lineage, use) in the program. The use is the next step of the lineage, or
      "bits" if random bits are drawn from the key.
    """
    found: Counter = Counter()
    jaxpr = program.jaxpr
    known = {jaxpr.invars[place]: () for place in keys}
    constants = dict(zip(jaxpr.constvars, program.consts, strict=True))
    _walk(jaxpr, known, constants, found)
    return found


def _walk(jaxpr: Jaxpr, known: dict, constants: dict, found: Counter) -> None:
    """Follows the keys through a jaxpr; `known` holds the lineages, `constants` known numbers."""
    for eqn in jaxpr.eqns:
        name = eqn.primitive.name
        ins = [None if isinstance(x, Literal) else known.get(x) for x in eqn.invars]
        lineage = next((x for x in ins if x is not None), None)
        if lineage is None:
            values = [_number(x, constants) for x in eqn.invars]
            if name in MOVES and values[0] is not None:
                constants[eqn.outvars[0]] = values[0]
        elif name == "random_fold_in":
            number = _number(eqn.invars[1], constants)
            step = "ids" if number is None else number
            found[lineage, step] += 1
            known[eqn.outvars[0]] = (*lineage, step)
        elif name == "random_split":
            found[lineage, "split"] += 1
            known[eqn.outvars[0]] = (*lineage, "split")
        elif name in ("random_bits", "random_unwrap"):
            found[lineage, "bits"] += 1
        elif inner := _inner(eqn):
            for body, shift in inner:
                operands = eqn.invars[shift:]
                below = {}
                numbers = dict(zip(body.jaxpr.constvars, body.consts, strict=True))
                for outer, var in zip(operands, body.jaxpr.invars, strict=True):
                    if not isinstance(outer, Literal) and outer in known:
                        below[var] = known[outer]
                    elif (number := _number(outer, constants)) is not None and name == "pjit":
                        numbers[var] = number
                _walk(body.jaxpr, below, numbers, found)
                for outer, var in zip(eqn.outvars, body.jaxpr.outvars, strict=False):
                    if not isinstance(var, Literal) and var in below:
                        known[outer] = below[var]
        else:
            # Other operations only move keys: they slice, stack or sort them.
            for out in eqn.outvars:
                if _is_key(out.aval):
                    known[out] = lineage


def _is_key(value: Any) -> bool:
    """Whether a value of a program is a random key."""
    return jnp.issubdtype(value.dtype, jax.dtypes.prng_key)


def _number(var: Any, constants: dict) -> int | None:
    """The value of a variable that holds one known integer, otherwise None."""
    value: Any = var.val if isinstance(var, Literal) else constants.get(var)
    if isinstance(value, int):
        return value
    whole = getattr(value, "size", 0) == 1 and jnp.issubdtype(value.dtype, jnp.integer)
    return np.asarray(value).item() if whole else None


def _inner(eqn: Any) -> list[tuple[ClosedJaxpr, int]]:
    """The jaxprs that an equation calls, each with the number of operands before its own."""
    found = []
    for value in eqn.params.values():
        each = value if isinstance(value, tuple | list) else (value,)
        for body in each:
            if hasattr(body, "jaxpr") and hasattr(body, "consts"):
                before = len(eqn.invars) - len(body.jaxpr.invars)
                found.append((body, max(before, 0)))
    return found
