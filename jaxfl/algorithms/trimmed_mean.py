"""Trimmed mean: the mean of each coordinate without its largest and smallest values."""

from typing import Annotated

from jaxfl.algorithms.steps.templates import global_model
from jaxfl.core import papers
from jaxfl.core.facts import method
from jaxfl.core.messages import Uploads
from jaxfl.core.options import Range
from jaxfl.core.types import Algorithm, Params, Scalar, Task
from jaxfl.kernels import robust


@method(
    title="Trimmed mean",
    paper=papers.ROBUST_RATES,
    place="Algorithm 1, option II",
    personal="",
    sends="its model",
    defaults="ours",
    turn_first="lower trim to the fraction of malicious clients; with none, take another method",
)
def trimmed_mean(
    task: Task, *, trim: Annotated[Scalar, Range(0, 0.5, high_included=False)] = 0.4
) -> Algorithm:
    """FedAvg whose server leaves out the largest and the smallest values of each coordinate.

    State: memory = nothing; server = the global model.

    Args:
      task: the model and its training.
      trim: fraction of the clients to leave out at each end, beta of Definition 2; at least the
        fraction of malicious clients, of which the command line's default is .4.

    Differs: clients count equally, whatever their numbers of examples.

    Example:
      >>> _, info = one_round(trimmed_mean(task, trim=0.2))
      >>> info.weights is None
      True
    """

    def aggregate(uploads: Uploads) -> tuple[Params, None]:
        return robust.trimmed_mean(uploads.received, trim, uploads.reported), None

    return global_model(task, aggregate=aggregate)
