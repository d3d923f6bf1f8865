"""The problems of several architectures: the smallest, the largest."""

import jax
from jaxtyping import PyTree

from jaxfl.core import tree
from jaxfl.core.types import Problem, Task


def small_problem(task: Task) -> Problem:
    """The problem of the smallest architecture, or of the only one.

    Example:
      >>> small_problem(task) is task.problem
      True
    """
    return min(task.problems or (task.problem,), key=lambda one: tree.size(model_shapes(one)))


def wide_problem(task: Task) -> Problem:
    """The problem of the largest architecture, or of the only one.

    Example:
      >>> wide_problem(task) is task.problem
      True
    """
    return max(task.problems or (task.problem,), key=lambda one: tree.size(model_shapes(one)))


def model_shapes(problem: Problem) -> PyTree:
    """The shapes of a problem's model.

    Example:
      >>> tree.size(model_shapes(task.problem))
      90
    """
    return jax.eval_shape(problem.init, jax.random.key(0))
