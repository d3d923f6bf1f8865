"""Hypernetworks: the output is a model, or mixing weights for each layer of a model.

pFedHN: Shamsian et al., ICML 2021, https://arxiv.org/abs/2103.04628. pFedLA: Ma et al., CVPR 2022,
https://arxiv.org/abs/2205.03993.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.lax import Precision
from jaxtyping import Array, Float, Key, PyTree

from jaxfl.core.options import checked


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
    kernel = jax.tree.map(lambda x: jnp.zeros((width, *x.shape), x.dtype), model)
    return Hypernet(_dense(key, embedding, width, hidden + 1), kernel, model)


def _dense(key: Key[Array, ""], embedding: int, width: int, count: int) -> list[tuple]:
    """The kernels and biases of layers of one width."""
    sizes = [embedding] + [width] * count
    keys = jax.random.split(key, count)
    normal = jax.nn.initializers.lecun_normal()
    return [
        (normal(k, (i, o), float), jnp.zeros(o))
        for k, i, o in zip(keys, sizes[:-1], sizes[1:], strict=True)
    ]


@checked
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
    return _head(net, _features(net, embedding))


def init_weight_net(
    key: Key[Array, ""], layers: list[str], clients: int, embedding: int, width: int, hidden: int
) -> Hypernet:
    """A hypernetwork of pFedLA, whose output is a number for each layer of a model and each client.

    Kernels of the last layer are uniform in [0, 1] and act on features that are 0 or more, so that
    all clients have about the same weight at first.

    Args:
      key: of the random numbers.
      layers: names of the model's layers.
      clients: C.
      embedding: length of v.
      width: of the network's layers.
      hidden: number of these layers, 1 or more.

    Example:
      >>> net = init_weight_net(jax.random.key(0), ["Dense_0"], 3, embedding=2, width=4, hidden=1)
      >>> net.kernel["Dense_0"].shape
      (4, 3)
    """
    keys = jax.random.split(key, len(layers) + 1)
    kernel = {
        name: jax.random.uniform(k, (width, clients))
        for name, k in zip(layers, keys[1:], strict=True)
    }
    bias = {name: jnp.zeros(clients) for name in layers}
    return Hypernet(_dense(keys[0], embedding, width, hidden), kernel, bias)


@checked
def contributions(net: Hypernet, embedding: Float[Array, "e"]) -> dict[str, Float[Array, "c"]]:
    """How much each client contributes to each layer of the client with this embedding, 0 or more.

    Args:
      net: see `init_weight_net`. Its features pass a ReLU before the last layer too, and so does
        the output.
      embedding: v.

    Example:
      >>> layers = [(jnp.eye(2), jnp.zeros(2))]
      >>> net = Hypernet(layers, {"a": jnp.array([[1.0], [9.0]])}, {"a": jnp.array([0.5])})
      >>> contributions(net, jnp.array([3.0, -4.0]))["a"].tolist()
      [3.5]
    """
    return jax.tree.map(jax.nn.relu, _head(net, jax.nn.relu(_features(net, embedding))))


def _features(net: Hypernet, embedding: Float[Array, "e"]) -> Float[Array, "width"]:
    """The input of the last layer."""
    (kernel, bias), *hidden = net.layers
    features = jnp.matmul(embedding, kernel, precision=Precision.HIGHEST) + bias
    for kernel, bias in hidden:
        features = jnp.matmul(jax.nn.relu(features), kernel, precision=Precision.HIGHEST) + bias
    return features


def _head(net: Hypernet, features: Float[Array, "width"]) -> PyTree:
    """The output of the last layer."""

    def leaf(kernel: Array, bias: Array) -> Array:
        output = jnp.tensordot(features, kernel, axes=1, precision=Precision.HIGHEST) + bias
        return output.astype(bias.dtype)

    return jax.tree.map(leaf, net.kernel, net.bias)
