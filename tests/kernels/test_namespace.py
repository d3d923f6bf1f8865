"""The names of `jaxfl.kernels`: its index, the table of the page, and what its files define."""

import inspect
import pydoc
import re
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from claims import public_functions
from jaxtyping import AbstractArray, Bool, Int, Key, PyTree

from jaxfl import kernels
from jaxfl.core.shapes import Stack
from jaxfl.core.types import Scalar

PAGE = Path(__file__).parents[2] / "docs" / "algorithms.md"
FUNCTIONS = {name for name in kernels.__all__ if not inspect.ismodule(getattr(kernels, name))}


def test_the_index_and_the_page_list_each_function_once():
    index = re.findall(r"`(\w+)`", kernels.__doc__.partition("in their files:")[2])
    table = PAGE.read_text().partition("| functions of `jaxfl.kernels` |")[2].split("\n\n")[0]
    assert sorted(index) == sorted(re.findall(r"`(\w+)`", table)) == sorted(FUNCTIONS)


def test_help_describes_each_function():
    text = pydoc.plain(pydoc.render_doc(kernels))
    assert [name for name in FUNCTIONS if f"    {name}(" not in text] == []


def test_the_names_are_those_of_the_files_and_hide_no_file():
    for name in FUNCTIONS:
        function = getattr(kernels, name)
        assert function.__name__ == name
        assert function.__module__.startswith("jaxfl.kernels.")
    files = {file.stem for file in Path(kernels.__file__).parent.glob("[!_]*.py")}
    assert files & FUNCTIONS == set()
    assert files <= set(kernels.__all__)


# What an argument without a default may be, by its hint.
M = 6
SIZES = {"m": M, "r": M}


def example(name, hint, rng):
    """A value of an argument without a default: positive numbers, and everything else near 0."""
    if isinstance(hint, type) and issubclass(hint, AbstractArray):
        if hint.dtype is Key:
            return jax.random.key(0)
        shape = [SIZES.get(axis, 3) for axis in hint.dim_str.split()]
        if hint.dtype is Bool:
            return jnp.asarray(rng.random(shape) < 0.8)
        if hint.dtype is Int:
            return jnp.asarray(rng.integers(0, 2, shape), jnp.int32)
        return jnp.asarray(rng.random(shape), jnp.float32)
    if isinstance(hint, type) and issubclass(hint, tuple):
        fields = inspect.get_annotations(hint)
        return hint(**{name: example(name, one, rng) for name, one in fields.items()})
    if hint == Stack:
        # They are alike enough that each client has a use for some other one.
        return jnp.asarray(rng.normal(1.0, size=(M, 3)), jnp.float32)
    if hint == PyTree:
        return jnp.asarray(rng.normal(size=3), jnp.float32)
    if hint == Scalar:
        return 0.3
    assert hint is int, f"{name} has the hint {hint}: say here what it may be"
    return M if name == "clients" else 2


def functions_with(argument):
    for name, function in public_functions():
        if callable(function) and argument in inspect.signature(function).parameters:
            yield name, function


def with_examples(function):
    """The function with values of all arguments that have no default."""
    rng = np.random.default_rng(0)
    hints = inspect.get_annotations(function)
    parameters = inspect.signature(function).parameters.values()
    needed = [each.name for each in parameters if each.default is each.empty]
    return partial(function, **{name: example(name, hints[name], rng) for name in needed})


def close(one, other):
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(np.allclose(a, b, rtol=1e-5, atol=1e-6) for a, b in pairs)


@pytest.mark.parametrize("argument", ["reported", "ids"])
def test_nobody_need_say_who_reported_or_how_clients_are_numbered(argument):
    cases = list(functions_with(argument))
    assert len(cases) > 5
    for name, function in cases:
        assert inspect.signature(function).parameters[argument].default is None, name


@pytest.mark.slow(20)
def test_by_default_all_reported_and_clients_are_numbered_by_their_places():
    for name, function in functions_with("reported"):
        run = with_examples(function)
        default = run()
        assert close(default, run(reported=jnp.ones(M, bool))), name
        # It is no argument without effect.
        assert not close(default, run(reported=jnp.arange(M) != 2)), name
    for name, function in functions_with("ids"):
        run = with_examples(function)
        assert close(run(), run(ids=jnp.arange(M))), name
