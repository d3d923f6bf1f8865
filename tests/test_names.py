"""Every public function of the package refuses a name that its hints do not list."""

import importlib
import inspect
import pkgutil

import pytest

import jaxfl
from jaxfl.core.errors import InputError
from jaxfl.core.options import accepts, listed_names, lists_names


def public_functions():
    """(name, function) of all functions of all modules, without those that begin with `_`."""
    for module in pkgutil.walk_packages(jaxfl.__path__, "jaxfl."):
        if module.name.endswith("__main__"):
            continue
        for name, member in vars(importlib.import_module(module.name)).items():
            here = getattr(member, "__module__", None) == module.name
            function = callable(member) and not inspect.isclass(member)
            if here and function and not name.startswith("_"):
                yield f"{module.name}.{name}", member


def arguments_with_names():
    """(function, argument) for all arguments whose hints list names, and do not take any text."""
    for name, function in public_functions():
        for argument, hint in inspect.get_annotations(function).items():
            if argument != "return" and lists_names(hint) and not accepts(hint, "any text"):
                yield pytest.param(function, argument, id=f"{name}-{argument}")


ARGUMENTS = list(arguments_with_names())


def test_there_are_such_arguments_in_all_rooms_that_compute():
    rooms = {param.id.split(".")[1] for param in ARGUMENTS}
    assert rooms >= {"algorithms", "core", "data", "graphs", "kernels", "models", "simulation"}
    assert len(ARGUMENTS) > 60


@pytest.mark.parametrize(("function", "argument"), ARGUMENTS)
def test_a_wrong_name_is_refused_in_one_line_that_lists_the_right_ones(function, argument):
    hints = inspect.get_annotations(function)
    given = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.default is parameter.empty and parameter.kind is not parameter.VAR_POSITIONAL:
            # The names are looked at before the function computes anything of the other arguments.
            names = listed_names(hints.get(name))
            given[name] = names[0] if names else object()
    given[argument] = "no such name"
    with pytest.raises(InputError, match="is 'no such name': expected ") as refusal:
        function(**given)
    message = str(refusal.value)
    assert "\n" not in message
    assert f"{argument} of {function.__name__} is" in message
    assert all(str(name) in message for name in listed_names(hints[argument]))


def test_a_name_in_the_place_of_its_position_is_checked_too():
    with pytest.raises(InputError, match="measure of similarities is 'Cosine': expected"):
        jaxfl.kernels.similarity.similarities(None, "Cosine")
