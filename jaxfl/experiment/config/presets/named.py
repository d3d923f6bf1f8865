"""All presets by name."""

from jaxfl.core.errors import check_name
from jaxfl.experiment.config.presets import (
    demo,
    fedcedar,
    hospitals,
    niid_bench,
    pfedgat,
    pfedgraph,
    pfllib,
)
from jaxfl.experiment.config.presets.definition import Preset

PRESETS = (
    demo.PRESETS
    | hospitals.PRESETS
    | pfedgraph.PRESETS
    | pfedgat.PRESETS
    | fedcedar.PRESETS
    | niid_bench.PRESETS
    | pfllib.PRESETS
)


def preset(name: str) -> Preset:
    """A preset by name.

    Raises:
      InputError: there is no such preset.
    """
    check_name("preset", name, PRESETS)
    return PRESETS[name]
