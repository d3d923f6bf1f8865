"""Optimisers of local training and schedules of their learning rate, by name.

The state of an optimiser is new in each round, so a schedule goes over rounds, not over local
steps: within a round the learning rate is constant.
"""

import inspect
import re
from collections.abc import Callable

import jax
import optax
from jaxtyping import Array, Int, PyTree

from jaxfl.core.errors import InputError, check
from jaxfl.core.types import Params, Scalar

# An optimiser of local training, or a function from the number of a round to that of the round.
# `optax.MultiSteps` stands for its transformation.
Optimizer = (
    optax.GradientTransformation
    | optax.MultiSteps
    | Callable[[Array | int], optax.GradientTransformation | optax.MultiSteps]
)


def sgd(
    learning_rate: Scalar = 0.01, momentum: float = 0.9, weight_decay: float = 1e-5
) -> optax.GradientTransformation:
    """SGD as in PyTorch and in the papers: decay is added to the gradient, before the momentum.

    Example:
      >>> optimizer = jaxfl.sgd(0.5, momentum=0.0, weight_decay=0.0)
      >>> model = jnp.array([1.0])
      >>> optimizer.update(jnp.array([2.0]), optimizer.init(model), model)[0].tolist()
      [-1.0]
    """
    return optax.chain(
        optax.add_decayed_weights(weight_decay),
        optax.sgd(learning_rate, momentum if momentum else None),
    )


def adamw(
    learning_rate: Scalar, momentum: float, weight_decay: float
) -> optax.GradientTransformation:
    """AdamW: the weights decay beside the step of Adam, by `learning_rate * weight_decay`.

    Example:
      >>> optimizer = adamw(0.5, momentum=0.0, weight_decay=0.0)
      >>> model = jnp.array([1.0])
      >>> optimizer.update(jnp.array([9.0]), optimizer.init(model), model)[0].round(3).tolist()
      [-0.5]
    """
    return optax.adamw(learning_rate, weight_decay=weight_decay)


def _with_decayed_weights(optimizer: Callable[[Scalar], optax.GradientTransformation]) -> Callable:
    """An optimiser of optax, where decay is added to the gradient as in PyTorch."""

    def make(learning_rate: Scalar, momentum: float, weight_decay: float):
        return optax.chain(optax.add_decayed_weights(weight_decay), optimizer(learning_rate))

    return make


# (learning rate, momentum, weight decay) -> optimiser; only sgd has a momentum
OPTIMIZERS: dict[str, Callable[[Scalar, float, float], optax.GradientTransformation]] = {
    "sgd": sgd,
    "adam": _with_decayed_weights(optax.adam),
    "adamw": adamw,
    "rmsprop": _with_decayed_weights(optax.rmsprop),
    "adagrad": _with_decayed_weights(optax.adagrad),
}


def _exponential(rate: float, rounds: int, decay: float, decay_every: int) -> optax.Schedule:
    return optax.exponential_decay(rate, 1, decay)


def _step(rate: float, rounds: int, decay: float, decay_every: int) -> optax.Schedule:
    return optax.exponential_decay(rate, decay_every, decay, staircase=True)


def _cosine(rate: float, rounds: int, decay: float, decay_every: int) -> optax.Schedule:
    return optax.cosine_decay_schedule(rate, rounds)


# (learning rate of round 0, rounds, decay, decay_every) -> (round -> learning rate)
SCHEDULES: dict[str, Callable[[float, int, float, int], optax.Schedule]] = {
    "exponential": _exponential,
    "step": _step,
    "cosine": _cosine,
}


def optimizer_of_round(
    optimizer: Optimizer, number: Int[Array, ""] | int | None
) -> optax.GradientTransformation:
    """The optimiser of one round.

    Args:
      optimizer: of all rounds, or a function of the number of a round.
      number: of the round.

    Raises:
      InputError: the optimiser depends on the round, and no number is given.

    Example:
      >>> optimizer = optimizer_of_round(lambda number: sgd(0.5**number, 0.0, 0.0), 2)
      >>> model = jnp.array([1.0])
      >>> optimizer.update(jnp.array([1.0]), optimizer.init(model), model)[0].tolist()
      [-0.25]
    """
    if not callable(optimizer):
        return _transformation(optimizer)
    if number is None:
        raise InputError(
            "the optimiser depends on the round, and no round is given: give its number, as in "
            "Cohort(..., round=0) or evaluate(..., round=0)"
        )
    return _transformation(optimizer(number))


