"""What others call the parameters of our modules: the names of layers there, and here.

`{}` is the number of a block. A table serves both ways: to read weights, and to write adapters.
"""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxfl.core.errors import check, warn

OURS = "params/"  # before the names of a module's own parameters

# Vision transformers (`vit.ViT`): timm, https://github.com/huggingface/pytorch-image-models.
TIMM_VIT = {
    "cls_token": "class",
    "pos_embed": "position",
    "patch_embed.proj": "patches",
    "blocks.{}.attn.qkv": "block{}/qkv",
    "blocks.{}.attn.proj": "block{}/out",
    "blocks.{}.mlp.fc1": "block{}/up",
    "blocks.{}.mlp.fc2": "block{}/down",
    "blocks.{}.norm1": "block{}/norm1",
    "blocks.{}.norm2": "block{}/norm2",
    "norm": "norm",
    "head": "head",
}
# The others are those of Hugging Face, https://github.com/huggingface/transformers.
HUGGING_FACE_VIT = {
    "embeddings.cls_token": "class",
    "embeddings.position_embeddings": "position",
    "embeddings.patch_embeddings.projection": "patches",
    "encoder.layer.{}.attention.attention.query": "block{}/query",
    "encoder.layer.{}.attention.attention.key": "block{}/key",
    "encoder.layer.{}.attention.attention.value": "block{}/value",
    "encoder.layer.{}.attention.output.dense": "block{}/out",
    "encoder.layer.{}.intermediate.dense": "block{}/up",
    "encoder.layer.{}.output.dense": "block{}/down",
    "encoder.layer.{}.layernorm_before": "block{}/norm1",
    "encoder.layer.{}.layernorm_after": "block{}/norm2",
    "layernorm": "norm",
    "classifier": "head",
}
# `transformer.Transformer`
GPT2 = {
    "wte": "token",
    "wpe": "position",
    "h.{}.ln_1": "block{}/norm1",
    "h.{}.attn.c_attn": "block{}/qkv",
    "h.{}.attn.c_proj": "block{}/out",
    "h.{}.ln_2": "block{}/norm2",
    "h.{}.mlp.c_fc": "block{}/up",
    "h.{}.mlp.c_proj": "block{}/down",
    "ln_f": "norm",
}
# `bert.Bert`
BERT = {
    "embeddings.word_embeddings": "token",
    "embeddings.position_embeddings": "position",
    "embeddings.token_type_embeddings": "segment",
    "embeddings.LayerNorm": "norm",
    "encoder.layer.{}.attention.self.query": "block{}/query",
    "encoder.layer.{}.attention.self.key": "block{}/key",
    "encoder.layer.{}.attention.self.value": "block{}/value",
    "encoder.layer.{}.attention.output.dense": "block{}/out",
    "encoder.layer.{}.attention.output.LayerNorm": "block{}/norm1",
    "encoder.layer.{}.intermediate.dense": "block{}/up",
    "encoder.layer.{}.output.dense": "block{}/down",
    "encoder.layer.{}.output.LayerNorm": "block{}/norm2",
    "pooler.dense": "pooler",
    "classifier": "head",
}
# `llama.Llama`
LLAMA = {
    "embed_tokens": "token",
    "layers.{}.input_layernorm": "block{}/norm1",
    "layers.{}.self_attn.q_proj": "block{}/query",
    "layers.{}.self_attn.k_proj": "block{}/key",
    "layers.{}.self_attn.v_proj": "block{}/value",
    "layers.{}.self_attn.o_proj": "block{}/out",
    "layers.{}.post_attention_layernorm": "block{}/norm2",
    "layers.{}.mlp.gate_proj": "block{}/gate",
    "layers.{}.mlp.up_proj": "block{}/up",
    "layers.{}.mlp.down_proj": "block{}/down",
    "norm": "norm",
    "score": "head",
}
# What the names of whole models have in front.
FRONTS = ("vit.", "model.", "transformer.", "bert.")
# No parameter of our modules: heads for other tasks, masks of attention, angles.
LEFT_OUT = re.compile(
    r"pre_logits\..*|h\.\d+\.attn\.(masked_)?bias|lm_head\..*|cls\..*|.*\.inv_freq"
)


