"""What is run: options in groups, what they may be, and defaults that depend on the data."""

from jaxfl.experiment.config.changes import differences
from jaxfl.experiment.config.json_text import (
    hyper_by_algorithm,
    load_config,
    load_configs,
    load_finished_config,
    parse_hyper,
    parse_json,
    parse_methods,
    parse_value,
    to_json,
)
from jaxfl.experiment.config.presets import PRESETS, Preset, preset
from jaxfl.experiment.config.resolve import (
    Resolved,
    devices_of,
    resolve,
    resolve_data,
    resolve_model,
)
from jaxfl.experiment.config.setting import Config, Options, Setting, by_subject

__all__ = [
    "PRESETS",
    "Config",
    "Options",
    "Preset",
    "Resolved",
    "Setting",
    "by_subject",
    "devices_of",
    "differences",
    "hyper_by_algorithm",
    "load_config",
    "load_configs",
    "load_finished_config",
    "parse_hyper",
    "parse_json",
    "parse_methods",
    "parse_value",
    "preset",
    "resolve",
    "resolve_data",
    "resolve_model",
    "to_json",
]
