"""The contract of methods: every rule, and one function that holds a method against all of them."""

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import jax

from jaxfl.core.errors import check
from jaxfl.core.types import Algorithm, AlgorithmFactory, Task
from jaxfl.testing import failures, learning, message_rules, program, results

# A rule takes a factory, and raises an `AssertionError` if the method breaks it.
Rule = Callable[[AlgorithmFactory], None]
# First those that are cheap.
RULES: tuple[Rule, ...] = (
    *program.RULES,
    *message_rules.RULES,
    *results.RULES,
    *failures.RULES,
    *learning.RULES,
)


@contextmanager
def quick_compilation() -> Iterator[None]:
    """XLA compiles in half the time, and leaves out most of its optimisations.

    Nearly all the time of a rule is that of compiling tiny programs.
    """
    name = "jax_disable_most_optimizations"
    before = jax.config.read(name)
    jax.config.update(name, True)
    try:
        yield
    finally:
        jax.config.update(name, before)


def check_method(
    factory: AlgorithmFactory, *, rules: Sequence[Rule] = RULES, **options: Any
) -> None:
    """Holds a method against the contract that every method of the library keeps.

    It runs the method on six clients with a tiny model: under a minute for a small method. With
    pytest each rule can be a test of its own: `@pytest.mark.parametrize("rule", RULES)`.

    Args:
      factory: (task, *, options) -> Algorithm, with the facts of `jaxfl.core.facts.method`.
      rules: the rules that are looked at.
      options: of the method, where they differ from its defaults.

    Raises:
      AssertionError: one line for each rule that the method breaks: what was found, and what was
        expected. An error of the method itself has a note that names the rule.
      InputError: the factory is no function, such as an algorithm that a factory has made.

    Example:
      >>> check_method(jaxfl.algorithms.fedavg, rules=RULES[:4])
      >>> unsaid = lambda task: jaxfl.algorithms.pfedgraph(task)
      >>> check_method(unsaid, rules=[program.check_offers])
      Traceback (most recent call last):
      AssertionError: <lambda> breaks 1 of 1 rules:
        check_offers: it is so that a round calls task.accept: state offers_mixture=True in ...
    """
    check(
        callable(factory),
        f"the method has type {type(factory).__name__}: expected its factory, such as "
        "jaxfl.algorithms.fedavg, without a task",
    )

    # Its name, hints and facts are those of the factory.
    @functools.wraps(factory)
    def method(task: Task, **further: Any) -> Algorithm:
        return factory(task, **options | further)

    broken = []
    for rule in rules:
        try:
            with quick_compilation():
                rule(method if options else factory)
        except AssertionError as error:
            words = " ".join(str(error).split())
            broken.append(f"  {rule.__name__}: {words}")
        except Exception as error:
            error.add_note(f"jaxfl.testing looked at {rule.__name__}: {rule.__doc__}".strip())
            raise
    if broken:
        lines = "\n".join(broken)
        raise AssertionError(
            f"{factory.__name__} breaks {len(broken)} of {len(rules)} rules:\n{lines}"
        )
