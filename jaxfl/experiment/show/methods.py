"""An algorithm in words, from the documentation and the signature of its factory."""

import inspect
import re
from typing import Any

from jaxfl.options import describe, parameters
from jaxfl.types import AlgorithmFactory


def first_line(function: Any) -> str:
    """The first line of a function's documentation."""
    return inspect.getdoc(function).splitlines()[0]


def paper(factory: AlgorithmFactory) -> str:
    """Where an algorithm comes from, in a line: its module's documentation."""
    return " ".join(inspect.getdoc(inspect.getmodule(factory)).split())


def personal(factory: AlgorithmFactory) -> str:
    """What is personal and what a client sends: a sentence or two of the documentation."""
    words = " ".join(inspect.getdoc(factory).split())
    said = re.search(r"(Personal (is|are)|Nothing is personal)[^.]*\.( A client [^.]*\.)?", words)
    return said.group() if said else ""


def describe_factory(factory: AlgorithmFactory) -> str:
    """What an algorithm does, its paper, and its hyper-parameters with defaults and values."""
    lines = [first_line(factory), paper(factory), personal(factory)]
    for name, parameter in parameters(factory).items():
        lines.append(f"  {name}={parameter.default}: {describe(parameter.hint)}")
    return "\n".join(lines)
