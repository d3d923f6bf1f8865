"""The networks of FedCedar (Wang et al., PAKDD 2024, section 4.1), with GroupNorm."""

import itertools
from functools import partial

from flax import linen as nn

from jaxfl.core.errors import check
from jaxfl.core.options import checked
from jaxfl.models.convolution.block import ConvReluPool
from jaxfl.models.convolution.conv import Conv, conv, max_pool
from jaxfl.models.norm import GroupNorm


class Cedar(nn.Module):
    """Stages of 3x3 convolutions with ReLU, each followed by 2x2 max-pooling; two dense layers."""

    classes: int
    # Channels of each convolution, stage by stage; the first of a stage is normalised.
    stages: tuple[tuple[int, ...], ...]
    hidden: int
    groups: int | None
    conv: Conv = "auto"
    head = "Dense_1"

    @nn.compact
    def __call__(self, x, *, until_head: bool = False):
        """[B, h, w, channel] -> [B, classes]."""
        shape = "x".join(map(str, x.shape[1:]))
        check(
            x.ndim == 4,
            f"cedar3 and cedar6 take images [h, w, channel], not examples of shape {shape}: "
            "choose mlp",
        )
        check(
            min(x.shape[1:3]) >= 8,
            f"cedar3 and cedar6 take images of 8x8 or more, not {shape}: choose cnn or mlp",
        )
        way = partial(conv, way=self.conv)
        layers = itertools.count()
        for stage in self.stages:
            for number, width in enumerate(stage):
                name = f"Conv_{next(layers)}"
                groups = self.groups if number == 0 else None
                pooled = number == len(stage) - 1
                if pooled and not groups:
                    x = ConvReluPool(width, (3, 3), conv=self.conv, name=name)(x)
                    continue
                x = nn.Conv(width, (3, 3), conv_general_dilated=way, name=name)(x)
                if groups:
                    x = GroupNorm(groups)(x)
                # Pooling before ReLU gives the same, since both are monotone, and is faster.
                x = nn.relu(max_pool(x) if pooled else x)
        x = nn.relu(nn.Dense(self.hidden)(x.reshape(x.shape[0], -1)))
        return x if until_head else nn.Dense(self.classes)(x)

    def features(self, x):
        """[B, h, w, channel] -> what enters the last layer [B, d]."""
        return self(x, until_head=True)


@checked
def cedar3(classes: int, groups: int | None = 8, conv: Conv = "auto") -> nn.Module:
    """Three convolutions (3x3; 16, 32, 64 channels), dense 128, logits.

    Each convolution has GroupNorm before ReLU and 2x2 max-pooling after it.
    98,666 parameters for 28x28x1 images and 10 classes, 156,298 for 32x32x3. With `groups=None`
    there is no normalisation.

    Differs: the paper gives the number of layers, for MNIST and SVHN, but no widths; the authors'
    code has two convolutions, with dropout.

    `conv` is the way of computing convolutions, see `jaxfl.models.convolution.conv.Conv`.

    Example:
      >>> shapes = jax.eval_shape(cedar3(10).init, jax.random.key(0), jnp.zeros((1, 28, 28, 1)))
      >>> jaxfl.tree.size(shapes)
      98666
    """
    return Cedar(classes, ((16,), (32,), (64,)), 128, groups, conv)


@checked
def cedar6(classes: int, groups: int | None = 8, conv: Conv = "auto") -> nn.Module:
    """Six convolutions (3x3; 32, 64, 128, 128, 256, 256 channels), dense 512, logits.

    Each pair of convolutions has GroupNorm after the first and 2x2 max-pooling after the second.
    3,229,706 parameters for 32x32x3 images and 10 classes. With `groups=None` there is no
    normalisation.

    Differs: the authors' code, for CIFAR-10, has the same convolutions with BatchNorm in place of
    GroupNorm, dropout, and dense 1024 and 512 without a layer of 10 logits.

    `conv` is the way of computing convolutions, see `jaxfl.models.convolution.conv.Conv`.

    Example:
      >>> shapes = jax.eval_shape(cedar6(10).init, jax.random.key(0), jnp.zeros((1, 32, 32, 3)))
      >>> jaxfl.tree.size(shapes)
      3229706
    """
    return Cedar(classes, ((32, 64), (128, 128), (256, 256)), 512, groups, conv)
