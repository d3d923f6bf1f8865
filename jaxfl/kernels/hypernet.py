"""A hypernetwork, whose output is a model; its last layer has a part for each leaf.

pFedHN: Shamsian et al., ICML 2021, https://arxiv.org/abs/2103.04628.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.lax import Precision
from jaxtyping import Array, Float, Key, PyTree


class Hypernet(NamedTuple):
    """The parameters phi."""

    layers: list[tuple[Float[Array, "i o"], Float[Array, "o"]]]  # kernels and biases
    kernel: PyTree  # of the last layer, for each leaf of a model [width, ...]
    bias: PyTree  # of the last layer, for each leaf of a model [...]


def init_hypernet(
    key: Key[Array, ""], model: PyTree, embedding: int, width: int, hidden: int
) -> Hypernet:
    """A hypernetwork that makes the given model of every embedding.

    It does so until the kernel of its last layer, which starts at zero, has changed.

    Args:
      key: of the random numbers.
      model: the initial model of a task.
      embedding: length of v.
      width: of the layers.
      hidden: ReLU layers between the first, linear layer and the last one.

    Example:
      >>> net = init_hypernet(jax.random.key(0), jnp.array([1.0, 2.0]), 3, 4, 1)
      >>> generate(net, jnp.ones(3)).tolist()
      [1.0, 2.0]
    """
    sizes = [embedding] + [width] * (hidden + 1)
    keys = jax.random.split(key, hidden + 1)
    normal = jax.nn.initializers.lecun_normal()
    layers = [
        (normal(k, (i, o), jnp.float32), jnp.zeros(o))
        for k, i, o in zip(keys, sizes[:-1], sizes[1:], strict=True)
    ]
    kernel = jax.tree.map(lambda x: jnp.zeros((width, *x.shape), x.dtype), model)
    return Hypernet(layers, kernel, model)


def generate(net: Hypernet, embedding: Float[Array, "e"]) -> PyTree:
    """The model h(v; phi) of a client.

    Args:
      net: phi.
      embedding: v.

    Example:
      >>> net = Hypernet([(jnp.eye(2), jnp.zeros(2))], jnp.array([[1.0], [2.0]]), jnp.array([0.5]))
      >>> generate(net, jnp.array([3.0, 4.0])).tolist()
      [11.5]
    """
    (kernel, bias), *hidden = net.layers
    features = jnp.matmul(embedding, kernel, precision=Precision.HIGHEST) + bias
    for kernel, bias in hidden:
        features = jnp.matmul(jax.nn.relu(features), kernel, precision=Precision.HIGHEST) + bias

    def leaf(kernel: Array, bias: Array) -> Array:
        return jnp.tensordot(features, kernel, axes=1, precision=Precision.HIGHEST) + bias

    return jax.tree.map(leaf, net.kernel, net.bias)
