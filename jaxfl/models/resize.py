"""Images at the size of those on which weights were trained."""

import jax
import numpy as np
from jaxtyping import Array


def resize(images: Array | np.ndarray, side: int | None) -> Array | np.ndarray:
    """Images with so many pixels a side (bilinear).

    Args:
      images: [B, h, w, c].
      side: pixels. None: the images stay as they are.

    Example:
      >>> resize(jnp.arange(4.0).reshape(1, 2, 2, 1), 1).tolist()
      [[[[1.5]]]]
    """
    if side is None or images.shape[1:3] == (side, side):
        return images
    return jax.image.resize(images, (len(images), side, side, images.shape[3]), "bilinear")
