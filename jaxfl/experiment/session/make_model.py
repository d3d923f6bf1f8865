"""The model of a run by its options, with adapters and with frozen weights of a file."""

import dataclasses
import inspect
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import jax
from flax import linen as nn
from jaxtyping import PyTree

from jaxfl.core import tree
from jaxfl.core.errors import InputError, check, warn
from jaxfl.data import Source
from jaxfl.experiment.config.hints import value_of
from jaxfl.experiment.config.json_text import parse_json
from jaxfl.experiment.config.paths import WEIGHTS, weights_in
from jaxfl.experiment.config.training_fields import OVER, ModelOptions, base_of
from jaxfl.experiment.store.weights_file import read_weights
from jaxfl.models import MODELS
from jaxfl.models.equal_features import equal_features
from jaxfl.models.pretrained import Pretrained, pretrained
from jaxfl.models.text_weights import TextModule, with_sizes
from jaxfl.training.any_model import AnyModel, functions_of
from jaxfl.training.frozen import Frozen, freeze
from jaxfl.training.lora import LORA, dense_layers, lora
from jaxfl.training.scaling import model_inputs

CONFIG = "config.json"


def make_models(
    options: ModelOptions, source: Source, dtype: str | None = None
) -> dict[str, AnyModel]:
    """The models by name, for the targets of the data and the names that they embed.

    Of several models the features have one size, see `equal_features`; of several widths of one
    model they stay as they are.

    Args:
      options: complete options of the model.
      source: the data set.
      dtype: type in which frozen weights are kept; None: as they are given.

    Raises:
      InputError: as `make_model`.
    """
    names = options.architectures
    made = {
        name: make_model(dataclasses.replace(options, model=name), source, dtype) for name in names
    }
    if len({base_of(name) for name in names}) == 1:
        return made
    modules = {name: model for name, model in made.items() if isinstance(model, nn.Module)}
    example = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), _example(source))
    return made | equal_features(modules, example, source.outputs)


def make_model(options: ModelOptions, source: Source, dtype: str | None = None) -> AnyModel:
    """The model of one name.

    A model that takes `positions` is told whether each position of an example has a label.

    Args:
      options: complete options of the model.
      source: the data set.
      dtype: type in which frozen weights are kept; None: as they are given.

    Raises:
      InputError: the file of weights cannot be read or is of another model, or a regular expression
        is none.
    """
    module = _make_module(options, source)
    if options.pretrained is None:
        return module
    module, weights = _read(weights_in(options.pretrained), module)
    head = getattr(module, "head", "") or ""
    parts = [options.trainable or head] if options.trainable or head else []
    model: AnyModel = module
    if options.lora is not None:
        _check_expression("layers of --lora", options.lora_layers)
        layers = options.lora_layers or _layers_with_adapters(module, options.lora, source)
        model = lora(module, options.lora, layers)
        parts.append(f"^{LORA}/")
    check(
        bool(parts),
        f"--pretrained: the model {options.model} has no head, so that nothing would be trained: "
        "give trainable= or --lora",
    )
    for part in parts:
        _check_expression("trainable of --pretrained", part)
    return freeze(model, weights, "|".join(f"(?:{part})" for part in parts), dtype=dtype)


def _layers_with_adapters(module: nn.Module, rank: int, source: Source) -> str:
    """A regular expression that finds the layers with adapters, if nobody names them.

    All dense layers but the head, which is trained as a whole, the embedding of the input, and
    those with too few inputs or outputs for the rank, which are told.
    """
    if not isinstance(module, nn.Module):
        return ""
    left_out = [getattr(module, name, "") or "" for name in ("head", "embedding")]
    candidates = {
        path: layer
        for path, layer in dense_layers(module.init, _example(source)).items()
        if layer.over_last_axis and not any(one and re.search(one, path) for one in left_out)
    }
    check(
        bool(candidates),
        f"--lora {rank}: the model has no dense layer but its head, which is trained as a whole: "
        "leave out --lora",
    )
    small = [path for path, one in candidates.items() if rank >= min(one.inputs, one.outputs)]
    chosen = [path for path in candidates if path not in small]
    check(
        bool(chosen),
        f"--lora {rank}: no layer of the model but its head has more than {rank} inputs and "
        "outputs: lower it, or name the layers by layers=",
    )
    if small:
        names = f"{', '.join(small[:3])}{', ...' if len(small) > 3 else ''}"
        warn(
            f"--lora {rank}: no adapters at {names}, for which the rank is too large: lower it, "
            "or name the layers by layers="
        )
    return f"^(?:{'|'.join(map(re.escape, chosen))})$"


