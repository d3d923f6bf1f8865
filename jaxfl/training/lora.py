"""Adapters on the dense layers of a flax module: low-rank ones (LoRA), and bottlenecks.

A layer with the kernel W [in, out] computes x W + (scale / rank) f(x A) B, with A [in, rank] and
B [rank, out]. B begins at zero, so that the model begins as it was. Without a function f the
adapter is one of low rank, with one, such as ReLU, a bottleneck beside the layer.

Source: Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", ICLR 2022, section 4.1;
with f: He et al., "Towards a Unified View of Parameter-Efficient Transfer Learning", ICLR 2022,
table 1 (parallel adapter).
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Float, PyTree

from jaxfl.core.backward import Needs, with_backward
from jaxfl.core.errors import check
from jaxfl.core.options import COUNT, check_range, checked
from jaxfl.core.types import Params, PRNGKey
from jaxfl.training.functions import Functions, through
from jaxfl.training.module_layers import call_arguments, first_input

# The collection of the adapters in a model's parameters.
LORA = "lora"


@dataclass(frozen=True)
class Lora:
    """A flax module with adapters; `lora` describes the fields.

    Example:
      >>> lora(jaxfl.models.mlp(10), 2).scale
      2.0
    """

    module: nn.Module
    rank: int
    where: str
    scale: float
    activation: Callable[[Array], Array] | None = None

    @property
    def factors(self) -> tuple[str, str]:
        """The names of A and B."""
        return ("a", "b") if self.activation is None else ("down", "up")


@checked
def lora(
    module: nn.Module,
    rank: int,
    where: str = "",
    *,
    scale: float | None = None,
    activation: Callable[[Array], Array] | None = None,
) -> Lora:
    """The module with an adapter at each dense layer that `where` names.

    Its parameters are those of the module and, under `lora/LAYER/a` and `lora/LAYER/b`, those of
    the adapters; of bottlenecks they are `lora/LAYER/down` and `lora/LAYER/up`.
    `jaxfl.freeze(jaxfl.lora(module, 8), weights, "lora")` trains the adapters alone.

    Args:
      module: a flax.linen module with layers `nn.Dense`, or `nn.DenseGeneral` over the last axis,
        as attention has them.
      rank: of each adapter; less than the input and the output of each layer.
      where: a regular expression that finds the layers by their paths, such as "query|value". "":
        all.
      scale: what the adapter adds is multiplied by scale / rank. None: by 1.
      activation: of a bottleneck, such as `jax.nn.relu`. None: the adapter is one of low rank.
        Bottlenecks have no product, so that `hetlora` with `mean="products"` averages their
        factors as they are.

    Differs: A begins with deviation 1 / sqrt(in), the paper's code draws it uniformly.

    Raises:
      InputError: no layer matches, or the rank is too large; raised when the task is made.

    Example:
      >>> model = jaxfl.lora(jaxfl.models.mlp(10), 2, "Dense_0")
      >>> task = jaxfl.classification(model, np.zeros((8, 8)))
      >>> jax.tree.map(jnp.shape, task.problem.init(jax.random.key(0))["lora"])
      {'Dense_0': {'a': (64, 2), 'b': (2, 32)}}
    """
    check_range(COUNT, rank=rank)
    factor = float(rank) if scale is None else float(scale)
    return Lora(module, rank, where, factor, activation)


def lora_functions(model: Lora, plain: Functions, example: PyTree) -> Functions:
    """The functions of a module with adapters.

    Args:
      model: the module, and where it has adapters.
      plain: the functions of the module without.
      example: the shape of one input [1, *feature].

    Raises:
      InputError: as `lora` says.

    Example:
      >>> module, x = jaxfl.models.linear(3), jnp.zeros((1, 4))
      >>> plain = Functions(module.init, module.apply, lambda params, x, mask, key: (x, None))
      >>> shape = jax.ShapeDtypeStruct((1, 4), "float32")
      >>> functions = lora_functions(lora(module, 1), plain, shape)
      >>> jax.tree.map(jnp.shape, functions.init(jax.random.key(1), x))["lora"]
      {'Dense_0': {'a': (4, 1), 'b': (1, 3)}}
    """
    layers = _layers(model, plain, example)

    def init(key: PRNGKey, x: PyTree) -> Params:
        base_key, key = jax.random.split(key)
        adapters: dict = {}
        for number, (path, layer) in enumerate(layers.items()):
            shape = (layer.inputs, model.rank)
            a = jax.random.normal(jax.random.fold_in(key, number), shape, layer.dtype)
            b = jnp.zeros((model.rank, layer.outputs), layer.dtype)
            *outside, name = path.split("/")
            place = adapters
            for one in outside:
                place = place.setdefault(one, {})
            place[name] = dict(zip(model.factors, (a / np.sqrt(layer.inputs), b), strict=True))
        return {**plain.init(base_key, x), LORA: adapters}

    @contextmanager
    def with_adapters(params: Params) -> Iterator[Params]:
        base = {name: params[name] for name in params if name != LORA}
        by_path = {path: _at(params[LORA], path) for path in layers}
        with nn.intercept_methods(_adding(model, by_path)):
            yield base

    return through(plain, init, with_adapters)


def is_adapter(node: Any) -> bool:
    """Whether a part of a model is a low-rank adapter, both of whose factors are trained.

    Example:
      >>> is_adapter({"a": jnp.ones((4, 1)), "b": jnp.ones((1, 3))})
      True
      >>> is_adapter({"a": None, "b": jnp.ones((1, 3))})
      False
    """
    names = isinstance(node, dict) and node.keys() == {"a", "b"}
    return names and all(hasattr(factor, "shape") for factor in node.values())


def _at(tree: dict, path: str) -> dict[str, Array]:
    """What a nested dictionary has at a path."""
    for name in path.split("/"):
        tree = tree[name]
    return tree


class DenseLayer(NamedTuple):
    """A dense layer of a module."""

    inputs: int
    outputs: int
    # of its parameters
    dtype: Any
    # whether it is a product over the last axis alone, to which an adapter may be added
    over_last_axis: bool


def dense_layers(
    init: Callable[[PRNGKey, PyTree], Params], example: PyTree
) -> dict[str, DenseLayer]:
    """The dense layers of a module by their paths, in the order in which an example passes them.

    Args:
      init: of the module.
      example: the shape of one input [1, *feature].

    Example:
      >>> layers = dense_layers(jaxfl.models.mlp(3).init, jax.ShapeDtypeStruct((1, 4), "float32"))
      >>> [(path, layer.inputs, layer.outputs) for path, layer in layers.items()][0]
      ('Dense_0', 4, 32)
    """
    layers: dict[str, DenseLayer] = {}

    def record(call: Any, arguments: tuple, named: dict, context: Any) -> Any:
        y = call(*arguments, **named)
        layer = context.module
        if context.method_name == "__call__" and isinstance(layer, nn.Dense | nn.DenseGeneral):
            x = first_input(call_arguments(layer, arguments, named))
            outputs = int(np.prod(y.shape[x.ndim - 1 :]))
            plain = not isinstance(layer, nn.DenseGeneral) or _over_last_axis(layer)
            found = DenseLayer(x.shape[-1], outputs, layer.param_dtype, plain)
            layers["/".join(layer.path)] = found
        return y

    with nn.intercept_methods(record):
        jax.eval_shape(lambda key, x: init(key, x), jax.random.key(0), example)
    return layers


def _layers(model: Lora, plain: Functions, example: PyTree) -> dict[str, DenseLayer]:
    """The dense layers with an adapter by their paths."""
    every = dense_layers(plain.init, example)
    layers = {path: layer for path, layer in every.items() if re.search(model.where, path)}
    names = list(every)
    check(
        bool(layers),
        f"no dense layer matches {model.where!r}: the model has "
        f"{', '.join(names[:6]) or 'no dense layer'}{', ...' if len(names) > 6 else ''}",
    )
    for path, layer in layers.items():
        check(
            layer.over_last_axis,
            f"the layer {path} sums over other axes than the last one: leave it out of where",
        )
        check(
            model.rank < min(layer.inputs, layer.outputs),
            f"the adapters have rank {model.rank}, and the layer {path} has {layer.inputs} inputs "
            f"and {layer.outputs} outputs: choose a lower rank, or leave the layer out of where",
        )
    return layers


def _over_last_axis(layer: nn.DenseGeneral) -> bool:
    axis = layer.axis if isinstance(layer.axis, int) else tuple(layer.axis)
    return axis in (-1, (-1,)) and not layer.batch_dims


def _adding(model: Lora, adapters: dict[str, dict[str, Array]]) -> Any:
    """An interceptor that adds to the output of a layer what its adapter makes of the input."""

    def add(call: Any, arguments: tuple, named: dict, context: Any) -> Any:
        y = call(*arguments, **named)
        adapter = adapters.get("/".join(context.module.path))
        if adapter is None or context.method_name != "__call__":
            return y
        x = first_input(call_arguments(context.module, arguments, named))
        a, b = (adapter[name].astype(y.dtype) for name in model.factors)
        inside = product(x.astype(y.dtype), a)
        inside = inside if model.activation is None else model.activation(inside)
        return y + model.scale / model.rank * product(inside, b).reshape(y.shape)

    return add


def product(x: Float[Array, "*n i"], b: Float[Array, "i o"]) -> Float[Array, "*n o"]:
    """The product x B, with a gradient of B that is fast on CPU if one of its sides is small.

    If i is the smaller one, the gradient is x^T G: from the transpose of G^T x, which is what JAX
    writes, XLA makes a copy of G's transpose, with the whole backward pass of the layer's
    activation in the same loop, which took half of a step of `vit_tiny` with adapters. If o is the
    smaller one, it is the transpose of G^T x, which takes a seventh of the time of x^T G.

    Example:
      >>> x, b = jnp.ones((5, 4, 2)), jnp.ones((2, 3))
      >>> jax.grad(lambda b: product(x, b).sum())(b).tolist()
      [[20.0, 20.0, 20.0], [20.0, 20.0, 20.0]]
    """

    def backward(factors: Needs, grad: Array) -> tuple[Array, Array]:
        x, b = factors
        rows, grads = (one.reshape(-1, one.shape[-1]) for one in (x, grad))
        contraction = (((0,), (0,)), ((), ()))
        if b.shape[0] <= b.shape[1]:
            return grad @ b.T, jax.lax.dot_general(rows, grads, contraction)
        # Without the barrier XLA moves the transpose into the product.
        transpose = jax.lax.optimization_barrier(jax.lax.dot_general(grads, rows, contraction))
        return grad @ b.T, transpose.T

    return with_backward(lambda x, b: (x @ b, (x, b)), backward)(x, b)
