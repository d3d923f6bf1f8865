"""Adapters in the files of PEFT: `adapter_model.safetensors` and `adapter_config.json`.

https://huggingface.co/docs/peft/developer_guides/checkpoint. There A is [rank, inputs] and B is
[outputs, rank]; here they are transposed.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jaxfl.core.errors import InputError, check
from jaxfl.experiment.config.json_text import parse_json
from jaxfl.experiment.store.files import make_directory, write_file
from jaxfl.experiment.store.weights_file import read_weights, safetensors_bytes
from jaxfl.models.bert import Bert
from jaxfl.models.layouts import GPT2, OURS, our_layer, their_layer
from jaxfl.models.llama import Llama
from jaxfl.models.text_weights import LAYOUTS, TextModule, flax_path
from jaxfl.training.lora import LORA, Lora

WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"
# Of the config, values that leave plain adapters beside unchanged weights.
PLAIN = {
    "peft_type": ("LORA",),
    "use_dora": (None, False),
    "rank_pattern": (None, {}),
    "alpha_pattern": (None, {}),
    "bias": (None, "none"),
    "init_lora_weights": (None, True, False, "gaussian", "eva"),
}
FRONT = "base_model.model."  # of PEFT's names
FACTORS = {"a": "lora_A", "b": "lora_B"}
# Of the names of a whole model of Hugging Face, what its layers but the head have in front.
FRONTS = {Bert: "bert.", Llama: "model."}


def write_adapter(
    folder: Path, model: Lora, parameters: Mapping[str, np.ndarray], base: str
) -> None:
    """Writes the adapters of one client, and what else it trains, as PEFT reads them.

    `peft.PeftModel.from_pretrained(whole, folder)` then predicts what the client does, where
    `whole` is the model of transformers with the frozen weights and as many labels.

    Args:
      folder: to make; there must be none.
      model: the module with its adapters.
      parameters: of the client, by their paths.
      base: where the frozen weights lie.

    Raises:
      InputError: PEFT has no such adapters, or the folder is there or cannot be made.
    """
    module = model.module
    for name in (WEIGHTS, CONFIG):
        check(not (folder / name).exists(), f"{folder / name} exists: choose another folder")
    if not isinstance(module, Bert | Llama) or model.activation is not None:
        raise InputError(
            f"adapters of {type(module).__name__} have no form in PEFT: adapters of low rank of "
            "bert and llama have one"
        )
    arrays: dict[str, np.ndarray] = {}
    layers: set[str] = set()
    whole: set[str] = set()
    for path, array in parameters.items():
        *_, kind = path.rpartition("/")
        if path.startswith(f"{LORA}/"):
            name = _theirs(path.removeprefix(f"{LORA}/").rpartition("/")[0], module)
            layers.add(name)
            arrays[f"{FRONT}{name}.{FACTORS[kind]}.weight"] = array.T
        else:
            name = _theirs(path.removeprefix(OURS).rpartition("/")[0], module)
            whole.add(name)
            theirs = "bias" if kind == "bias" else "weight"
            arrays[f"{FRONT}{name}.{theirs}"] = array.T if kind == "kernel" else array
    both = sorted(layers & whole)
    if both:
        raise InputError(
            f"the layer {', '.join(both[:1])} has an adapter and is trained as a whole, of which "
            "PEFT takes one: leave it out of layers= or of trainable="
        )
    task = "TOKEN_CLS" if module.positions else "SEQ_CLS"
    if _is_next(module):
        task = "CAUSAL_LM"
    config = {
        "peft_type": "LORA",
        "task_type": task,
        "base_model_name_or_path": base,
        "r": model.rank,
        "lora_alpha": model.scale,
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
        "target_modules": sorted(layers),
        "modules_to_save": sorted(whole) or None,
    }
    make_directory(folder, "folder")
    write_file(folder / WEIGHTS, safetensors_bytes(arrays), "folder")
    write_file(folder / CONFIG, json.dumps(config, indent=2) + "\n", "folder")


def _is_next(module: TextModule) -> bool:
    """Whether the outputs are the ids."""
    return isinstance(module, Llama) and module.positions and module.outputs == module.words


def _theirs(layer: str, module: TextModule) -> str:
    """The name of a layer in a whole model of Hugging Face.

    Raises:
      InputError: it has none there.
    """
    if layer == "head" and _is_next(module):
        return "lm_head"
    name = their_layer(layer, LAYOUTS[type(module)])
    if name is None:
        raise InputError(f"the layer {layer} has no name in PEFT: leave it out of what is trained")
    return name if layer == "head" else FRONTS[type(module)] + name


def read_adapter(folder: Path) -> dict[str, np.ndarray]:
    """The adapters of a folder that PEFT wrote, and what else was trained, by our paths.

    B is multiplied by what PEFT multiplies B A by, alpha / rank.

    Raises:
      ValueError: a file cannot be read, or holds other adapters, or those of another model than
        BERT, GPT-2 and Llama.
    """
    try:
        config: Any = parse_json((folder / CONFIG).read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"{CONFIG} beside it: {error.strerror}") from error
    told = config if isinstance(config, dict) else {}
    odd = [name for name, plain in PLAIN.items() if told.get(name) not in plain]
    if odd:
        raise ValueError(f"{CONFIG} has {odd[0]} {told.get(odd[0])!r:.40}: expected plain LORA")
    numbers: list[Any] = [told.get("r"), told.get("lora_alpha")]
    rank, alpha = (float(one) if type(one) in (int, float) else 0.0 for one in numbers)
    if rank <= 0 or alpha <= 0:
        raise ValueError(
            f"{CONFIG} has r and lora_alpha {numbers!r:.60}: expected positive numbers"
        )
    factor = alpha / (rank**0.5 if told.get("use_rslora") else rank)
    arrays = {n.removeprefix(FRONT): x for n, x in read_weights(folder / WEIGHTS).items()}
    others = [n for n, x in arrays.items() if "lora_A" in n and len(x) != rank]
    if others:
        raise ValueError(f"{others[0]} has another rank than {CONFIG}, which says {rank:g}")
    for layout in LAYOUTS.values():
        paths = {name: path for name in arrays if (path := _ours(name, layout)) is not None}
        if len(paths) == len(arrays):
            break
    else:
        raise ValueError("its layers are none of BERT, GPT-2 or Llama")
    found = {}
    for name, path in paths.items():
        array = arrays[name].astype(np.float32)
        if path.startswith(LORA):
            array = array.T * (factor if path.endswith("/b") else 1.0)
        elif path.endswith("/kernel") and layout is not GPT2:
            array = array.T
        found[path] = array
    return found


def _ours(name: str, layout: Mapping[str, str]) -> str | None:
    """The path of a parameter; None if it is of no such model."""
    match = re.fullmatch(
        r"(?:bert\.|model\.|transformer\.)?(.*?)(?:\.(lora_[AB]))?\.(weight|bias)", name
    )
    if match is None:
        return None
    layer = "head" if match[1] == "lm_head" else our_layer(match[1], layout)
    if layer is None:
        return None
    if match[2]:
        return f"{LORA}/{layer}/{'a' if match[2] == 'lora_A' else 'b'}"
    return OURS + flax_path(f"{layer}/{match[3]}")
