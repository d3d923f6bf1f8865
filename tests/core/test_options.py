"""`jaxfl.core.options`: type hints in words, and as checks of JSON values and of arguments."""

import inspect
import math
from typing import Annotated, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, ArrayLike, Shaped

from jaxfl.core.errors import InputError
from jaxfl.core.options import (
    COUNT,
    COUNT_OR_ZERO,
    FRACTION,
    NOT_NEGATIVE,
    POSITIVE,
    Option,
    Range,
    accepts,
    check_value,
    checked,
    describe,
    expected,
    options_of,
    takes_numbers,
    takes_traced_numbers,
)

Scalar = float | int | Array
POSITIVE_SCALAR = Annotated[Scalar, POSITIVE]
TAU = Annotated[Scalar | Literal["learned", "learned_pairs"], NOT_NEGATIVE]
GRAPH = Literal["ring", "alone"] | Shaped[ArrayLike, "s s"]


@pytest.mark.parametrize(
    ("hint", "words"),
    [
        (float, "a number"),
        (Scalar, "a number"),
        (POSITIVE_SCALAR, "a positive number"),
        (POSITIVE_SCALAR | None, "a positive number or none"),
        (Annotated[Scalar | None, NOT_NEGATIVE], "a non-negative number or none"),
        (Annotated[float, FRACTION], "a number in [0, 1]"),
        (Annotated[float, Range(0, 1, high_included=False)], "a number in [0, 1)"),
        (Annotated[float, Range(1, low_included=False)], "a number above 1"),
        (Annotated[int, COUNT], "a whole number from 1 to 10,000"),
        (Annotated[int | None, COUNT], "a whole number from 1 to 10,000 or none"),
        (Annotated[int, COUNT_OR_ZERO], "a whole number from 0 to 10,000"),
        (Annotated[float, Range(0, 1, words="a number far below 1")], "a number far below 1"),
        (Literal["gat", "gatv2", "dot"], "one of gat, gatv2, dot"),
        (Literal[3, 4, 5], "one of 3, 4, 5"),
        (TAU, "a non-negative number or one of learned, learned_pairs"),
        (bool, "true or false"),
        (dict[str, Any], "an object"),
        (tuple[str, ...], "a list of names"),
        (Annotated[tuple[int, ...], NOT_NEGATIVE], "a list, each a non-negative whole number"),
        (Annotated[int, COUNT] | Literal["auto"], "a whole number from 1 to 10,000 or auto"),
    ],
)
def test_a_hint_is_described_in_words(hint, words):
    assert describe(hint) == words


@pytest.mark.parametrize(
    ("hint", "good", "bad"),
    [
        (float, [0, -1.5, 2**31 - 1], [True, None, "1", math.nan, math.inf, 1e39, 2**31]),
        (int, [0, -7], [1.0, True, None, 2**31]),
        (POSITIVE_SCALAR, [0.1, 3], [0, 0.0, -1, math.nan, True, None, "a"]),
        (POSITIVE_SCALAR | None, [0.1, None], [0, False, "null"]),
        (Annotated[int | None, COUNT], [1, 10_000, None], [0, 10_001, 1.0]),
        (Annotated[float, FRACTION], [0, 1, 0.5], [-0.1, 1.1]),
        (Annotated[float, POSITIVE] | Annotated[int, COUNT], [10_001], [0, -1]),
        (TAU, ["learned", 0, 2.5], ["learn", -1]),
        (Literal[3, 4, 5], [3], [6, True, 3.0, "3"]),
        (Literal[1] | None, [1, None], [True]),
        (bool, [True, False], [0, 1, "true"]),
        (dict[str, Any], [{}, {"a": 1}], [[], None]),
        (tuple[str, ...], [(), ("a", "b")], [["a"], ("a", 1), "a"]),
        (Annotated[tuple[int, ...], NOT_NEGATIVE], [(), (0, 3)], [(-1,), (1.0,), ("a",), (True,)]),
        (GRAPH, ["ring"], ["rings", [[0]], 1]),
    ],
)
def test_a_json_value_is_accepted_if_it_fits_the_hint(hint, good, bad):
    assert all(accepts(hint, value) for value in good)
    assert not any(accepts(hint, value) for value in bad)


def test_the_words_for_a_number_that_is_too_large_name_the_limit():
    assert expected(Scalar, math.inf) == "a number, finite and within 32 bits"
    assert expected(Annotated[int, COUNT], "a") == "a whole number from 1 to 10,000"


