"""Random changes of the images of a batch, inside the compiled local training."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree, Shaped

from jaxfl.core.errors import check
from jaxfl.core.types import PRNGKey


def crop_flip(key: PRNGKey, x: PyTree, pad: int = 4) -> Shaped[Array, "b h w c"]:
    """Shifts each image by up to `pad` pixels along each axis, and mirrors half of them.

    Images are padded with zeros (black) and mirrored left to right, as the papers' code does for
    CIFAR (RandomCrop(32, padding=4), RandomHorizontalFlip).

    Example:
      >>> crop_flip(jax.random.key(0), jnp.ones((1, 3, 3, 1)), pad=1)[0, :, :, 0].tolist()
      [[0.0, 1.0, 1.0], [0.0, 1.0, 1.0], [0.0, 1.0, 1.0]]
    """
    return _crop_flip(key, x, pad, "constant")


def reflect_crop_flip(key: PRNGKey, x: PyTree, pad: int = 4) -> Shaped[Array, "b h w c"]:
    """As `crop_flip`, with images padded by their reflection at the edge.

    NIID-Bench's code does so for CIFAR-10 (Li et al., 2022, https://arxiv.org/abs/2102.02079).

    Example:
      >>> image = jnp.arange(9.0).reshape(1, 3, 3, 1)
      >>> reflect_crop_flip(jax.random.key(0), image, pad=1)[0, :, :, 0].tolist()
      [[1.0, 2.0, 1.0], [4.0, 5.0, 4.0], [7.0, 8.0, 7.0]]
    """
    return _crop_flip(key, x, pad, "reflect")


def _crop_flip(key: PRNGKey, x: PyTree, pad: int, mode: str) -> Array:
    check(
        hasattr(x, "shape") and x.ndim == 4,
        "crop_flip takes images (B, height, width, channel), and the examples are "
        f"{f'of shape {x.shape[1:]}' if hasattr(x, 'shape') else 'of several arrays'}: give a "
        "function of your own that changes the images among them",
    )
    shift_key, flip_key = jax.random.split(key)
    padded = jnp.pad(x, ((0, 0), (pad, pad), (pad, pad), (0, 0)), mode=mode)
    corners = jax.random.randint(shift_key, (x.shape[0], 2), 0, 2 * pad + 1)
    flip = jax.random.bernoulli(flip_key, shape=(x.shape[0],))

    def change(image: Array, corner: Array, flip: Array) -> Array:
        crop = jax.lax.dynamic_slice(image, (corner[0], corner[1], 0), x.shape[1:])
        return jnp.where(flip, crop[:, ::-1], crop)

    return jax.vmap(change)(padded, corners, flip)


AUGMENTATIONS: dict[str, Callable] = {f.__name__: f for f in (crop_flip, reflect_crop_flip)}
