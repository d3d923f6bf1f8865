"""The facts of a method, stated beside its code: the command line, docs and tests read them.

What a method states has its name here: `method`, `Paper`, and the ranges of options, which
`core.options` defines.
"""

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ParamSpec

from jaxfl.core.errors import check, check_name
from jaxfl.core.options import (
    COUNT,
    COUNT_OR_ZERO,
    FRACTION,
    NOT_NEGATIVE,
    POSITIVE,
    File,
    Range,
    checked,
)
from jaxfl.core.papers import Paper
from jaxfl.core.types import Algorithm, AlgorithmFactory, Task

__all__ = [
    "COUNT",
    "COUNT_OR_ZERO",
    "FRACTION",
    "NOT_NEGATIVE",
    "POSITIVE",
    "Facts",
    "File",
    "Paper",
    "Range",
    "facts_of",
    "method",
]

_P = ParamSpec("_P")


@dataclass(frozen=True)
class Facts:
    """The facts of a method."""

    # the method's name as the paper writes it
    title: str
    # authors, title, venue, year, and the place in the paper
    paper: str
    # URL of the paper; "" if there is none
    link: str
    # the part of the deployed model that belongs to one client, such as "the head"; "" if all
    # clients deploy one model
    personal: str
    # what a client uploads in a round, such as "its model"; "" for nothing
    sends: str
    # where the defaults of the options come from, such as "the paper", "the authors' code", "ours";
    # "" if there are none to choose
    defaults: str = ""
    # what a client deploys that was absent in the last round, if the paper gives it something else
    # than what it would deploy otherwise; "" if absence makes no difference
    absent: str = ""
    # whether the server offers each client a model that the client may refuse, by `Task.accept`
    offers_mixture: bool = False
    # whether the graph may be limited to the largest weights of each row, by `Task.keep_edges`
    takes_top_edges: bool = False
    # whether a round begins with mixtures of what other clients have sent by then, from which no
    # late client could have trained
    mixes_before_training: bool = False
    # whether local training begins from the server's newest state, or is drawn to it, from which no
    # late client could have trained; False if clients train from what they have kept since they
    # last took part
    starts_from_server: bool = True
    # whether clients mix whole models over a graph that is given: evaluations then tell the
    # spectral gap of the weights
    reports_gap: bool = False
    # whether all clients begin from the one model that the problem draws; given weights (`--init`)
    # may then take its place
    takes_initial_model: bool = True
    # whether one place has the examples of all clients: to compare with, no federated method
    pools: bool = False
    # options that separate groups of clients in few rounds, if the method's defaults do not
    separating: dict[str, Any] = field(default_factory=dict)
    # what a reference to the method needs (`jaxfl cite`); None if there is no publication
    publication: Paper | None = None
    # what to change first where clients score worse than with local training, one short sentence
    # without a full stop, for tables and docs/tuning.md; "" if it is unknown
    advice: str = ""


def method(
    *, title: str, paper: Paper | str, place: str = "", link: str = "", **others: Any
) -> Callable[[Callable[_P, Algorithm]], Callable[_P, Algorithm]]:
    """A decorator that attaches facts to an algorithm's factory and checks the factory's options.

    An option is checked against its type hint: `Annotated[Scalar, POSITIVE]`, `Literal["a", "b"]`.
    A factory without this decorator works as well, but its facts are unknown.

    Args:
      title: the method's name as the paper writes it.
      paper: the publication; a text, if there is none that could be cited.
      place: the place in the paper, such as "Algorithm 1".
      link: a URL beside a text in place of a publication; "" if there is none.
      **others: the other fields of `Facts`, of which `personal` and `sends` are needed.

    Example:
      >>> @method(title="Mine", paper="this page", personal="", sends="its model")
      ... def mine(task, *, rate: float = 0.1): ...
      >>> mine(None, rate="fast")
      Traceback (most recent call last):
      jaxfl.core.errors.InputError: hyper-parameter rate of mine is 'fast': expected a number
    """
    publication = paper if isinstance(paper, Paper) else None
    reference = paper.text if isinstance(paper, Paper) else paper
    facts = Facts(
        title=title,
        paper=f"{reference}, {place}" if place else reference,
        link=publication.link if publication else link,
        publication=publication,
        **others,
    )

    def decorate(factory: Callable[_P, Algorithm]) -> Callable[_P, Algorithm]:
        _, *further = inspect.signature(factory).parameters.values()
        takes_any = any(one.kind is one.VAR_KEYWORD for one in further)
        names = [one.name for one in further]

        @functools.wraps(factory)
        def of_task(*given: _P.args, **options: _P.kwargs) -> Algorithm:
            task = given[0] if given else options.get("task")
            check(
                isinstance(task, Task),
                f"the task of {factory.__name__} has type {type(task).__name__}: expected a task, "
                "such as jaxfl.classification makes",
            )
            for name in () if takes_any else options.keys() - {"task"}:
                check_name(
                    f"hyper-parameter of {factory.__name__}",
                    name,
                    names,
                    "" if names else "it has none",
                )
            found = task.architectures if isinstance(task, Task) else None
            if found is None:
                return factory(*given, **options)
            # The method of each architecture, and one of all clients.
            make: Callable[..., Algorithm] = factory
            others = {name: value for name, value in options.items() if name != "task"}
            each = [make(one, *given[1:], **others) for one in found.tasks]
            return found.algorithm(each, task, factory.__name__)

        made = checked(of_task, "hyper-parameter")
        made.facts = facts
        return made

    return decorate


def facts_of(factory: AlgorithmFactory) -> Facts:
    """The facts of a method; for a factory without facts, only its name.

    Example:
      >>> facts = facts_of(jaxfl.algorithms.fedavg)
      >>> facts.title, facts.publication.year
      ('FedAvg', 2017)
    """
    return getattr(factory, "facts", Facts(factory.__name__, "", "", "", ""))
