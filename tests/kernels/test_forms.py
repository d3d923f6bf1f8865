"""Kernels refuse what their hints do not say: lists, other numbers of axes, other numbers."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from claims import public_functions
from jaxtyping import AbstractArray, Bool, Float, Int, Key

from jaxfl.core.errors import InputError
from jaxfl.core.shapes import Stack
from jaxfl.kernels.mixing import mix
from jaxfl.kernels.projection import project_rows
from jaxfl.kernels.similarity import cosine


def refusal(function, argument, value):
    """What a function says to a value of one argument; any object stands for the others."""
    given = {
        name: object()
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.default is parameter.empty
    }
    with pytest.raises(InputError) as error:
        function(**given | {argument: value})
    return str(error.value)


def axes(hint):
    """How many axes a hint of jaxtyping says; None where it says nothing of it."""
    if not isinstance(hint, type) or not issubclass(hint, AbstractArray) or hint.dtype is Key:
        return None
    return None if "*" in hint.dim_str else len(hint.dim_str.split())


def arguments(fits):
    for name, function in public_functions():
        for argument, hint in inspect.get_annotations(function).items():
            if argument != "return" and fits(hint):
                yield name, function, argument, hint


def test_every_kernel_refuses_a_list_of_models():
    models = [{"w": jnp.ones(3)}, {"w": -jnp.ones(3)}]
    cases = list(arguments(lambda hint: hint in (Stack, Stack | None)))
    assert len(cases) > 25
    for name, function, argument, _ in cases:
        words = f"{argument} of {function.__name__} is a list of 2 trees"
        assert words in refusal(function, argument, models), name


def test_every_kernel_refuses_arrays_with_another_number_of_axes():
    cases = list(arguments(lambda hint: axes(hint) is not None))
    assert len(cases) > 80
    for name, function, argument, hint in cases:
        words = f"{argument} of {function.__name__} has "
        wrong = np.zeros((2,) * (axes(hint) + 1))
        assert words in refusal(function, argument, wrong), name


def test_every_kernel_refuses_lists_in_place_of_arrays():
    cases = list(arguments(axes))
    assert len(cases) > 80
    for name, function, argument, hint in cases:
        words = f"{argument} of {function.__name__} is a list: expected an array ["
        assert words in refusal(function, argument, [0.0] * axes(hint)), name


def test_every_kernel_refuses_another_kind_of_numbers():
    others = {Float: np.int32, Int: np.float32, Bool: np.int32}
    cases = list(arguments(lambda hint: axes(hint) is not None and hint.dtype in others))
    assert len(cases) > 80
    for name, function, argument, hint in cases:
        other = others[hint.dtype]
        words = f"{argument} of {function.__name__} has numbers of type {other.__name__}"
        assert words in refusal(function, argument, np.zeros((2,) * axes(hint), other)), name


def test_mix_refuses_weights_that_do_not_fit_the_models():
    models = {"body": jnp.ones((3, 2)), "head": jnp.ones((3, 1))}
    with pytest.raises(InputError, match=r"are of shape \[3, 2\]: expected \[R, 3\] or \[3\]"):
        mix(jnp.ones((3, 2)), models)
    with pytest.raises(InputError, match="of the 3 models"):
        mix({"body": jnp.ones((3, 3)), "head": jnp.ones((3, 3, 3))}, models)
    for weights in ([[0.5, 0.5]], {"body": jnp.ones((3, 3))}):
        with pytest.raises(InputError, match="are no prefix of the models"):
            mix(weights, models)
    with pytest.raises(InputError, match="stacked of mix has a number"):
        mix(jnp.eye(2), {"body": [[1.0, 2.0], [3.0, 4.0]]})


def test_every_stack_has_the_hint_of_a_stack():
    for name, _, argument, hint in arguments(lambda hint: True):
        assert argument != "stacked" or hint == Stack, name


def test_the_line_says_what_is_expected():
    with pytest.raises(
        InputError, match=r"^rows of project_rows has 3 axes \[2, 3, 4\]: expected "
    ):
        project_rows(jnp.ones((2, 3, 4)))
    with pytest.raises(InputError, match="the leaves of stacked of cosine have 2 and 3 rows"):
        cosine({"a": jnp.ones((2, 1)), "b": jnp.ones((3, 1))})
    with pytest.raises(InputError, match="has a number where an array is expected"):
        cosine({"a": jnp.ones((2, 1)), "b": jnp.ones(())})


def test_leaves_in_a_tuple_layers_in_a_list_and_mapped_axes_are_taken():
    leaves = jnp.array([[1.0, 0.0], [0.0, 1.0]]), jnp.array([[1.0, 0.0], [0.0, 1.0]])
    np.testing.assert_allclose(cosine(leaves), np.eye(2), atol=1e-7)
    # A task may have a model that is a list of layers: [W [M, 2, 2], b [M, 2]].
    layers = [jnp.ones((3, 2, 2)), jnp.ones((3, 2))]
    assert cosine(layers).shape == (3, 3)
    # In the traced program of a round its layers may have equal shapes.
    mixed = jax.jit(mix)(jnp.eye(2), list(leaves))
    np.testing.assert_array_equal(mixed[1], leaves[1])
    assert jax.vmap(project_rows)(jnp.ones((2, 3, 4))).shape == (2, 3, 4)
