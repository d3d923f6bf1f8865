"""Vision transformer (Dosovitskiy et al., 2021, https://arxiv.org/abs/2010.11929)."""

import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array

from jaxfl.core.errors import check
from jaxfl.models.attention import attention
from jaxfl.models.gelu import gelu
from jaxfl.models.resize import resize

# The side of a patch of images with at least so many pixels a side, else of smaller ones.
PATCHES = ((64, 16), (16, 4), (1, 2))


class Block(nn.Module):
    """Attention over the tokens, and a layer of each token, both with what they add to."""

    width: int
    heads: int

    @nn.compact
    def __call__(self, x):
        """[B, n, width] -> [B, n, width]."""
        batch, n, _ = x.shape
        inside = nn.LayerNorm(1e-6, name="norm1")(x)
        qkv = nn.Dense(3 * self.width, name="qkv")(inside)
        query, key, value = (
            one.reshape(batch, n, self.heads, -1) for one in jnp.split(qkv, 3, axis=-1)
        )
        mixed = attention(query, key, value).reshape(x.shape)
        x = x + nn.Dense(self.width, name="out")(mixed)
        inside = nn.LayerNorm(1e-6, name="norm2")(x)
        inside = nn.Dense(4 * self.width, name="up")(inside)
        return x + nn.Dense(self.width, name="down")(gelu(inside))


class ViT(nn.Module):
    """Patches of an image as tokens beside a class token, blocks, a dense layer on that token."""

    outputs: int
    width: int = 192
    depth: int = 12
    heads: int = 3
    patch: int | None = None
    side: int | None = None
    remat: bool = False

    head = "head"
    # The layer that makes tokens of the input.
    embedding = "patches"

    @nn.compact
    def __call__(self, x, *, until_head: bool = False):
        """[B, h, w, c] -> [B, outputs]."""
        check(
            x.ndim == 4,
            f"vit takes images [height, width, channels], not {x.shape[1:]}: choose another model",
        )
        x = nn.Dense(self.width, name="patches")(patches(resize(x, self.side), self.patch))
        shape = (1, 1, self.width)
        first = self.param("class", nn.initializers.zeros, shape)
        x = jnp.concatenate([jnp.broadcast_to(first, (len(x), *shape[1:])), x], axis=1)
        x = x + self.param("position", nn.initializers.normal(0.02), (1, *x.shape[1:]))
        block = nn.remat(Block) if self.remat else Block
        for number in range(self.depth):
            x = block(self.width, self.heads, name=f"block{number}")(x)
        x = nn.LayerNorm(1e-6, name="norm")(x)[:, 0]
        return x if until_head else nn.Dense(self.outputs, name=self.head)(x)

    def features(self, x):
        """[B, h, w, c] -> what enters the last layer [B, width]."""
        return self(x, until_head=True)


def patches(x: Array | np.ndarray, side: int | None = None) -> Array | np.ndarray:
    """The patches of images, row by row [B, n, side * side * c].

    A layer on them is a convolution whose windows do not overlap.

    Args:
      x: images [B, h, w, c].
      side: of a patch; None: 16 for images of 64 pixels and more, 4 from 16 on, else 2.

    Raises:
      InputError: the patches do not fill the images.

    Example:
      >>> patches(jnp.arange(16.0).reshape(1, 4, 4, 1), 2)[0, 1].tolist()
      [2.0, 3.0, 6.0, 7.0]
    """
    batch, height, width, channels = x.shape
    if side is None:
        side = next(patch for least, patch in PATCHES if min(height, width) >= least)
    check(
        height % side == 0 and width % side == 0,
        f"vit cuts images into patches of {side} x {side} pixels, which do not fill {height} x "
        f"{width}: give images of another size, or another patch",
    )
    cut = x.reshape(batch, height // side, side, width // side, side, channels)
    return cut.transpose(0, 1, 3, 2, 4, 5).reshape(batch, -1, side * side * channels)


def vit_tiny(
    outputs: int, patch: int | None = None, side: int | None = None, *, remat: bool = False
) -> nn.Module:
    """ViT-Tiny: 12 blocks of width 192 with 3 heads; logits from the class token.

    With `patch=16` and images of 224 x 224 x 3 it has 5.5 million parameters and a head. Its
    sizes are those of DeiT-Ti (Touvron et al., 2021, table 1, https://arxiv.org/abs/2012.12877).

    Args:
      outputs: logits, or numbers.
      patch: side of a patch; None: 16 for images of 64 pixels and more, 4 from 16 on, else 2.
      side: images are resized to so many pixels a side (bilinear). None: they stay.
      remat: each block is computed again in the backward pass, which needs less memory and a third
        more time.

    Example:
      >>> images = jnp.zeros((1, 224, 224, 3))
      >>> jaxfl.tree.size(jax.eval_shape(vit_tiny(1000).init, jax.random.key(0), images))
      5717416
    """
    return ViT(outputs, patch=patch, side=side, remat=remat)
