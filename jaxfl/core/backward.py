"""Functions that have a backward pass of their own, and all derivatives that JAX takes forward."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array

# What a backward pass needs of the forward pass.
Needs = tuple[Array, ...]
Forward = Callable[..., tuple[Array, Needs]]
Backward = Callable[[Needs, Array], tuple[Array, ...]]


def with_backward(forward: Forward, backward: Backward) -> Callable[..., Array]:
    """The function that computes what `forward` does, with gradients by `backward`.

    As with `jax.custom_vjp`, and forward mode, `jax.jvp`, works too: it differentiates the
    operations of `forward`. So do `jax.linearize`, `jax.hessian` and `jax.jacfwd`.

    Args:
      forward: (arrays) -> the result, an array, and what the backward pass needs, a tuple.
      backward: (what it needs, the gradient by the result) -> the gradients by the arrays.

    Example:
      >>> def forward(x):
      ...     return jnp.sin(x), (jnp.cos(x),)
      >>> def backward(needs, grad):
      ...     return (grad * needs[0],)
      >>> sine = with_backward(forward, backward)
      >>> jax.grad(sine)(0.0).item(), jax.jacfwd(sine)(0.0).item()
      (1.0, 1.0)
    """

    def result(*arrays: Array) -> Array:
        return forward(*arrays)[0]

    function = jax.custom_jvp(result)

    @function.defjvp
    def derivative(arrays: tuple, tangents: tuple) -> tuple[Array, Array]:
        y, needs = forward(*arrays)
        count = len(arrays)

        def along(*given: Array) -> Array:
            return jax.jvp(result, given[:count], given[-count:])[1]

        def back(needs: Needs, grad: Array) -> tuple[Array, ...]:
            return backward(needs[count:], grad)

        aval = ShapedArray(jnp.shape(y), jnp.result_type(y))
        (tangent,) = _linear.bind(
            *arrays, *needs, *tangents, along=along, back=back, count=count, aval=aval
        )
        return y, tangent

    return function


# A function of (arrays, needs, tangents) that is linear in its last `count` arguments: `along`
# computes it and `back`, (the others, gradient) -> gradients, is its transpose.
_linear = Primitive("linear_with_backward")
_linear.multiple_results = True


def _compute(*given: Array, along: Callable, **rest: Any) -> list[Array]:
    return [along(*given)]


_linear.def_impl(_compute)
_linear.def_abstract_eval(lambda *given, aval, **rest: [aval])
mlir.register_lowering(_linear, mlir.lower_fun(_compute, multiple_results=True))


def _transpose(grads: list, *given: Any, back: Callable, count: int, **rest: Any) -> list:
    (grad,) = grads
    others = given[:-count]
    if type(grad) is ad.Zero:
        return [None] * len(given)
    by_tangents = back(others, grad)
    asked = [ad.is_undefined_primal(one) for one in given[-count:]]
    wanted = [one if ask else None for one, ask in zip(by_tangents, asked, strict=True)]
    return [None] * len(others) + wanted


ad.primitive_transposes[_linear] = _transpose


def _derivative(given: tuple, directions: tuple, **parts: Any) -> tuple[list, list]:
    count, along = parts["count"], parts["along"]
    y = _linear.bind(*given, **parts)
    moved = [place for place, one in enumerate(directions) if type(one) is not ad.Zero]
    if all(place >= len(given) - count for place in moved):
        tangents = [ad.instantiate_zeros(one) for one in directions[-count:]]
        return y, _linear.bind(*given[:-count], *tangents, **parts)

    def of_moved(*values: Array) -> Array:
        arguments = list(given)
        for place, value in zip(moved, values, strict=True):
            arguments[place] = value
        return along(*arguments)

    start, along_these = ([one[place] for place in moved] for one in (given, directions))
    return y, [jax.jvp(of_moved, start, along_these)[1]]


ad.primitive_jvps[_linear] = _derivative


def _batch(given: tuple, axes: tuple, **parts: Any) -> tuple[list, list]:
    """Each row on its own; tangents that all rows share are repeated first."""
    along, back, count, aval = (parts[name] for name in ("along", "back", "count", "aval"))
    size = next(x.shape[axis] for x, axis in zip(given, axes, strict=True) if axis is not None)

    def rows(x: Array, axis: int | None) -> Array:
        return jnp.broadcast_to(x, (size, *x.shape)) if axis is None else jnp.moveaxis(x, axis, 0)

    others, tangents = list(given[:-count]), given[-count:]
    moved = [rows(x, axis) for x, axis in zip(tangents, axes[-count:], strict=True)]
    where = axes[:-count]
    batched = {
        "along": jax.vmap(along, (*where, *[0] * count)),
        "back": jax.vmap(back, (where, 0)),
        "count": count,
        "aval": aval.update(shape=(size, *aval.shape)),
    }
    return _linear.bind(*others, *moved, **batched), [0]


batching.primitive_batchers[_linear] = _batch
