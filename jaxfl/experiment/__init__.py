"""Whole runs: a config in, a directory of metrics, arrays and pictures out.

The rooms, each of which uses only those before it:

- `config`: what is run; options, what they may be, and what data sets choose
- `show`: scores in tables, pictures
- `store`: files
- `privacy`: what clients let out, and the guarantee that noise gives
- `session`: one run
- `studies`: several runs; comparisons, equal budgets, search
"""

from jaxfl.experiment.config import Config, Setting, load_config, resolve
from jaxfl.experiment.session.build import build
from jaxfl.experiment.session.clients import gather
from jaxfl.experiment.session.load import FinishedRun, load
from jaxfl.experiment.session.run import execute, resume
from jaxfl.experiment.session.track import Tracking
from jaxfl.experiment.studies.compare import compare, resume_comparison

__all__ = [
    "Config",
    "FinishedRun",
    "Setting",
    "Tracking",
    "build",
    "compare",
    "execute",
    "gather",
    "load",
    "load_config",
    "resolve",
    "resume",
    "resume_comparison",
]
