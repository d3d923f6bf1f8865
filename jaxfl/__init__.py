"""jaxfl: personalized federated learning on collaboration graphs, in pure JAX.

`__all__` is the public surface, with the public names of the modules in it. Thirteen folders hold
the code; the docstring of each says who lives there. `jaxfl.checkpoint`, `jaxfl.serve`,
`jaxfl.from_nnx` and `jaxfl.testing` are public too, and are imported when they are asked for, since
they need orbax, flwr, flax.nnx and the rooms of whole runs.
"""

import sys
from typing import TYPE_CHECKING, Any

from jaxfl.core.first_lines import answer_version, exit_on_interrupt, is_program

# The imports below take a second, before the program can do anything about Ctrl-C.
if is_program(sys.argv, sys.orig_argv):
    exit_on_interrupt()
    answer_version(sys.argv)

from jaxfl import algorithms, data, kernels, models, uplink
from jaxfl.algorithms.steps import compose
from jaxfl.algorithms.steps.architectures import heterogeneous
from jaxfl.core import errors, messages, options, ragged, streams, tree, types
from jaxfl.core.version import VERSION as __version__
from jaxfl.graphs import hierarchy, topology
from jaxfl.graphs.measures import measure_graph
from jaxfl.simulation import clock, mesh, metrics, on_disk, participation, work
from jaxfl.simulation.evaluate import make_evaluate
from jaxfl.simulation.fit import fit
from jaxfl.simulation.rounds import check_finite, make_rounds
from jaxfl.simulation.server_step import server_step
from jaxfl.simulation.statistics import summarise
from jaxfl.training import objectives, task
from jaxfl.training.frozen import freeze
from jaxfl.training.lora import lora
from jaxfl.training.optimizers import sgd
from jaxfl.training.pure_model import Model
from jaxfl.training.task import (
    classification,
    multilabel,
    reconstruction,
    regression,
    survival,
)

if TYPE_CHECKING:
    from pathlib import Path

    from jaxfl.experiment import FinishedRun
    from jaxfl.training.nnx_model import from_nnx as from_nnx

__all__ = [
    "Model",
    "__version__",
    "algorithms",
    "check_finite",
    "classification",
    "clock",
    "compose",
    "data",
    "errors",
    "fit",
    "freeze",
    "heterogeneous",
    "kernels",
    "load",
    "lora",
    "make_evaluate",
    "make_rounds",
    "measure_graph",
    "mesh",
    "messages",
    "metrics",
    "models",
    "multilabel",
    "on_disk",
    "participation",
    "reconstruction",
    "regression",
    "server_step",
    "sgd",
    "summarise",
    "survival",
    "topology",
    "tree",
    "types",
    "uplink",
    "work",
]

# Short names under which programs import these modules too: `from jaxfl.types import State`.
_SHORT = {
    "clock": clock,
    "errors": errors,
    "hierarchy": hierarchy,
    "mesh": mesh,
    "messages": messages,
    "metrics": metrics,
    "objectives": objectives,
    "on_disk": on_disk,
    "options": options,
    "participation": participation,
    "ragged": ragged,
    "streams": streams,
    "task": task,
    "topology": topology,
    "tree": tree,
    "types": types,
    "work": work,
}
sys.modules.update({f"{__name__}.{name}": module for name, module in _SHORT.items()})


def __getattr__(name: str) -> Any:
    """What takes a while to import: orbax, flwr, flax.nnx, and the rooms of whole runs."""
    if name == "from_nnx":
        from jaxfl.training.nnx_model import from_nnx

        return from_nnx
    if name == "checkpoint":
        from jaxfl.simulation import checkpoint

        return checkpoint
    if name == "testing":
        from jaxfl import testing

        return testing
    if name == "serve":
        from jaxfl.serve import client, flower  # noqa: F401 - they become parts of it

        return sys.modules["jaxfl.serve"]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def load(directory: "Path | str") -> "FinishedRun":
    """Reads a finished run: its scores, who learned from whom, and the models of its clients.

    See `jaxfl.experiment.load`. That room and its libraries are imported at the first call.

    Example:
      >>> run = jaxfl.load("runs/digits")
      >>> run.predict(3, np.zeros((7, 8, 8, 1))).shape
      (7,)
    """
    from jaxfl.experiment import load

    return load(directory)
