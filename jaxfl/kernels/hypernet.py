"""A network that makes models: pFedHN's (Shamsian et al., ICML 2021). Its last layer has a part for each leaf."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.lax import Precision
from jaxtyping import Array, Float, Key, PyTree


class Hypernet(NamedTuple):
    """phi."""

    layers: list[tuple[Float[Array, "i o"], Float[Array, "o"]]]  # kernels and biases
    kernel: PyTree  # [width, ...] of each leaf of a model
    bias: PyTree  # [...]


def init_hypernet(
    key: Key[Array, ""], model: PyTree, embedding: int, width: int, hidden: int
) -> Hypernet:
    """Makes the given model of every embedding, until the kernel of the last layer has moved from zero.

    Args:
      key: of the random numbers.
      model: as a task starts it.
      embedding: length of v.
      width: of the layers.
      hidden: ReLU layers between the first, linear one and the last.
    """
    sizes = [embedding] + [width] * (hidden + 1)
    keys = jax.random.split(key, hidden + 1)
    normal = jax.nn.initializers.lecun_normal()
    layers = [
        (normal(k, (i, o), jnp.float32), jnp.zeros(o))
        for k, i, o in zip(keys, sizes[:-1], sizes[1:], strict=True)
    ]
    return Hypernet(
        layers, jax.tree.map(lambda x: jnp.zeros((width, *x.shape), x.dtype), model), model
    )


def generate(net: Hypernet, embedding: Float[Array, "e"]) -> PyTree:
    """The model h(v; phi) of a client."""
    (kernel, bias), *hidden = net.layers
    features = jnp.matmul(embedding, kernel, precision=Precision.HIGHEST) + bias
    for kernel, bias in hidden:
        features = jnp.matmul(jax.nn.relu(features), kernel, precision=Precision.HIGHEST) + bias

    def leaf(kernel: Array, bias: Array) -> Array:
        return jnp.tensordot(features, kernel, axes=1, precision=Precision.HIGHEST) + bias

    return jax.tree.map(leaf, net.kernel, net.bias)
