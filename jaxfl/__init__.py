"""jaxfl: personalized federated learning on collaboration graphs, in pure JAX.

`__all__` is the public surface, with the public names of the modules in it. `jaxfl.checkpoint` is
public too; it is imported by its own name, since it needs orbax.
"""

from typing import TYPE_CHECKING

from jaxfl import (
    algorithms,
    clock,
    data,
    errors,
    kernels,
    mesh,
    models,
    on_disk,
    participation,
    topology,
    tree,
    types,
    uplink,
    work,
)
from jaxfl.evaluate import make_evaluate
from jaxfl.graph_measures import measure_graph
from jaxfl.optimizers import sgd
from jaxfl.rounds import check_finite, make_rounds
from jaxfl.summaries import summarise
from jaxfl.task import classification, regression
from jaxfl.version import VERSION as __version__

if TYPE_CHECKING:
    from pathlib import Path

    from jaxfl.experiment import FinishedRun

__all__ = [
    "__version__",
    "algorithms",
    "check_finite",
    "classification",
    "clock",
    "data",
    "errors",
    "kernels",
    "load",
    "make_evaluate",
    "make_rounds",
    "measure_graph",
    "mesh",
    "models",
    "on_disk",
    "participation",
    "regression",
    "sgd",
    "summarise",
    "topology",
    "tree",
    "types",
    "uplink",
    "work",
]


def load(directory: "Path | str") -> "FinishedRun":
    """Reads a finished run: its scores, who learned from whom, and the models of its clients.

    See `jaxfl.experiment.load`. The command line and its libraries are imported at the first call.

    Example:
      >>> run = jaxfl.load("runs/digits")
      >>> run.predict(3, np.zeros((7, 8, 8, 1))).shape
      (7,)
    """
    from jaxfl.experiment import load

    return load(directory)
