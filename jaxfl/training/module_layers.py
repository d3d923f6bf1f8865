"""What the layers of a flax module do in training and in evaluation, as a trace of it shows.

BatchNorm takes the statistics of the batch in training, and its running ones in evaluation; dropout
acts in training alone. A module in which they do something else would train without a word on what
nobody meant, so a task refuses it.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
from flax import linen as nn
from flax.core.tracers import current_trace
from jaxtyping import PyTree

from jaxfl.core.errors import InputError, check, warn


class Layer(NamedTuple):
    """A call of a BatchNorm, or of a layer with dropout."""

    # names of the modules from the outermost one
    path: tuple[str, ...]
    # of the input
    shape: tuple[int, ...]
    # whether it is a BatchNorm
    norm: bool
    # whether it does what it should do in training: take the batch's statistics, drop values
    trains: bool
    # JAX's trace of the call; a scan over layers traces its body several times
    trace: Any = None

    @property
    def name(self) -> str:
        """The path as text."""
        return "/".join(self.path)


def layers_of_call(
    function: Callable, *arguments: Any, shapes: bool = True
) -> tuple[Any, list[Layer]]:
    """The result of a function, and the layers that it calls, in the order of their calls.

    Args:
      function: calls flax modules.
      arguments: of the function.
      shapes: the result is that of `jax.eval_shape`.

    Example:
      >>> norm = nn.BatchNorm(use_running_average=True)
      >>> _, layers = layers_of_call(norm.init, jax.random.key(0), jnp.ones((4, 3)))
      >>> layers[0].shape, layers[0].norm, layers[0].trains
      ((4, 3), True, False)
    """
    layers: list[Layer] = []

    def intercept(call: Callable, positional: tuple, named: dict, context: Any):
        layer = context.module
        if context.method_name == "__call__" and isinstance(layer, (nn.BatchNorm, *_DROPOUT)):
            given = call_arguments(layer, positional, named)
            norm = isinstance(layer, nn.BatchNorm)
            if norm or _rate(layer) != 0:
                option = "use_running_average" if norm else "deterministic"
                off = given.get(option)
                off = getattr(layer, option) if off is None else off
                shape = first_input(given).shape
                layers.append(Layer(layer.path, shape, norm, not off, current_trace()))
        return call(*positional, **named)

    with nn.intercept_methods(intercept):
        if shapes:
            # A function of its own: JAX keeps no trace of it, in which no layer would be called.
            return jax.eval_shape(lambda *values: function(*values), *arguments), layers
        return function(*arguments), layers


def call_arguments(layer: nn.Module, positional: tuple, named: dict) -> dict[str, Any]:
    """The arguments that a call of a module gives, by their names and in the order of its hints.

    Example:
      >>> call_arguments(nn.BatchNorm(), (), {"use_running_average": True, "x": 3})
      {'x': 3, 'use_running_average': True}
    """
    bound = inspect.signature(type(layer).__call__).bind_partial(layer, *positional, **named)
    # The first one is the layer itself.
    return dict(list(bound.arguments.items())[1:])


def first_input(arguments: dict[str, Any]) -> Any:
    """The first of the arguments of a call, which is the layer's input.

    Example:
      >>> first_input({"x": 3, "use_running_average": True})
      3
    """
    return next(iter(arguments.values()))


_DROPOUT = (nn.Dropout, nn.MultiHeadDotProductAttention)


def _rate(layer: Any) -> Any:
    return layer.rate if isinstance(layer, nn.Dropout) else layer.dropout_rate


def check_evaluation(name: str, layers: Sequence[Layer], takes_train: bool) -> None:
    """Raises an `InputError` unless the layers do in evaluation what they should.

    Args:
      name: of the module.
      layers: that it calls in evaluation.
      takes_train: whether its `__call__` has the argument `train`.

    Example:
      >>> check_evaluation("Net", [Layer(("Dropout_0",), (4, 3), norm=False, trains=False)], False)
      Traceback (most recent call last):
      jaxfl.core.errors.InputError: Net has dropout (Dropout_0), and its __call__ takes no ...
    """
    for layer in layers:
        check(
            takes_train or layer.norm,
            f"{name} has dropout ({layer.name}), and its __call__ takes no `train`, by which it is "
            "on in training: add the argument, as in Dropout(0.1, deterministic=not train)",
        )
        remedy = "use_running_average=not train" if layer.norm else "deterministic=not train"
        check(
            not layer.trains,
            f"{layer.name} of {name} does in evaluation what it does in training: give it {remedy}",
        )


def check_training(name: str, passes: Mapping[int, Sequence[Layer]]) -> None:
    """Raises an `InputError` unless the layers do in training what they should.

    The first axis of a BatchNorm's input is the batch: padded rows do not count there. A BatchNorm
    that keeps its running statistics in training gives a warning.

    Args:
      name: of the module.
      passes: number of examples -> the layers that the module calls in training on so many.

    Example:
      >>> norm = Layer(("BatchNorm_0",), (7, 2, 3), norm=True, trains=True)
      >>> check_training("Net", {2: [norm]})
      Traceback (most recent call last):
      jaxfl.core.errors.InputError: BatchNorm_0 of Net normalises an array (7, 2, 3) of a batch ...
    """
    frozen = {}
    for batch, layers in passes.items():
        for layer in layers:
            check(
                layer.norm or layer.trains,
                f"dropout {layer.name} of {name} is off in training: let it depend on the argument "
                "`train`, as in Dropout(0.1, deterministic=not train), or take it out",
            )
            check(
                not layer.norm or layer.shape[:1] == (batch,),
                f"{layer.name} of {name} normalises an array {layer.shape} of a batch of {batch} "
                "examples: its first axis must be the batch, as an axis of its own, since padded "
                "examples do not count; the statistics are those over all axes but the last, so "
                "move the batch to the front before the layer",
            )
            if not layer.trains:
                frozen[layer.name] = True
    if frozen:
        warn(
            f"{', '.join(frozen)} of {name} keeps its running statistics in training: if it should "
            "take those of the batch, give it use_running_average=not train"
        )


def check_features(name: str, layers: Sequence[Layer]) -> None:
    """Raises an `InputError` if a layer below the features stays in evaluation mode in training.

    Args:
      name: of the module.
      layers: that its method `features` calls in training.

    Example:
      >>> check_features("Net", [Layer(("Dropout_0",), (4, 3), norm=False, trains=False)])
      Traceback (most recent call last):
      jaxfl.core.errors.InputError: the method `features` of Net calls Dropout_0 as in evaluation...
    """
    for layer in layers:
        check(
            layer.trains,
            f"the method `features` of {name} calls {layer.name} as in evaluation, also in "
            "training: let it take the argument `train` and hand it on, as in "
            "features(self, x, train=False)",
        )


def check_recomputable(statistics: PyTree, layers: Sequence[Layer]) -> None:
    """Raises an `InputError` unless all statistics are those of BatchNorm, which are recomputed.

    A BatchNorm takes those of its batch in training, and one pass calls it once.

    Args:
      statistics: the collection, as nested dicts.
      layers: that the module calls in training.

    Example:
      >>> check_recomputable({"SpectralNorm_0": {"sigma": jnp.ones(())}}, [])
      Traceback (most recent call last):
      jaxfl.core.errors.InputError: SpectralNorm_0/sigma is no statistic of a BatchNorm, and only...
    """
    paths = set()
    calls = []
    for layer in layers:
        if not layer.norm:
            continue
        check(
            layer.trains,
            f"{layer.name} keeps its running statistics in training, and recomputed statistics are "
            "not known then: choose statistics=averaged, or give it use_running_average=not train",
        )
        check(
            (layer.path, layer.trace) not in calls,
            f"{layer.name} is called more than once in a pass, and statistics are recomputed for "
            "layers that are called once: choose statistics=averaged, or a layer for each call",
        )
        paths.add(layer.path)
        calls.append((layer.path, layer.trace))
    for keys, _ in jax.tree_util.tree_leaves_with_path(statistics):
        names = tuple(key.key for key in keys)
        if names[:-1] not in paths:
            raise InputError(
                f"{'/'.join(names)} is no statistic of a BatchNorm, and only those are recomputed: "
                "choose statistics=averaged"
            )
