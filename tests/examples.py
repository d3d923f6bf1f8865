"""Runs the example in a docstring, and what the examples of methods use."""

import doctest
import importlib.util
import inspect
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from toys import opposite_groups, pick

import jaxfl
from jaxfl.core.types import Cohort

DOCS = Path(__file__).parents[1] / "docs"
CLIENTS = 4
# The names that every example sees, beside those of its module.
COMMON = {"jax": jax, "jnp": jnp, "np": np, "jaxfl": jaxfl}


def check_example(thing, **names):
    """Asserts that the docstring of a function or a class has an example, and that it holds.

    An example sees the names of the module that defines it, those of `COMMON` and the given ones.
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


def four_clients():
    """A cohort of four clients with ten examples each, of eight features and two classes."""
    data = opposite_groups(CLIENTS, examples=10)
    ids = np.arange(CLIENTS)
    return Cohort(jnp.asarray(ids), pick(data.train, ids), pick(data.val, ids))


def initial_state(algorithm):
    """The shapes of the state of four clients before the first round; nothing is computed."""
    return jax.eval_shape(algorithm.init, jax.random.key(0), four_clients().train)


def one_round(algorithm):
    """The shapes of the state and the info after a round of four clients; nothing is computed."""
    key = jax.random.key(0)
    return jax.eval_shape(algorithm.round, key, initial_state(algorithm), four_clients())


def script(name):
    """A script of the folder docs, as a module; it may import the others."""
    if str(DOCS) not in sys.path:
        sys.path.append(str(DOCS))
    spec = importlib.util.spec_from_file_location(f"docs_{name}", DOCS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
