"""A small residual network with group normalisation in place of batch normalisation.

He et al., 2016, https://arxiv.org/abs/1512.03385
"""

from functools import partial

from flax import linen as nn

from jaxfl.core.errors import check
from jaxfl.core.options import checked
from jaxfl.models.convolution.conv import Conv, conv
from jaxfl.models.norm import GroupNorm
from jaxfl.models.width import divided


class ResNet(nn.Module):
    """A convolution, a residual block for each width, the mean over the image, a dense layer."""

    classes: int
    widths: tuple[int, ...]
    groups: int
    conv: Conv = "auto"
    head = "Dense_0"

    @nn.compact
    def __call__(self, x, *, until_head: bool = False):
        """[B, h, w, channel] -> [B, classes]."""
        shape = "x".join(map(str, x.shape[1:]))
        check(
            x.ndim == 4,
            f"resnet8 takes images [h, w, channel], not examples of shape {shape}: "
            "choose model mlp",
        )

        way = partial(conv, way=self.conv)

        def layer(x, width, size, stride=1):
            x = nn.Conv(
                width, (size, size), (stride, stride), use_bias=False, conv_general_dilated=way
            )(x)
            return GroupNorm(self.groups)(x)

        x = nn.relu(layer(x, self.widths[0], 3))
        for number, width in enumerate(self.widths):
            stride = 1 if number == 0 else 2
            branch = layer(nn.relu(layer(x, width, 3, stride)), width, 3)
            x = nn.relu(branch + (x if number == 0 else layer(x, width, 1, stride)))
        x = x.mean(axis=(1, 2))
        return x if until_head else nn.Dense(self.classes)(x)

    def features(self, x):
        """[B, h, w, channel] -> what enters the last layer [B, d]."""
        return self(x, until_head=True)


@checked
def resnet8(classes: int, conv: Conv = "auto", narrow: int = 1) -> nn.Module:
    """A 3x3 convolution, three residual blocks (16, 32, 64 channels) with GroupNorm, mean, logits.

    78,042 parameters for 32x32x3 images and 10 classes. A block has two 3x3 convolutions; where the
    size changes, its shortcut is a 1x1 convolution. Layers have 1 / narrow of these channels and of
    the groups.

    `conv` is the way of computing convolutions, see `jaxfl.models.convolution.conv.Conv`.

    Example:
      >>> shapes = jax.eval_shape(resnet8(10).init, jax.random.key(0), jnp.zeros((1, 32, 32, 3)))
      >>> jaxfl.tree.size(shapes)
      78042
    """
    *widths, groups = divided((16, 32, 64, 8), narrow)
    return ResNet(classes, tuple(widths), groups, conv)
