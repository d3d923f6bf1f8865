"""Presets: the protocols of published tables by name, as options, hyper-parameters and a score.

A preset says what an experiment runs: an option that is given besides changes it. Where the text of
a paper and the code behind its tables differ, the preset follows the code, and its source says so.
"""

from jaxfl.experiment.config.presets.definition import Preset, Rule
from jaxfl.experiment.config.presets.named import PRESETS, preset

__all__ = ["PRESETS", "Preset", "Rule", "preset"]
