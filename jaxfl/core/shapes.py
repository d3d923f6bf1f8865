"""The forms of arrays and of stacked models, which type hints say and `options.checked` checks."""

import types
import typing
from typing import Annotated, Any

import jax
from jax.core import Tracer
from jaxtyping import AbstractArray, Bool, Float, Int, Key, PyTree

from jaxfl.core.errors import check

_STACK = "models with the client axis first"
# Models with the client axis first [M, ...]: one pytree, not a list of models.
Stack = Annotated[PyTree, _STACK]
# The kinds of numbers that are checked.
NOUNS = {Float: "floating-point numbers", Int: "whole numbers", Bool: "true and false"}


def has_form(hint: Any) -> bool:
    """Whether the hint says how many axes an argument has, or that it is a stack of models.

    Example:
      >>> from jaxtyping import Float
      >>> hints = (Float[jax.Array, "r m"], Stack | None, Float[jax.Array, "*s"])
      >>> tuple(has_form(hint) for hint in hints)
      (True, True, False)
    """
    one = _without_none(hint)
    return _is_stack(one) or _axes(one) is not None


def check_form(what: str, hint: Any, value: Any) -> None:
    """Checks the axes and numbers of an array, or the leaves of a stack, against a type hint.

    None passes, as do objects that are neither arrays nor lists.

    Args:
      what: the argument, for the message: "rows of project_rows".
      hint: its type hint, for which `has_form` holds.
      value: what was given.

    Raises:
      InputError: a list in place of an array, another number of axes or another kind of numbers,
        leaves with different numbers of rows, or a list of models.

    Example:
      >>> from jaxtyping import Float
      >>> check_form("rows", Float[jax.Array, "r m"], jnp.ones(3))
      Traceback (most recent call last):
      jaxfl.core.errors.InputError: rows has 1 axis [3]: expected 2 axes [r, m]
    """
    one = _without_none(hint)
    if _is_stack(one):
        _check_stack(what, value)
        return
    names = _axes(one)
    if names is None:
        return
    expected = f"[{', '.join(names)}]"
    check(
        not isinstance(value, list | tuple),
        f"{what} is a {type(value).__name__}: expected an array {expected}; jnp.array makes one",
    )
    axes = getattr(value, "ndim", None)
    if axes is None:
        return
    if axes != len(names):
        shape = ", ".join(map(str, value.shape))
        more = "; jax.vmap adds axes" if axes > len(names) else ""
        check(
            False,
            f"{what} has {_count(axes)} [{shape}]: expected {_count(len(names))} {expected}{more}",
        )
    noun = NOUNS.get(one.dtype)
    check(
        noun is None or str(value.dtype) in one.dtypes,
        f"{what} has numbers of type {value.dtype}: expected {noun} {expected}",
    )


def _check_stack(what: str, value: Any) -> None:
    """Checks that the leaves have the same number of rows, and that it is no list of models.

    Within a traced program a list is one model with a list of layers, as a task may have it.
    """
    all_leaves = jax.tree.leaves(value)
    numbers = [x for x in all_leaves if isinstance(x, int | float | complex)]
    leaves = [x for x in all_leaves if hasattr(x, "ndim")]
    traced = any(isinstance(x, Tracer) for x in leaves)
    if isinstance(value, list) and len(value) > 1 and not traced:
        check(
            not all(_form(x) == _form(value[0]) for x in value),
            f"{what} is a list of {len(value)} trees of the same shapes: expected one tree with "
            "the client axis first; stack models by jax.tree.map(lambda *x: jnp.stack(x), *models),"
            " and give the layers of stacked models as a tuple",
        )
    check(
        not numbers and all(x.ndim for x in leaves),
        f"{what} has a number where an array is expected: each leaf of stacked models has the "
        "client axis first",
    )
    rows = sorted({x.shape[0] for x in leaves})
    check(
        len(rows) < 2,
        f"the leaves of {what} have {' and '.join(map(str, rows))} rows: expected one row a model "
        "in each leaf",
    )


def _form(tree: Any) -> tuple:
    """The structure of a tree and the shapes of its leaves."""
    leaves, structure = jax.tree.flatten(tree)
    return structure, [getattr(x, "shape", ()) for x in leaves]


def _without_none(hint: Any) -> Any:
    """`Stack | None` -> `Stack`."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        members = [one for one in typing.get_args(hint) if one is not types.NoneType]
        return members[0] if len(members) == 1 else hint
    return hint


def _is_stack(hint: Any) -> bool:
    return typing.get_origin(hint) is Annotated and _STACK in typing.get_args(hint)


def _axes(hint: Any) -> list[str] | None:
    """The names of the axes in a hint of jaxtyping; None where their number is open.

    Keys have one axis more where they are arrays of whole numbers.
    """
    if not isinstance(hint, type) or not issubclass(hint, AbstractArray):
        return None
    names = hint.dim_str.split()
    is_open = any(name.startswith("*") or name == "..." for name in names)
    return None if is_open or hint.dtype is Key else names


def _count(axes: int) -> str:
    return f"{axes} {'axis' if axes == 1 else 'axes'}"