def _make_module(options: ModelOptions, source: Source) -> nn.Module:
    """The model by name, all of whose parameters are trained."""
    name = value_of(options.model)
    make: Callable[..., nn.Module] = MODELS[base_of(name)]
    options_of_model = inspect.signature(make).parameters
    known: dict[str, Any] = {"vocabulary": source.vocabulary} if source.vocabulary else {}
    if source.each_position and "positions" in options_of_model:
        known["positions"] = True
    if options.side is not None:
        resizing = [name for name, x in MODELS.items() if "side" in inspect.signature(x).parameters]
        check(
            "side" in options_of_model,
            f"side of --model is {options.side}: {options.model} takes images as they are, and "
            f"{', '.join(resizing)} resize them: leave it out, or choose another model",
        )
        known["side"] = options.side
    if base_of(name) != name:
        able = [one for one, x in MODELS.items() if "narrow" in inspect.signature(x).parameters]
        check(
            "narrow" in options_of_model,
            f"--model {name}: only {', '.join(able)} have narrower versions; choose one of them",
        )
        known["narrow"] = int(name.partition(OVER)[2])
    return make(source.outputs, **known)


def layers_by_depth(options: ModelOptions, source: Source) -> list[str]:
    """The paths of a model's modules in the order in which an example passes them.

    Args:
      options: complete options of the model.
      source: the data set.

    Returns:
      Nothing for a model that is no flax module, and for several.

    Example:
      >>> source = jaxfl.data.load("digits", ".")
      >>> layers_by_depth(Config("fedavg", model="linear"), source)
      ['Dense_0']
    """
    if len(options.architectures) > 1:
        return []
    module = _make_module(options, source)
    if not isinstance(module, nn.Module):
        return []
    if isinstance(module, TextModule) and options.pretrained is not None:
        # A config of something else is refused where the weights are read.
        with suppress(InputError):
            config = _config_beside(weights_in(options.pretrained))
            module = module if config is None else with_sizes(module, config)
    paths: dict[str, None] = {}

    def record(call: Any, arguments: tuple, named: dict, context: Any) -> Any:
        paths.setdefault("/".join(context.module.path))
        return call(*arguments, **named)

    with nn.intercept_methods(record):
        jax.eval_shape(module.init, jax.random.key(0), _example(source))
    return [path for path in paths if path]


class Sizes(NamedTuple):
    """How many floats a model has."""

    # that clients train, and of which they may send all or a part
    trained: int
    # that stay as they are, there once for all clients
    frozen: int


def sizes_of(options: ModelOptions, source: Source) -> dict[str, Sizes]:
    """How many floats of each model are trained and frozen, by its name.

    Args:
      options: complete options of the model.
      source: the data set.

    Raises:
      InputError: as `make_model`, or the model does not take such data.
    """
    shape = _example(source)

    def size(model: AnyModel) -> int:
        functions = functions_of(model, shape, "averaged")
        return tree.size(jax.eval_shape(functions.init, jax.random.key(0), shape))

    def sizes(model: AnyModel) -> Sizes:
        trained = size(model)
        whole = size(model.model) if isinstance(model, Frozen) else trained
        return Sizes(trained, whole - trained)

    return {name: sizes(model) for name, model in make_models(options, source).items()}


def _example(source: Source) -> PyTree:
    """The shape of one input [1, *feature]."""
    scale = None if isinstance(source.vocabulary, tuple) and source.vocabulary else source.scale
    inputs = model_inputs(tree.at(source.x_train, 0), scale, source.shift)
    return jax.eval_shape(inputs, tree.shapes(source.x_train, 1, axes=1))


def describe_sizes(sizes: Sizes) -> str:
    """The sizes in words.

    Example:
      >>> describe_sizes(Sizes(1306, 0)), describe_sizes(Sizes(98_304, 5_524_416))
      ('1,306 floats', '98,304 floats that are trained, 5,524,416 that are frozen')
    """
    if sizes.frozen:
        return f"{sizes.trained:,} floats that are trained, {sizes.frozen:,} that are frozen"
    return f"{sizes.trained:,} floats"


def _read(file: Path, module: nn.Module) -> Pretrained:
    check(
        file.name != WEIGHTS or file.exists(),
        f"--pretrained {file.parent} has no {WEIGHTS}: give a folder with one, as save_pretrained "
        "of transformers writes it (max_shard_size for large models)",
    )
    config = _config_beside(file) if isinstance(module, TextModule) else None
    try:
        return pretrained(module, read_weights(file), config)
    except InputError as error:
        raise InputError(f"--pretrained {file}: {error}") from error
    except ValueError as error:
        raise InputError(
            f"--pretrained {file} cannot be read ({error}): give a safetensors or an npz file of "
            "weights"
        ) from error


def _config_beside(file: Path) -> dict[str, Any] | None:
    """What Hugging Face's config.json beside the weights says; None if there is none.

    Raises:
      InputError: it is no object of JSON.
    """
    beside = file.parent / CONFIG
    if not beside.is_file():
        return None
    try:
        told = parse_json(beside.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {beside} ({error!s:.100}): restore it") from error
    check(isinstance(told, dict), f"{beside} is no object of JSON: give that of the weights")
    return told


def _check_expression(option: str, text: str) -> None:
    try:
        re.compile(text)
    except re.error as error:
        raise InputError(
            f"{option} {text!r:.80} is no regular expression ({error}): expected one, such as "
            '"qkv|up"'
        ) from error