def without_fronts(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays without what names have in front, and without what is no parameter of ours.

    Older files call the weight and the bias of a normalisation gamma and beta.

    Example:
      >>> list(without_fronts({"vit.layernorm.bias": np.zeros(3), "lm_head.weight": np.zeros(3)}))
      ['layernorm.bias']
    """
    by_name = {}
    for name, array in arrays.items():
        front = next((front for front in FRONTS if name.startswith(front)), "")
        name = name.removeprefix(front)
        name = re.sub(r"\bLayerNorm\.gamma$", "LayerNorm.weight", name)
        name = re.sub(r"\bLayerNorm\.beta$", "LayerNorm.bias", name)
        if not LEFT_OUT.fullmatch(name):
            by_name[name] = array
    return by_name


def by_our_names(by_name: Mapping[str, Any], layout: Mapping[str, str]) -> dict[str, Any]:
    """The arrays by our names, with /weight or /bias where a layer has both.

    Raises:
      InputError: an array is of no part of such a model.

    Example:
      >>> list(by_our_names({"h.3.ln_1.bias": np.zeros(3)}, GPT2))
      ['block3/norm1/bias']
    """
    found = {}
    for name, array in by_name.items():
        layer, dot, kind = name.rpartition(".")
        is_layer = dot and kind in ("weight", "bias")
        ours = our_layer(layer if is_layer else name, layout)
        check(
            ours is not None,
            f"the weight {name!r:.80} is of no part of such a model: expected the names of "
            "timm or Hugging Face",
        )
        found[f"{ours}/{kind}" if is_layer else str(ours)] = array
    return found


def our_layer(name: str, layout: Mapping[str, str]) -> str | None:
    """What a layer is called here; None if it is of no such model.

    Example:
      >>> our_layer("h.3.mlp.c_fc", GPT2), our_layer("h.3.mlp", GPT2)
      ('block3/up', None)
    """
    return _other_name(name, layout)


def their_layer(name: str, layout: Mapping[str, str]) -> str | None:
    """What a layer is called there; None if it has no name there.

    Example:
      >>> their_layer("block3/up", GPT2)
      'h.3.mlp.c_fc'
    """
    return _other_name(name, {ours: theirs for theirs, ours in layout.items()})


def _other_name(name: str, layout: Mapping[str, str]) -> str | None:
    number = re.search(r"\d+(?=[./])", name)
    block = number[0] if number else ""
    for one, other in layout.items():
        if one.format(block) == name:
            return other.format(block)
    return None


def some(arrays: Mapping[str, Any]) -> str:
    """The first names, for messages."""
    names = ", ".join(f"{name:.60}" for name in list(arrays)[:3])
    return f"{names or 'nothing'}{', ...' if len(arrays) > 3 else ''}"


def check_parts(
    found: Mapping[str, np.ndarray], paths: tuple[str, ...], arrays: Mapping[str, np.ndarray]
) -> None:
    """Raises an `InputError` unless the parts are there without which nothing else can be told."""
    for path in paths:
        check(path in found, f"the weights lack {path}: {some(arrays)}")


def is_norm(layer: str) -> bool:
    """Whether a layer normalises, by its name here."""
    return layer.rpartition("/")[2].startswith("norm")


def without_other_head(outputs: int, weights: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The weights without a head that has other outputs, which is told.

    Args:
      outputs: of the model.
      weights: by our paths; kernels are [inputs, outputs].

    Example:
      >>> list(without_other_head(2, {"params/head/kernel": np.zeros((3, 2))}))
      ['params/head/kernel']
    """
    head = weights.get(f"{OURS}head/kernel")
    if head is None or head.shape[1] == outputs:
        return weights
    warn(f"the weights' head has {head.shape[1]} outputs, and the model {outputs}: it begins anew")
    return {path: array for path, array in weights.items() if "/head/" not in path}
