"""What is stated of a method beside its code: the command line, the docs and the tests read it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from jaxfl.options import checked
from jaxfl.types import AlgorithmFactory


@dataclass(frozen=True)
class Facts:
    """The facts of a method."""

    title: str  # its name as the paper writes it
    paper: str  # authors, title, venue, year, and the place in the paper
    link: str  # to the paper; "" if there is none
    personal: str  # what of the deployed model belongs to one client; "" if all deploy one model
    sends: str  # what a client uploads in a round; "" for nothing
    # options with which the method tells groups of clients apart in few rounds, if not its defaults
    separating: dict[str, Any] = field(default_factory=dict)


def method(
    *,
    title: str,
    paper: str,
    link: str,
    personal: str,
    sends: str,
    separating: dict[str, Any] | None = None,
) -> Callable[[AlgorithmFactory], AlgorithmFactory]:
    """A decorator of an algorithm's factory: it attaches its `facts` and checks its options.

    An option is checked against its type hint: `Annotated[Scalar, POSITIVE]`, `Literal["a", "b"]`.
    A factory without this decorator works as well; its facts are then unknown.

    Args:
      title: the method's name as the paper writes it.
      paper: authors, title, venue, year, and the place in the paper.
      link: to the paper; "" if there is none.
      personal: what of the deployed model belongs to one client: "the head"; "" if all deploy one.
      sends: what a client uploads in a round: "its model"; "" for nothing.
      separating: options with which the method tells groups of clients apart in few rounds; None if
        its defaults do.
    """
    facts = Facts(title, paper, link, personal, sends, separating or {})

    def decorate(factory: AlgorithmFactory) -> AlgorithmFactory:
        registered = checked(factory)
        registered.facts = facts
        return registered

    return decorate


def facts_of(factory: AlgorithmFactory) -> Facts:
    """The facts of a method; of a factory without any, its name alone."""
    return getattr(factory, "facts", Facts(factory.__name__, "", "", "", ""))
