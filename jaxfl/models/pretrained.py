"""Weights that others have trained, by the names of our modules.

Vision transformers (`vit.ViT`) are read by the names of timm
(https://github.com/huggingface/pytorch-image-models) and of Hugging Face's transformers
(https://github.com/huggingface/transformers), decoders (`transformer.Transformer`) by those of
GPT-2 there, EfficientNet-Lite0 by those of timm and of efficientnet-lite-pytorch, ResNet-18 by
those of torchvision (https://github.com/pytorch/vision) and timm.
"""

import math
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from flax import linen as nn

from jaxfl.core.errors import InputError, check, warn
from jaxfl.core.options import checked
from jaxfl.models.conv_weights import (
    RESNET18,
    efficientnet_names,
    without_norm,
    without_other_parts,
)
from jaxfl.models.efficientnet_lite import EfficientNetLite
from jaxfl.models.resnet18 import ResNet18
from jaxfl.models.transformer import Transformer
from jaxfl.models.vit import ViT

OURS = "params/"  # before the names of a module's own parameters

# Patterns of names, and what they are called in `vit.ViT`.
TIMM_VIT = {
    r"cls_token": "class",
    r"pos_embed": "position",
    r"patch_embed\.proj": "patches",
    r"blocks\.(\d+)\.attn\.qkv": r"block\1/qkv",
    r"blocks\.(\d+)\.attn\.proj": r"block\1/out",
    r"blocks\.(\d+)\.mlp\.fc1": r"block\1/up",
    r"blocks\.(\d+)\.mlp\.fc2": r"block\1/down",
    r"blocks\.(\d+)\.(norm[12])": r"block\1/\2",
    r"norm": "norm",
    r"head": "head",
}
HUGGING_FACE_VIT = {
    r"embeddings\.cls_token": "class",
    r"embeddings\.position_embeddings": "position",
    r"embeddings\.patch_embeddings\.projection": "patches",
    r"encoder\.layer\.(\d+)\.attention\.attention\.(query|key|value)": r"block\1/\2",
    r"encoder\.layer\.(\d+)\.attention\.output\.dense": r"block\1/out",
    r"encoder\.layer\.(\d+)\.intermediate\.dense": r"block\1/up",
    r"encoder\.layer\.(\d+)\.output\.dense": r"block\1/down",
    r"encoder\.layer\.(\d+)\.layernorm_before": r"block\1/norm1",
    r"encoder\.layer\.(\d+)\.layernorm_after": r"block\1/norm2",
    r"layernorm": "norm",
    r"classifier": "head",
}
# And in `transformer.Transformer`.
GPT2 = {
    r"wte": "token",
    r"wpe": "position",
    r"h\.(\d+)\.ln_1": r"block\1/norm1",
    r"h\.(\d+)\.attn\.c_attn": r"block\1/qkv",
    r"h\.(\d+)\.attn\.c_proj": r"block\1/out",
    r"h\.(\d+)\.ln_2": r"block\1/norm2",
    r"h\.(\d+)\.mlp\.c_fc": r"block\1/up",
    r"h\.(\d+)\.mlp\.c_proj": r"block\1/down",
    r"ln_f": "norm",
}
# What the names of whole models have in front, and what is no parameter of our modules: a pooling
# layer, masks of attention, a head that is the embedding.
FRONTS = ("vit.", "model.", "transformer.")
LEFT_OUT = re.compile(r"pooler\..*|pre_logits\..*|h\.\d+\.attn\.(masked_)?bias|lm_head\..*")


class Pretrained(NamedTuple):
    """A module and weights for it."""

    # with the sizes that the weights have
    module: nn.Module
    # by the paths of the module's parameters; without the head if it has other outputs
    weights: dict[str, np.ndarray]


