"""The files that a run reads beside its data set, and the options that name them."""

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from jaxfl.data.sources import SOURCES, data_dir
from jaxfl.experiment.config.composite import option
from jaxfl.experiment.config.hints import marked
from jaxfl.experiment.config.notes import INPUT, PATH
from jaxfl.experiment.config.setting import Config, Setting

S = TypeVar("S", bound=Setting)
MODELS = "models.npz"  # of a run: the models of its clients
ADAPTER = "adapter_model.safetensors"  # of a folder of PEFT
WEIGHTS = "model.safetensors"  # of a folder of Hugging Face


def with_absolute_paths(setting: S) -> S:
    """The setting whose paths do not depend on the working directory.

    These are the folder of the data set, the options that are paths, and texts among the
    hyper-parameters that name a file. Where --init names a run, it becomes the file of its models,
    and where it or --pretrained names a folder of weights, the file in it.
    """
    changes: dict[str, Any] = {}
    folder = data_dir(setting.data_dir)
    if folder is not None and setting.dataset not in SOURCES:
        changes["data_dir"] = _absolute(folder)
    for name in marked(type(setting), PATH):
        value = getattr(setting, name)
        if isinstance(value, tuple):
            changes[name] = tuple(map(_absolute, value))
        elif value is not None:
            changes[name] = _absolute(value)
    if setting.init is not None and os.path.isdir(setting.init):
        adapter = Path(setting.init) / ADAPTER
        changes["init"] = _absolute(adapter if adapter.is_file() else adapter.parent / MODELS)
    if setting.pretrained is not None:
        changes["pretrained"] = _absolute(weights_in(setting.pretrained))
    if isinstance(setting, Config):
        changes["hyper"] = with_absolute_files(setting.hyper)
    return dataclasses.replace(setting, **changes)


def weights_in(path: str) -> Path:
    """The file of weights that --pretrained names: itself, or in a folder that of Hugging Face.

    Example:
      >>> Path("minilm").mkdir()
      >>> str(weights_in("minilm")), str(weights_in("vit.npz"))
      ('minilm/model.safetensors', 'vit.npz')
    """
    return Path(path) / WEIGHTS if os.path.isdir(path) else Path(path)


def with_absolute_files(hyper: dict[str, Any]) -> dict[str, Any]:
    """The hyper-parameters, in which the path of a file is absolute."""
    return hyper | {name: _absolute(value) for name, value in hyper.items() if is_file(value)}


def with_plugin(config: Config, plugin: Sequence[str] | None) -> Config:
    """The config with the plug-ins of now; with its own ones if it is not known which were run."""
    return config if plugin is None else dataclasses.replace(config, plugin=tuple(plugin))


def files_of(config: Config) -> dict[str, Path]:
    """Every file that the run reads beside its data set, by the option that names it.

    Example:
      >>> np.save("graph.npy", np.ones((2, 2)))
      >>> list(files_of(Config(algorithm="gossip", hyper={"graph": "graph.npy"})))
      ['hyper-parameter graph']
    """
    files = {}
    for name in sorted(marked(Config, INPUT)):
        value = getattr(config, name)
        if isinstance(value, tuple):
            # A file may move between a stop and `resume`, but is another one by another name.
            names = [f"{option(name)} {Path(one).name}" for one in value]
            for place, one in enumerate(value):
                again = names[:place].count(names[place])
                files[names[place] + (f" ({again + 1})" if again else "")] = Path(one)
        elif value is not None:
            files[option(name)] = Path(value)
    for name, value in sorted(config.hyper.items()):
        if is_file(value):
            files[f"hyper-parameter {name}"] = Path(value)
    return files


def is_file(value: Any) -> bool:
    """Whether the value of a hyper-parameter is the path of a file: a text with a suffix."""
    return isinstance(value, str) and bool(Path(value).suffix) and os.path.isfile(value)


def _absolute(path: str | Path) -> str:
    return str(Path(path).absolute())
