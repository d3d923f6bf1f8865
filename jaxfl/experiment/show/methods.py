"""An algorithm in words, from what its factory states: `registry.Facts`, options, documentation."""

import inspect
from typing import Any

from jaxfl.options import describe, parameters
from jaxfl.registry import facts_of
from jaxfl.types import AlgorithmFactory


def first_line(function: Any) -> str:
    """The first line of a function's documentation."""
    return inspect.getdoc(function).splitlines()[0]


def describe_factory(factory: AlgorithmFactory) -> str:
    """What an algorithm does, its facts, and its hyper-parameters with defaults and values."""
    facts = facts_of(factory)
    source = ", ".join(part for part in (facts.title, facts.paper, facts.link) if part)
    shared = f"Personal: {facts.personal or 'nothing'}. Sent: {facts.sends or 'nothing'}."
    if facts.defaults:
        shared += f" Defaults: {facts.defaults}."
    if facts.absent:
        shared += f" Clients absent in the last round deploy {facts.absent}."
    if facts.offers_mixture:
        shared += " A client may refuse its mixture (--defend accept)."
    lines = [first_line(factory), source, shared]
    for name, (hint, default) in parameters(factory).items():
        lines.append(f"  {name}={default}: {describe(hint) or 'an array'}")
    return "\n".join(lines)
