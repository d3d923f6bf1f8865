"""What a setting leaves open, chosen by the data."""

import dataclasses
from typing import TypeVar

from jaxfl.data import Source, natural
from jaxfl.experiment.config import Setting

S = TypeVar("S", bound=Setting)


def complete(setting: S, source: Source) -> S:
    """The setting with every option that depends on the data set and was not given.

    Raises:
      InputError: a natural partition of data that name no owners.
    """
    chosen = {
        "partition": "natural"
        if source.owners is not None
        else "pathological"
        if source.classes
        else "iid",
        "test": "own" if not len(source.y_test) or source.owners is not None else "reweighted",
        "model": _model(source),
        "augment": "crop_flip" if source.mirrors else "none",
    }
    if not source.classes and chosen["test"] == "reweighted":
        chosen["test"] = "global"
    setting = _fill(setting, chosen)
    clients = len(natural(source.owners)) if setting.partition == "natural" else 10
    return _fill(setting, {"clients": clients})


def _model(source: Source) -> str:
    if source.vocabulary:
        return "textcnn" if len(source.vocabulary) == 1 else "mf"
    image = source.x_train.ndim == 4 and min(source.x_train.shape[1:3]) >= 16
    return "lenet" if image else "mlp" if source.classes else "linear"


def _fill(setting: S, chosen: dict) -> S:
    given = dataclasses.asdict(setting)
    return dataclasses.replace(
        setting, **{name: v for name, v in chosen.items() if given[name] is None}
    )
