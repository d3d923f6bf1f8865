"""Median: the global model is the median of each coordinate."""

from jaxfl.algorithms.steps.templates import global_model
from jaxfl.core import papers
from jaxfl.core.facts import method
from jaxfl.core.messages import Uploads
from jaxfl.core.types import Algorithm, Params, Task
from jaxfl.kernels import robust


@method(
    title="Median",
    paper=papers.ROBUST_RATES,
    place="Algorithm 1, option I",
    personal="",
    sends="its model",
    turn_first="it is for malicious clients; with none, take another method",
)
def median(task: Task) -> Algorithm:
    """FedAvg whose server takes the median of each coordinate, not the mean.

    Clients count equally, whatever their numbers of examples.

    State: memory = nothing; server = the global model.

    Example:
      >>> _, info = one_round(median(task))
      >>> info.weights is None
      True
    """

    def aggregate(uploads: Uploads) -> tuple[Params, None]:
        return robust.median(uploads.received, uploads.reported), None

    return global_model(task, aggregate=aggregate)