@checked
def pretrained(module: nn.Module, arrays: Mapping[str, np.ndarray]) -> Pretrained:
    """The module with weights of a file, such as `jaxfl.freeze` takes.

    A vision transformer takes from them the side of its patches, and the side to which it resizes
    images; a decoder takes the length of its table of positions. Which values of pixels they
    expect, and how they number words, their authors say.

    Args:
      module: a flax module. Of a `ViT` the names may be those of timm or of Hugging Face, of a
        `Transformer` those of GPT-2, of an `EfficientNetLite` those of timm's
        tf_efficientnet_lite0 or of efficientnet-lite-pytorch, of a `ResNet18` those of torchvision
        or timm.
      arrays: by their names; of any module, by the paths of its parameters, as in
        {"params/Dense_0/kernel": array}.

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
    if isinstance(module, Transformer):
        return of_transformer(module, arrays)
    if isinstance(module, EfficientNetLite):
        weights = without_norm(arrays, efficientnet_names(arrays))
        weights = without_other_parts(weights, module.first)
        return Pretrained(module, _without_other_head(module.outputs, weights))
    if isinstance(module, ResNet18):
        weights = without_norm(arrays, RESNET18)
        return Pretrained(module, _without_other_head(module.outputs, weights))
    raise InputError(
        f"the weights are called {_some(arrays)}: expected the paths of the model's parameters, "
        'such as "params/Dense_0/kernel", or one of the models vit_tiny, efficientnet_lite0, '
        "resnet18 and transformer and the names that docs/training.md lists"
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
    by_name = _without_fronts(arrays)
    table = TIMM_VIT if "cls_token" in by_name else HUGGING_FACE_VIT
    named = _named(by_name, table)
    _check_parts(named, ("class", "position", "patches/weight", "norm/weight"), arrays)
    if table is HUGGING_FACE_VIT:
        named = _joined(named)
    width, _, patch, _ = named["patches/weight"].shape
    _check_sizes(module, named, width)
    tokens = named["position"].shape[1] - 1
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
    kernel = named.pop("patches/weight").transpose(2, 3, 1, 0).reshape(-1, width)
    weights = {f"{OURS}patches/kernel": kernel}
    for path, array in named.items():
        layer, _, kind = path.rpartition("/")
        if kind == "weight":
            path, array = (
                (f"{layer}/scale", array) if _is_norm(layer) else (f"{layer}/kernel", array.T)
            )
        weights[OURS + path] = array
    weights = _without_other_head(module.outputs, weights)
    return Pretrained(module.clone(patch=patch, side=side * patch), weights)


def of_transformer(module: Transformer, arrays: Mapping[str, np.ndarray]) -> Pretrained:
    """A decoder with the weights that GPT-2 has by the names of Hugging Face.

    A head that is not the embedding of the ids begins anew.

    Args:
      module: a decoder, of the width, the depth and the heads of the weights.
      arrays: by their names there.

    Raises:
      InputError: as `pretrained`.

    Example:
      >>> of_transformer(jaxfl.models.transformer(9, (9,)), {"wte.weight": np.zeros((9, 4))})
      Traceback (most recent call last):
      jaxfl.core.errors.InputError: the weights lack position/weight: wte.weight
    """
    named = _named(_without_fronts(arrays), GPT2)
    _check_parts(named, ("token/weight", "position/weight", "norm/weight"), arrays)
    words, width = named["token/weight"].shape
    _check_sizes(module, named, width)
    check(
        words == module.words,
        f"the weights embed {words} ids, and the data have {module.words}: number the ids of the "
        "data as the weights do",
    )
    weights = {}
    for path, array in named.items():
        layer, _, kind = path.rpartition("/")
        # Layers are products from the left there, as here.
        kinds = {"token": "embedding", "position": "embedding"}
        ours = "scale" if _is_norm(layer) else kinds.get(layer, "kernel")
        weights[f"{OURS}{layer}/{ours if kind == 'weight' else kind}"] = array
    return Pretrained(module.clone(length=len(named["position/weight"])), weights)


def _without_other_head(outputs: int, weights: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The weights without a head that has other outputs."""
    head = weights.get(f"{OURS}head/bias")
    if head is not None and head.shape == (outputs,):
        return weights
    if head is not None:
        warn(f"the weights' head has {head.size} outputs, and the model {outputs}: it begins anew")
    return {path: array for path, array in weights.items() if "/head/" not in path}


def _is_norm(layer: str) -> bool:
    return layer.rpartition("/")[2].startswith("norm")


def _check_parts(
    named: Mapping[str, np.ndarray], paths: Sequence[str], arrays: Mapping[str, np.ndarray]
) -> None:
    """Checks that parts without which nothing else can be told are there."""
    for path in paths:
        check(path in named, f"the weights lack {path}: {_some(arrays)}")


def _check_sizes(module: ViT | Transformer, named: Mapping[str, np.ndarray], width: int) -> None:
    numbers = re.findall(r"block(\d+)/", " ".join(named))
    depth = 1 + max(map(int, numbers), default=-1)
    check(
        (width, depth) == (module.width, module.depth),
        f"the weights are of {depth} blocks of width {width}, and the model has {module.depth} of "
        f"width {module.width}: choose the model whose weights they are",
    )


def _without_fronts(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays without what names have in front, and without what is no parameter of ours."""
    by_name = {}
    for name, array in arrays.items():
        front = next((front for front in FRONTS if name.startswith(front)), "")
        name = name.removeprefix(front)
        if not LEFT_OUT.fullmatch(name):
            by_name[name] = array
    return by_name


def _named(by_name: Mapping[str, np.ndarray], table: Mapping[str, str]) -> dict[str, np.ndarray]:
    """The arrays by the names of a table, with /weight or /bias where a layer has both."""
    named = {}
    for name, array in by_name.items():
        for pattern, ours in table.items():
            match = re.fullmatch(rf"{pattern}(?:\.(?P<kind>weight|bias))?", name)
            if match:
                kind = match["kind"]
                named[match.expand(ours) + (f"/{kind}" if kind else "")] = array
                break
        else:
            raise InputError(
                f"the weight {name!r:.80} is of no part of such a model: expected the names of "
                "timm or Hugging Face"
            )
    return named


def _joined(named: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays with queries, keys and values as one layer."""
    joined = {}
    for path, array in named.items():
        match = re.fullmatch(r"(block\d+)/(query|key|value)/(weight|bias)", path)
        if not match:
            joined[path] = array
        elif match[2] == "query":
            each = [f"{match[1]}/{part}/{match[3]}" for part in ("query", "key", "value")]
            check(all(one in named for one in each), f"the weights lack one of {', '.join(each)}")
            joined[f"{match[1]}/qkv/{match[3]}"] = np.concatenate([named[one] for one in each])
    return joined


def _some(arrays: Mapping[str, np.ndarray]) -> str:
    names = ", ".join(f"{name:.60}" for name in list(arrays)[:3])
    return f"{names or 'nothing'}{', ...' if len(arrays) > 3 else ''}"
