"""Weights of BERT, GPT-2 and Llama by the names and the configs of Hugging Face."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxfl.core.errors import check
from jaxfl.models.bert import Bert, bert
from jaxfl.models.layouts import (
    BERT,
    GPT2,
    LLAMA,
    OURS,
    by_our_names,
    check_parts,
    is_norm,
    without_fronts,
    without_other_head,
)
from jaxfl.models.llama import Llama, llama
from jaxfl.models.transformer import Transformer, transformer

TextModule = Bert | Llama | Transformer
Config = Mapping[str, Any]

# Tables of ids may be longer, up to a round number: by fewer rows than this.
SPARE = 512

LAYOUTS = {Bert: BERT, Llama: LLAMA, Transformer: GPT2}
# By the name of our field that of the config.
SIZES = {
    Bert: {
        "width": "hidden_size",
        "depth": "num_hidden_layers",
        "heads": "num_attention_heads",
        "inner": "intermediate_size",
        "length": "max_position_embeddings",
        "epsilon": "layer_norm_eps",
    },
    Llama: {
        "width": "hidden_size",
        "depth": "num_hidden_layers",
        "heads": "num_attention_heads",
        "groups": "num_key_value_heads",
        "size": "head_dim",
        "inner": "intermediate_size",
        "epsilon": "rms_norm_eps",
        "base": "rope_theta",
    },
    Transformer: {
        "width": "n_embd",
        "depth": "n_layer",
        "heads": "n_head",
        "length": "n_positions",
    },
}
# What newer configs have, and older ones leave out.
OPTIONAL = ("head_dim", "num_key_value_heads", "rope_theta")
# What a config must say, where it says it: our modules know nothing else.
EXPECTED = {
    Bert: {
        "model_type": "bert",
        "hidden_act": "gelu",
        "position_embedding_type": "absolute",
        "is_decoder": False,
    },
    Llama: {
        "model_type": "llama",
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "partial_rotary_factor": 1.0,
    },
    Transformer: {
        "model_type": "gpt2",
        "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-5,
        "scale_attn_by_inverse_layer_idx": False,
    },
}


def with_sizes(module: TextModule, config: Config) -> TextModule:
    """The module with the sizes of a config.

    Args:
      module: ours.
      config: the content of config.json beside the weights.

    Raises:
      InputError: it is of another model, or of a variant that ours is not, or lacks a size.

    Example:
      >>> sizes = {"n_embd": 8, "n_layer": 1, "n_head": 2, "n_positions": 9}
      >>> with_sizes(jaxfl.models.transformer(5, (5,)), sizes).depth
      1
    """
    kind = type(module)
    told = {name: value for name, value in config.items() if value is not None}
    # Newer configs have what is told of rotary positions in one place.
    for place in ("rope_scaling", "rope_parameters"):
        rope = told.get(place, {})
        check(
            isinstance(rope, Mapping), f"config.json has {place} {rope!r:.60}: expected an object"
        )
        turn = rope.get("rope_type", rope.get("type", "default"))
        check(
            turn == "default",
            f"config.json scales rotary positions as {turn!r:.40}, which llama does not: choose "
            "weights without",
        )
        told |= {name: value for name, value in rope.items() if value is not None}
    for name, value in EXPECTED[kind].items():
        check(
            told.get(name, value) == value,
            f"config.json has {name} {told.get(name)!r:.60}, and {kind.__name__.lower()} has "
            f"{value!r}: choose another model",
        )
    sizes: dict[str, Any] = {}
    for ours, theirs in SIZES[kind].items():
        value = told.get(theirs)
        if value is None:
            check(theirs in OPTIONAL, f"config.json lacks {theirs}: give that of the weights")
            continue
        is_number = type(value) is int or (type(value) is float and ours in ("epsilon", "base"))
        check(
            is_number and 0 < value < 1e9,
            f"config.json has {theirs} {value!r:.60}: expected a positive number",
        )
        sizes[ours] = value
    make = {Bert: bert, Llama: llama, Transformer: transformer}[kind]
    options: dict[str, Any] = {} if isinstance(module, Bert) else {"tied": module.tied}
    if isinstance(module, Transformer):
        options["remat"] = module.remat
    return make(module.outputs, (module.words,), module.positions, **sizes, **options)


def of_text(
    module: TextModule, arrays: Mapping[str, np.ndarray], config: Config | None
) -> tuple[TextModule, dict[str, np.ndarray]]:
    """A module with the sizes of the weights, and the weights by the paths of its parameters.

    Args:
      module: ours; of the sizes of the weights where there is no config.
      arrays: by their names there. Of a decoder whose outputs are the ids, lm_head is the head.
      config: the content of config.json; None: there is none.

    Raises:
      InputError: as `pretrained` says.

    Example:
      >>> of_text(jaxfl.models.transformer(9, (9,)), {"wte.weight": np.zeros((9, 4))}, None)
      Traceback (most recent call last):
      jaxfl.core.errors.InputError: the weights lack norm/weight: wte.weight
    """
    layout = LAYOUTS[type(module)]
    found = by_our_names(without_fronts(arrays), layout)
    check_parts(found, ("token/weight", "norm/weight"), arrays)
    if config is not None:
        module = with_sizes(module, config)
    blocks = {path.partition("/")[0] for path in found if path.startswith("block")}
    words, width = found["token/weight"].shape
    check(
        (width, len(blocks)) == (module.width, module.depth),
        f"the weights are of {len(blocks)} blocks of width {width}, and the model has "
        f"{module.depth} of width {module.width}: give config.json beside the weights, or choose "
        "the model whose weights they are",
    )
    spare = words - module.words
    check(
        spare == 0 or (0 < spare < SPARE and words % 8 == 0),
        f"the weights embed {words} ids, and the data have {module.words}: number the ids of the "
        "data as the weights do, by their tokenizer",
    )
    found["token/weight"] = found["token/weight"][: module.words]
    if isinstance(module, Transformer):
        module = module.clone(length=len(found["position/weight"]))
    is_next = not isinstance(module, Bert) and module.positions and module.outputs == module.words
    if is_next and config is not None:
        is_tied = bool(config.get("tie_word_embeddings", isinstance(module, Transformer)))
        head = arrays.get("lm_head.weight")
        check(
            is_tied or head is not None,
            "the weights lack lm_head.weight, which config.json says is not the embedding of the "
            "ids: give them all",
        )
        module = module.clone(tied=is_tied)
        if not is_tied and head is not None:
            found["head/weight"] = head[: module.words]
    if isinstance(module, Bert) and module.positions:
        found = {path: array for path, array in found.items() if not path.startswith("pooler/")}
    kernels = [OURS + flax_path(path) for path in found]
    is_from_the_left = isinstance(module, Transformer)
    arrays_here = [
        array.T if path.endswith("/kernel") and not is_from_the_left else array
        for path, array in zip(kernels, found.values(), strict=True)
    ]
    weights = dict(zip(kernels, arrays_here, strict=True))
    return module, without_other_head(module.outputs, weights)


def flax_path(path: str) -> str:
    """The path of a parameter in flax, of a layer's name with /weight or /bias behind it.

    Example:
      >>> flax_path("block0/norm1/weight"), flax_path("head/weight"), flax_path("head/bias")
      ('block0/norm1/scale', 'head/kernel', 'head/bias')
    """
    layer, _, kind = path.rpartition("/")
    if kind != "weight":
        return path
    if layer in ("token", "position", "segment"):
        return f"{layer}/embedding"
    return f"{layer}/{'scale' if is_norm(layer) else 'kernel'}"
