"""Whole runs: a config in, a directory of metrics, arrays and pictures out.

May import every room below but `kernels`. Its own rooms, each of which uses only those before it:

- `config`: what is run; options, what they may be, and what data sets choose
- `privacy`: what clients let out, and the guarantee that noise gives
- `store`: files
- `tables`: scores in tables
- `pictures`: curves, graphs and partitions
- `session`: one run
- `reading`: a finished run, and what each client gains by several
- `trackers`: other programs that follow a run
- `html`: the report as one page
- `studies`: several runs; comparisons, equal budgets, search, workers that share them
"""

from jaxfl.experiment.config import Config, Setting, load_config, resolve
from jaxfl.experiment.reading.load import FinishedRun, load
from jaxfl.experiment.session.build import build
from jaxfl.experiment.session.gather import gather
from jaxfl.experiment.session.run import execute, resume
from jaxfl.experiment.studies.compare import compare, plan, resume_comparison
from jaxfl.experiment.studies.workers import work
from jaxfl.experiment.studies.worth import leave_one_out
from jaxfl.experiment.trackers import Tracking

__all__ = [
    "Config",
    "FinishedRun",
    "Setting",
    "Tracking",
    "build",
    "compare",
    "execute",
    "gather",
    "leave_one_out",
    "load",
    "load_config",
    "plan",
    "resolve",
    "resume",
    "resume_comparison",
    "work",
]
