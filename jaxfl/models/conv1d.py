"""A small convolutional network for series."""

import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float

from jaxfl.core.errors import check


class Conv1D(nn.Module):
    """Convolutions over time with ReLU and max-pooling, the mean over time, one dense layer."""

    classes: int
    channels: tuple[int, ...]
    span: int

    head = "head"

    @nn.compact
    def __call__(self, x, *, until_head: bool = False):
        """[B, steps, channel] -> [B, classes]."""
        shortest = 2 ** len(self.channels)
        check(
            x.ndim == 3 and not jnp.issubdtype(x.dtype, jnp.integer),
            f"conv1d takes series [steps, channel], not {x.dtype} of shape {x.shape[1:]}: "
            "choose another model",
        )
        check(
            x.shape[1] >= shortest,
            f"conv1d takes series of {shortest} steps or more, not {x.shape[1]}: choose model mlp",
        )
        for width in self.channels:
            # A convolution is a dense layer on the values of each window.
            x = nn.relu(nn.Dense(width)(windows(x, self.span)))
            x = nn.max_pool(x, (2,), (2,))
        x = x.mean(axis=1)
        return x if until_head else nn.Dense(self.classes, name=self.head)(x)

    def features(self, x):
        """[B, steps, channel] -> what enters the last layer [B, d]."""
        return self(x, until_head=True)


def windows(x: Float[Array, "b t c"], span: int) -> Float[Array, "b t w"]:
    """The `span` steps around each step, zero beyond the ends, one after another."""
    before = (span - 1) // 2
    padded = jnp.pad(x, ((0, 0), (before, span - 1 - before), (0, 0)))
    return jnp.concatenate([padded[:, i : i + x.shape[1]] for i in range(span)], axis=2)


def conv1d(classes: int, channels: tuple[int, ...] = (32, 64), span: int = 5) -> nn.Module:
    """Convolutions over time (5 steps; 32, 64 channels) with max-pooling, their mean, logits.

    The series of a sensor: each step is a vector of channels. A pooling halves the steps. The mean
    over time makes the number of parameters independent of the length: 5 c 32 + 10,336 + 65 classes
    for c channels.

    Example:
      >>> series = jnp.zeros((2, 128, 9))
      >>> jaxfl.tree.size(jax.eval_shape(conv1d(6).init, jax.random.key(0), series))
      12166
    """
    return Conv1D(classes, tuple(channels), span)
