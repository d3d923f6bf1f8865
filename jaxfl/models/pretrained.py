"""Weights that others have trained, by the names of our modules.

Vision transformers, BERT, GPT-2 and Llama are read by the names in `layouts`, EfficientNet-Lite0 by
those of timm and of efficientnet-lite-pytorch, ResNet-18 by those of torchvision
(https://github.com/pytorch/vision) and timm.
"""

import math
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from flax import linen as nn

from jaxfl.core.errors import InputError, check
from jaxfl.core.options import checked
from jaxfl.models.conv_weights import (
    RESNET18,
    efficientnet_names,
    without_norm,
    without_other_parts,
)
from jaxfl.models.efficientnet_lite import EfficientNetLite
from jaxfl.models.layouts import (
    HUGGING_FACE_VIT,
    OURS,
    TIMM_VIT,
    by_our_names,
    check_parts,
    is_norm,
    some,
    without_fronts,
    without_other_head,
)
from jaxfl.models.resnet18 import ResNet18
from jaxfl.models.text_weights import TextModule, of_text
from jaxfl.models.vit import ViT


class Pretrained(NamedTuple):
    """A module and weights for it."""

    # with the sizes that the weights have
    module: nn.Module
    # by the paths of the module's parameters; without the head if it has other outputs
    weights: dict[str, np.ndarray]


@checked
def pretrained(
    module: nn.Module,
    arrays: Mapping[str, np.ndarray],
    config: Mapping[str, Any] | None = None,
) -> Pretrained:
    """The module with weights of a file, such as `jaxfl.freeze` takes.

    A vision transformer takes from them the side of its patches, and the side to which it resizes
    images; a model of texts takes all sizes from its config. Which values of pixels they expect,
    and how they number words, their authors say.

    Args:
      module: a flax module. Of a `ViT` the names may be those of timm or of Hugging Face, of a
        `Bert`, a `Transformer` (GPT-2) and a `Llama` those of Hugging Face, of an
        `EfficientNetLite` those of timm's tf_efficientnet_lite0 or of efficientnet-lite-pytorch, of
        a `ResNet18` those of torchvision or timm.
      arrays: by their names; of any module, by the paths of its parameters, as in
        {"params/Dense_0/kernel": array}.
      config: of models of texts, the content of the config.json that Hugging Face has beside the
        weights. None: the sizes of the module are those of the weights.

    Raises:
      InputError: the names are others, an array is missing, or the sizes do not fit.

    Example:
      >>> arrays = {"params/Dense_0/kernel": np.zeros((4, 3)), "params/Dense_0/bias": np.zeros(3)}
      >>> sorted(pretrained(jaxfl.models.linear(3), arrays).weights)
      ['params/Dense_0/bias', 'params/Dense_0/kernel']
    """
    if all(name.startswith(OURS) for name in arrays):
        return Pretrained(module, dict(arrays))
    if isinstance(module, ViT):
        return of_vit(module, arrays)
    if isinstance(module, TextModule):
        return Pretrained(*of_text(module, arrays, config))
    if isinstance(module, EfficientNetLite):
        weights = without_norm(arrays, efficientnet_names(arrays))
        weights = without_other_parts(weights, module.first)
        return Pretrained(module, without_other_head(module.outputs, weights))
    if isinstance(module, ResNet18):
        weights = without_norm(arrays, RESNET18)
        return Pretrained(module, without_other_head(module.outputs, weights))
    raise InputError(
        f"the weights are called {some(arrays)}: expected the paths of the model's parameters, "
        'such as "params/Dense_0/kernel", or one of the models vit_tiny, efficientnet_lite0, '
        "resnet18, bert, transformer and llama and the names that docs/training.md lists"
    )


def of_vit(module: ViT, arrays: Mapping[str, np.ndarray]) -> Pretrained:
    """A vision transformer with the weights that timm or Hugging Face call otherwise.

    Args:
      module: a vision transformer.
      arrays: by their names there.

    Raises:
      InputError: as `pretrained`.

    Example:
      >>> of_vit(jaxfl.models.vit_tiny(10), {"cls_token": np.zeros((1, 1, 192))})
      Traceback (most recent call last):
      jaxfl.core.errors.InputError: the weights lack position: cls_token
    """
    by_name = {
        name: array
        for name, array in without_fronts(arrays).items()
        if not name.startswith("pooler.")
    }
    layout = TIMM_VIT if "cls_token" in by_name else HUGGING_FACE_VIT
    found = by_our_names(by_name, layout)
    check_parts(found, ("class", "position", "patches/weight", "norm/weight"), arrays)
    if layout is HUGGING_FACE_VIT:
        found = _joined(found)
    width, _, patch, _ = found["patches/weight"].shape
    _check_sizes(module, found, width)
    tokens = found["position"].shape[1] - 1
    side = math.isqrt(tokens)
    check(
        side * side == tokens,
        f"the weights have positions for {tokens} patches, which are no square: a distilled model "
        "has a token more, which vit lacks",
    )
    check(
        module.side in (None, side * patch),
        f"the side is {module.side}, and the weights have positions for images of {side * patch} "
        "pixels: leave it out",
    )
    # A convolution of whole patches is a product with their pixels, row by row, channels last.
    kernel = found.pop("patches/weight").transpose(2, 3, 1, 0).reshape(-1, width)
    weights = {f"{OURS}patches/kernel": kernel}
    for path, array in found.items():
        layer, _, kind = path.rpartition("/")
        if kind == "weight":
            path, array = (
                (f"{layer}/scale", array) if is_norm(layer) else (f"{layer}/kernel", array.T)
            )
        weights[OURS + path] = array
    weights = without_other_head(module.outputs, weights)
    return Pretrained(module.clone(patch=patch, side=side * patch), weights)


def _check_sizes(module: ViT, found: Mapping[str, np.ndarray], width: int) -> None:
    numbers = re.findall(r"block(\d+)/", " ".join(found))
    depth = 1 + max(map(int, numbers), default=-1)
    check(
        (width, depth) == (module.width, module.depth),
        f"the weights are of {depth} blocks of width {width}, and the model has {module.depth} of "
        f"width {module.width}: choose the model whose weights they are",
    )


def _joined(found: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays with queries, keys and values as one layer."""
    joined = {}
    for path, array in found.items():
        match = re.fullmatch(r"(block\d+)/(query|key|value)/(weight|bias)", path)
        if not match:
            joined[path] = array
        elif match[2] == "query":
            each = [f"{match[1]}/{part}/{match[3]}" for part in ("query", "key", "value")]
            check(all(one in found for one in each), f"the weights lack one of {', '.join(each)}")
            joined[f"{match[1]}/qkv/{match[3]}"] = np.concatenate([found[one] for one in each])
    return joined
