"""Runs the example in a docstring."""

import doctest
import inspect
import sys

import jax
import jax.numpy as jnp
import numpy as np

import jaxfl

# The names that every example sees, beside those of its module.
COMMON = {"jax": jax, "jnp": jnp, "np": np, "jaxfl": jaxfl}


def check_example(thing, **names):
    """Asserts that the docstring of a function or a class has an example, and that it holds.

    An example sees the names of the module that defines the function, those of `COMMON` and the
    given ones.
    """
    module = sys.modules[thing.__module__]
    title = f"{thing.__module__}.{thing.__name__}"
    test = doctest.DocTestParser().get_doctest(
        inspect.getdoc(thing), COMMON | vars(module) | names, title, module.__file__, 0
    )
    assert any(example.want for example in test.examples), (
        f"{title} has no example: add two lines, >>> and the result, to its docstring"
    )
    output = []
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    runner = doctest.DocTestRunner(verbose=False, optionflags=flags)
    runner.run(test, out=output.append)
    assert not runner.failures, "".join(output)