def _transformation(
    optimizer: optax.GradientTransformation | optax.MultiSteps,
) -> optax.GradientTransformation:
    if isinstance(optimizer, optax.MultiSteps):
        return optimizer.gradient_transformation()
    return optimizer


def check_optimizer(optimizer: object) -> None:
    """Raises an `InputError` if something else stands in the place of an optimiser.

    Example:
      >>> check_optimizer(optax.sgd)
      Traceback (most recent call last):
      jaxfl.core.errors.InputError: the optimiser is the function sgd: expected what it makes, ...
    """
    if isinstance(optimizer, optax.GradientTransformation | optax.MultiSteps):
        return
    if not callable(optimizer):
        raise InputError(
            f"the optimiser is {optimizer!r:.60}: expected one of optax, such as optax.adam(0.001) "
            "or jaxfl.sgd(0.01), or a function of the round's number that makes one"
        )
    name = getattr(optimizer, "__name__", "the optimiser")
    # A schedule is a function of the number of the round.
    if next(iter(inspect.signature(optimizer).parameters), "") == "learning_rate":
        raise InputError(
            f"the optimiser is the function {name}: expected what it makes, such as {name}(0.01)"
        )


TWO_SETS = (
    "the optimiser has two sets of parameters, one for gradients and one for predictions: expected "
    "one that moves the parameters of the model, such as optax.adam(0.001)"
)


def optimizer_step(
    optimizer: optax.GradientTransformation, grads: Params, opt_state: PyTree, params: Params
) -> tuple[Params, PyTree]:
    """The updates of the parameters and the next state of the optimiser.

    Raises:
      InputError: the optimiser needs more than the gradient of a batch, such as the value of the
        loss, or has a second set of parameters.

    Example:
      >>> model, optimizer = jnp.array([1.0]), optax.polyak_sgd()
      >>> optimizer_step(optimizer, model, optimizer.init(model), model)
      Traceback (most recent call last):
      jaxfl.core.errors.InputError: the optimiser needs more than the gradient of a ...
    """
    try:
        return optimizer.update(grads, opt_state, params)
    except TypeError as error:
        needed = re.search(r"required keyword-only arguments?: (.*)", str(error))
        if needed is None:
            raise
        raise InputError(
            f"the optimiser needs more than the gradient of a batch ({needed[1]}): expected one "
            "that takes steps by gradients alone, such as optax.adam(0.001)"
        ) from error
    except AttributeError as error:
        # optax.lookahead asks its parameters for a fast and a slow set.
        if getattr(error, "name", "") not in optax.LookaheadParams._fields:
            raise
        raise InputError(TWO_SETS) from error


def first_opt_state(optimizer: optax.GradientTransformation, params: Params) -> PyTree:
    """The state of the optimiser before the first step.

    Raises:
      InputError: the optimiser has a second set of parameters beside those that clients send.

    Example:
      >>> first_opt_state(optax.contrib.schedule_free_sgd(0.1), jnp.array([1.0]))
      Traceback (most recent call last):
      jaxfl.core.errors.InputError: the optimiser has two sets of parameters, one for gradients ...
    """
    state = optimizer.init(params)
    double = optax.contrib.ScheduleFreeState
    parts = jax.tree.leaves(state, is_leaf=lambda part: isinstance(part, double))
    check(not any(isinstance(part, double) for part in parts), TWO_SETS)
    return state


def map_optimizer(
    change: Callable[[optax.GradientTransformation], optax.GradientTransformation],
    optimizer: Optimizer,
) -> Optimizer:
    """The optimiser with a change, which applies to that of each round if they differ.

    Example:
      >>> halved = map_optimizer(lambda one: optax.chain(one, optax.scale(0.5)), sgd(1.0, 0.0, 0.0))
      >>> model = jnp.array([1.0])
      >>> halved.update(jnp.array([1.0]), halved.init(model), model)[0].tolist()
      [-0.5]
    """
    if callable(optimizer):
        return lambda number: change(_transformation(optimizer(number)))
    return change(_transformation(optimizer))
