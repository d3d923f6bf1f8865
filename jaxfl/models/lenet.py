"""LeNet as pFedGraph and MOON use it."""

from flax import linen as nn
from jax.nn import initializers

from jaxfl.core.errors import check
from jaxfl.core.options import checked
from jaxfl.models.convolution.block import ConvReluPool
from jaxfl.models.convolution.conv import Conv

# U(-1, 1) / sqrt(fan in), PyTorch's default.
pytorch_uniform = initializers.variance_scaling(1 / 3, "fan_in", "uniform")


class LeNet(nn.Module):
    """Two convolutions 5x5 with ReLU and 2x2 max-pooling, then three dense layers."""

    classes: int
    conv: Conv = "auto"
    head = "Dense_2"

    @nn.compact
    def __call__(self, x, *, until_head: bool = False):
        """[B, h, w, channel] -> [B, classes]."""
        check(
            x.ndim == 4,
            f"lenet takes images [h, w, channel], not examples of shape {x.shape[1:]}: "
            "choose model mlp",
        )
        check(
            min(x.shape[1:3]) >= 16,
            f"lenet takes images of 16x16 or more, not {x.shape[1]}x{x.shape[2]}: "
            "choose model cnn or mlp",
        )
        for width in (6, 16):
            x = ConvReluPool(
                width, (5, 5), padding="VALID", kernel_init=pytorch_uniform, conv=self.conv
            )(x)
        x = x.reshape(x.shape[0], -1)
        for width in (120, 84):
            x = nn.relu(nn.Dense(width, kernel_init=pytorch_uniform)(x))
        return x if until_head else nn.Dense(self.classes, kernel_init=pytorch_uniform)(x)

    def features(self, x):
        """[B, h, w, channel] -> what enters the last layer [B, d]."""
        return self(x, until_head=True)


@checked
def lenet(classes: int, conv: Conv = "auto") -> nn.Module:
    """Two convolutions (5x5; 6, 16 channels) with 2x2 max-pooling, dense 120, 84, logits.

    62,006 parameters for 32x32x3 images and 10 classes, 69,656 for 100 classes, 44,426 for 28x28x1
    and 10.

    Differs: biases start at zero; PyTorch's are random. The papers write "3 conv + 3 fc", but their
    code has two convolutions, as MOON's.

    `conv` is the way of computing convolutions, see `jaxfl.models.convolution.conv.Conv`.

    Example:
      >>> shapes = jax.eval_shape(lenet(10).init, jax.random.key(0), jnp.zeros((1, 32, 32, 3)))
      >>> jaxfl.tree.size(shapes)
      62006
    """
    return LeNet(classes, conv=conv)