@pytest.mark.parametrize("value", [0, 0.0, -1, np.float32(-1), math.nan, True, None, "a"])
def test_an_argument_out_of_range_is_refused(value):
    with pytest.raises(InputError, match=r"^clip is .*: expected a positive number$"):
        check_value("clip", POSITIVE_SCALAR, value)


@pytest.mark.parametrize("value", [0.1, 1, math.inf, np.int32(2), jnp.zeros(()), np.zeros(2)])
def test_numbers_in_range_and_arrays_pass(value):
    check_value("clip", POSITIVE_SCALAR, value)


def test_a_traced_number_passes():
    jax.jit(lambda x: check_value("clip", POSITIVE_SCALAR, x))(0.0)
    jax.vmap(lambda x: check_value("clip", POSITIVE_SCALAR, x))(jnp.zeros(3))


def test_none_and_bool_pass_only_where_the_hint_has_them():
    check_value("clip", POSITIVE_SCALAR | None, None)
    check_value("flag", bool, True)
    check_value("anything", Any, True)
    with pytest.raises(InputError, match="count is False: expected a whole number from 1 to"):
        check_value("count", Annotated[int | None, COUNT], False)
    with pytest.raises(InputError, match="flag is 1: expected true or false"):
        check_value("flag", bool, 1)


def build(
    task: str,
    *,
    rate: POSITIVE_SCALAR = 0.1,
    clusters: Annotated[int | None, COUNT] = None,
    graph: GRAPH = "ring",
    tau: TAU = 0.5,
) -> tuple:
    """A stand-in for the factory of an algorithm."""
    return task, rate, clusters, graph, tau


def test_the_parameters_of_a_factory_are_its_keyword_only_options():
    known = options_of(build)
    assert list(known) == ["rate", "clusters", "graph", "tau"]
    assert known["rate"] == Option(POSITIVE_SCALAR, 0.1)
    assert options_of(checked(build)) == known
    assert [takes_traced_numbers(known[name].hint) for name in known] == [True, False, False, True]
    assert [takes_numbers(known[name].hint) for name in ("rate", "clusters")] == [True, True]
    assert not takes_numbers(Literal["a"] | None)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"rate": 0}, "rate of build is 0: expected a positive number"),
        ({"rate": "fast"}, "rate of build is 'fast': expected a positive number"),
        ({"rate": None}, "rate of build is None: expected a positive number"),
        ({"clusters": 0}, "clusters of build is 0: expected a whole number from 1 to 10,000 or"),
        ({"clusters": 2.0}, "clusters of build is 2.0: expected a whole number"),
        ({"graph": "circle"}, "graph of build is 'circle': expected one of ring, alone"),
        ({"tau": "learn"}, "tau of build is 'learn': expected a non-negative number or one of"),
        ({"tau": -1.0}, "tau of build is -1.0: expected a non-negative number or one of"),
    ],
)
def test_a_checked_factory_refuses_a_wrong_option(options, said):
    with pytest.raises(InputError, match=f"^hyper-parameter {said}"):
        checked(build, "hyper-parameter")("task", **options)


def test_a_checked_factory_passes_everything_else_on():
    made = checked(build)
    assert made.__name__ == "build"
    assert made("task") == build("task")
    graph = np.zeros((3, 3))
    assert made("task", graph=graph, clusters=None, tau="learned")[3] is graph
    assert jax.jit(lambda rate: made("task", rate=rate)[1])(-1.0) == -1
    with pytest.raises(TypeError, match="unexpected keyword"):
        made("task", speed=1)


def test_a_checked_function_keeps_its_signature_and_can_be_traced():
    def scaled(x: ArrayLike, form: Literal["half", "double"] = "half") -> ArrayLike:
        """Half of x, or the double."""
        return x / 2 if form == "half" else 2 * x

    careful = checked(scaled)
    assert inspect.signature(careful) == inspect.signature(scaled)
    assert (careful.__name__, careful.__doc__) == (scaled.__name__, scaled.__doc__)
    assert jax.jit(careful, static_argnames="form")(jnp.ones(()), form="double") == 2
    assert jax.vmap(lambda x: careful(x, "double"))(jnp.ones(3)).tolist() == [2, 2, 2]
    assert jax.grad(careful)(1.0) == 0.5
    with pytest.raises(InputError, match="form of scaled is 'triple': expected one of half"):
        jax.jit(careful, static_argnums=1)(jnp.ones(()), "triple")
