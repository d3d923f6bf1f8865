"""A small convolutional network."""

from flax import linen as nn

from jaxfl.core.errors import check
from jaxfl.core.options import checked
from jaxfl.models.convolution.block import ConvReluPool
from jaxfl.models.convolution.conv import Conv
from jaxfl.models.width import divided


class CNN(nn.Module):
    """Two convolutions 3x3 with ReLU and 2x2 max-pooling, then two dense layers."""

    classes: int
    channels: tuple[int, ...] = (16, 32)
    hidden: int = 64
    conv: Conv = "auto"
    head = "Dense_1"

    @nn.compact
    def __call__(self, x, *, until_head: bool = False):
        """[B, h, w, channel] -> [B, classes]."""
        check(
            x.ndim == 4,
            f"cnn takes images [h, w, channel], not examples of shape {x.shape[1:]}: "
            "choose model mlp",
        )
        check(
            min(x.shape[1:3]) >= 4,
            f"cnn takes images of 4x4 or more, not {x.shape[1]}x{x.shape[2]}: choose model mlp",
        )
        for width in self.channels:
            x = ConvReluPool(width, (3, 3), conv=self.conv)(x)
        x = nn.relu(nn.Dense(self.hidden)(x.reshape(x.shape[0], -1)))
        return x if until_head else nn.Dense(self.classes)(x)

    def features(self, x):
        """[B, h, w, channel] -> what enters the last layer [B, d]."""
        return self(x, until_head=True)


@checked
def cnn(classes: int, conv: Conv = "auto", narrow: int = 1) -> nn.Module:
    """Two convolutions (3x3; 16, 32 channels) with ReLU and 2x2 max-pooling, dense 64, logits.

    Hidden layers have 1 / narrow of these channels and units.
    `conv` is the way of computing convolutions, see `jaxfl.models.convolution.conv.Conv`.

    Example:
      >>> shapes = jax.eval_shape(cnn(10).init, jax.random.key(0), jnp.zeros((1, 8, 8, 1)))
      >>> jaxfl.tree.size(shapes)
      13706
    """
    *channels, hidden = divided((16, 32, 64), narrow)
    return CNN(classes, tuple(channels), hidden, conv)
