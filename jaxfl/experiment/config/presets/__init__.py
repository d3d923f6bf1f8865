"""Presets: the protocols of published tables by name, as options, hyper-parameters and a score.

A preset says what an experiment runs: an option that is given besides changes it. Where the text of
a paper and the code behind its tables differ, the preset follows the code, and its source says so.
"""

from jaxfl.errors import check_name
from jaxfl.experiment.config.presets import fedcedar, niid_bench, pfedgat, pfedgraph, pfllib
from jaxfl.experiment.config.presets.definition import Preset, Rule, Stage

__all__ = ["PRESETS", "Preset", "Rule", "Stage", "preset"]

PRESETS = (
    pfedgraph.PRESETS | pfedgat.PRESETS | fedcedar.PRESETS | niid_bench.PRESETS | pfllib.PRESETS
)


def preset(name: str) -> Preset:
    """A preset by name.

    Raises:
      InputError: there is no such preset.
    """
    check_name("preset", name, PRESETS)
    return PRESETS[name]
