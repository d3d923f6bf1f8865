"""EfficientNet-Lite0, whose normalisation is folded into the layers, for weights that are given.

Tan & Le, "EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks", ICML 2019,
table 1 (https://arxiv.org/abs/1905.11946). Lite0 has no squeeze-and-excitation and ReLU6 in place
of swish (https://github.com/tensorflow/tpu/tree/master/models/official/efficientnet/lite).
"""

from typing import NamedTuple

import jax
from flax import linen as nn
from jaxtyping import Array, Float

from jaxfl.core.errors import check
from jaxfl.core.options import checked
from jaxfl.models.convolution.depthwise import depthwise
from jaxfl.models.resize import resize

STEM = 32  # channels
TOP = 1280


class BlockSizes(NamedTuple):
    """The sizes of an inverted residual block."""

    # the inside has so many times the channels that come in
    expansion: int
    # side of the depthwise kernel
    kernel: int
    stride: int
    # channels that go out
    width: int


# Table 1: expansion, kernel, stride of the first block, channels, blocks.
STAGES = (
    (1, 3, 1, 16, 1),
    (6, 3, 2, 24, 2),
    (6, 5, 2, 40, 2),
    (6, 3, 2, 80, 3),
    (6, 5, 1, 112, 3),
    (6, 5, 2, 192, 4),
    (6, 3, 1, 320, 1),
)
BLOCKS = tuple(
    BlockSizes(expansion, kernel, stride if number == 0 else 1, width)
    for expansion, kernel, stride, width, count in STAGES
    for number in range(count)
)


class Block(nn.Module):
    """A dense layer of each pixel, a convolution of each channel, a dense layer of each pixel."""

    sizes: BlockSizes

    @nn.compact
    def __call__(self, x: Float[Array, "b h w c"]) -> Float[Array, "b H W d"]:
        """[B, h, w, c] -> [B, h / stride, w / stride, width]."""
        expansion, kernel, stride, width = self.sizes
        inside = x.shape[-1] * expansion
        y = x
        if expansion > 1:
            y = jax.nn.relu6(nn.Dense(inside, name="expand")(y))
        sides, strides = (kernel, kernel), (stride, stride)
        y = nn.Conv(
            inside,
            sides,
            strides,
            feature_group_count=inside,
            conv_general_dilated=depthwise,
            name="depthwise",
        )(y)
        y = nn.Dense(width, name="project")(jax.nn.relu6(y))
        return x + y if x.shape == y.shape else y


class EfficientNetLite(nn.Module):
    """A convolution, inverted residual blocks, a dense layer of each pixel, their mean, a head."""

    outputs: int
    side: int | None = None
    # the first block that is here; the inputs are those of this block
    first: int = 0

    head = "head"

    @nn.compact
    def __call__(self, x, *, until_head: bool = False, until: int | None = None):
        """[B, h, w, channel] -> [B, outputs], or what enters the head or block `until`."""
        shape = "x".join(map(str, x.shape[1:]))
        expected = 3 if self.first == 0 else BLOCKS[self.first - 1].width
        check(
            x.ndim == 4 and x.shape[-1] == expected,
            f"efficientnet_lite0 takes images [height, width, {expected}] here, not examples of "
            f"shape {shape}: choose another model",
        )
        if self.first == 0:
            x = resize(x, self.side)
            x = jax.nn.relu6(nn.Conv(STEM, (3, 3), (2, 2), name="stem")(x))
        for number, sizes in enumerate(BLOCKS[:until]):
            if number >= self.first:
                x = Block(sizes, name=f"block{number}")(x)
        if until is not None:
            return x
        x = jax.nn.relu6(nn.Dense(TOP, name="top")(x)).mean(axis=(1, 2))
        return x if until_head else nn.Dense(self.outputs, name=self.head)(x)

    def features(self, x):
        """[B, h, w, channel] -> what enters the last layer [B, 1280]."""
        return self(x, until_head=True)


@checked
def efficientnet_lite0(outputs: int, side: int | None = None, first: int = 0) -> nn.Module:
    """EfficientNet-Lite0: 16 inverted residual blocks of 3.35 million parameters, and a head.

    Without normalisation it is hard to train from random weights; it is there for weights of a
    file, in whose layers the normalisation is folded (`jaxfl.models.pretrained`). The layers of
    pixels are dense ones, so that `jaxfl.lora` finds them.

    Args:
      outputs: logits, or numbers.
      side: images are resized to so many pixels a side (bilinear); the weights are of images of
        224. None: they stay.
      first: the number of the first block, 0 to 15. From 1 on the inputs are what comes out of
        the blocks before, so that frozen blocks can be computed once:
        `module.apply(params, images, until=first)`.

    Example:
      >>> images = jnp.zeros((1, 64, 64, 3))
      >>> jaxfl.tree.size(jax.eval_shape(efficientnet_lite0(1000).init, jax.random.key(0), images))
      4631000
    """
    check(
        0 <= first < len(BLOCKS),
        f"first is {first}: expected a block, 0 to {len(BLOCKS) - 1}",
    )
    return EfficientNetLite(outputs, side, first)
