"""ResNet-18, whose normalisation is folded into the convolutions, for weights that are given.

He et al., "Deep Residual Learning for Image Recognition", CVPR 2016, table 1
(https://arxiv.org/abs/1512.03385). Images are padded alike on all sides, as torchvision does it
(https://github.com/pytorch/vision).
"""

from functools import partial
from typing import NamedTuple

import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float

from jaxfl.core.errors import check
from jaxfl.core.options import checked
from jaxfl.models.convolution.conv import Conv, conv
from jaxfl.models.resize import resize


class BlockSizes(NamedTuple):
    """The sizes of a block of two convolutions."""

    # channels that go out
    width: int
    stride: int


STEM = 64  # channels
DEPTH = 2  # blocks of each width
# Table 1: channels, and the stride of the first block.
STAGES = ((64, 1), (128, 2), (256, 2), (512, 2))
BLOCKS = tuple(
    BlockSizes(width, stride if place == 0 else 1)
    for width, stride in STAGES
    for place in range(DEPTH)
)


@checked
def convolution(way: Conv, width: int, side: int, stride: int, name: str) -> nn.Conv:
    """A layer of kernels of an odd side, with half of it as padding on each side of an image.

    Args:
      way: how it is computed.
      width: channels that go out.
      side: of a kernel, in pixels.
      stride: in pixels.
      name: of the layer.

    Example:
      >>> layer = convolution("auto", 8, 7, 2, "stem")
      >>> images = jnp.zeros((1, 9, 9, 3))
      >>> jax.eval_shape(layer.init_with_output, jax.random.key(0), images)[0].shape
      (1, 5, 5, 8)
    """
    sides, strides = (side, side), (stride, stride)
    return nn.Conv(
        width,
        sides,
        strides,
        padding=side // 2,
        conv_general_dilated=partial(conv, way=way),
        name=name,
    )


class Block(nn.Module):
    """Two 3x3 convolutions beside a shortcut, which is one of 1x1 where the size changes."""

    sizes: BlockSizes
    conv: Conv

    @nn.compact
    def __call__(self, x: Float[Array, "b h w c"]) -> Float[Array, "b H W d"]:
        """[B, h, w, c] -> [B, h / stride, w / stride, width], rounded up."""
        width, stride = self.sizes
        y = nn.relu(convolution(self.conv, width, 3, stride, "first")(x))
        y = convolution(self.conv, width, 3, 1, "second")(y)
        if x.shape != y.shape:
            x = convolution(self.conv, width, 1, stride, "shortcut")(x)
        return nn.relu(x + y)


class ResNet18(nn.Module):
    """A convolution, the largest of 3x3 pixels, eight residual blocks, their mean, a head."""

    outputs: int
    side: int | None = None
    conv: Conv = "auto"

    head = "head"

    @nn.compact
    def __call__(self, x, *, until_head: bool = False):
        """[B, h, w, 3] -> [B, outputs], or what enters the head."""
        check(
            x.ndim == 4 and x.shape[-1] == 3,
            "resnet18 takes images [height, width, 3], not examples of shape "
            f"{'x'.join(map(str, x.shape[1:]))}: choose another model",
        )
        x = resize(x, self.side)
        x = nn.relu(convolution(self.conv, STEM, 7, 2, "stem")(x))
        # No number here is negative, so that zeros around an image change no maximum.
        x = nn.max_pool(jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0))), (3, 3), (2, 2))
        for number, sizes in enumerate(BLOCKS):
            x = Block(sizes, self.conv, name=f"block{number}")(x)
        x = x.mean(axis=(1, 2))
        return x if until_head else nn.Dense(self.outputs, name=self.head)(x)

    def features(self, x):
        """[B, h, w, 3] -> what enters the last layer [B, 512]."""
        return self(x, until_head=True)


@checked
def resnet18(outputs: int, side: int | None = None, conv: Conv = "auto") -> nn.Module:
    """ResNet-18: eight residual blocks of 11.2 million parameters, and a head.

    Without normalisation it is hard to train from random weights; it is there for weights of a
    file, in whose layers the normalisation is folded (`jaxfl.models.pretrained`). `resnet8` is a
    smaller one that is trained from random weights. Its head is its only dense layer, so that
    `jaxfl.lora` finds no other.

    Args:
      outputs: logits, or numbers.
      side: images are resized to so many pixels a side (bilinear); the weights are of images of
        224. None: they stay.
      conv: the way of computing convolutions, see `jaxfl.models.convolution.conv.Conv`.

    Example:
      >>> images = jnp.zeros((1, 64, 64, 3))
      >>> jaxfl.tree.size(jax.eval_shape(resnet18(1000).init, jax.random.key(0), images))
      11684712
    """
    return ResNet18(outputs, side, conv)
