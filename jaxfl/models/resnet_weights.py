"""Weights of ResNet-18 that others have trained, by the names of our module.

Names are those of torchvision's `resnet18` (https://github.com/pytorch/vision), which are those of
timm's too (https://github.com/huggingface/pytorch-image-models).
"""

from collections.abc import Iterator, Mapping

import numpy as np

from jaxfl.models.batch_norm import Layer, Original, without_norm
from jaxfl.models.resnet18 import BLOCKS, DEPTH

RESNET18 = Original("resnet18", "torchvision's or timm's resnet18", "fc", epsilon=1e-5)


def resnet_weights(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The weights by the paths of the module's parameters, normalisation folded into the layers.

    Args:
      arrays: kernels [out, in, h, w], and the arrays of normalisation [out], by their names.

    Raises:
      InputError: an array is missing, is of no part of such a model, or has another shape.

    Example:
      >>> resnet_weights({"conv1.weight": np.zeros((64, 3, 7, 7))})
      Traceback (most recent call last):
      jaxfl.core.errors.InputError: the weights lack bn1.weight of resnet18
    """
    return without_norm(arrays, _layers(), RESNET18)


def _layers() -> Iterator[Layer]:
    yield Layer("stem", "conv1", "bn1")
    before = BLOCKS[0].width
    for number, sizes in enumerate(BLOCKS):
        stage, place = divmod(number, DEPTH)
        block = f"layer{stage + 1}.{place}"
        yield Layer(f"block{number}/first", f"{block}.conv1", f"{block}.bn1")
        yield Layer(f"block{number}/second", f"{block}.conv2", f"{block}.bn2")
        if sizes.width != before:
            yield Layer(f"block{number}/shortcut", f"{block}.downsample.0", f"{block}.downsample.1")
        before = sizes.width
