"""Krum: the one model that is nearest to its neighbours."""

from typing import Annotated

from jaxfl.algorithms.steps.server import mean_of_nearest
from jaxfl.algorithms.steps.templates import global_model
from jaxfl.core import papers
from jaxfl.core.facts import method
from jaxfl.core.options import COUNT_OR_ZERO
from jaxfl.core.types import Algorithm, Task


@method(
    title="Krum",
    paper=papers.KRUM,
    place="section 4",
    personal="",
    sends="its model",
    defaults="ours, the most that the rule allows",
    turn_first="byzantine: as few as you expect malicious clients; with none, take another method",
)
def krum(task: Task, *, byzantine: Annotated[int | None, COUNT_OR_ZERO] = None) -> Algorithm:
    """FedAvg whose server takes the one model that is nearest to its neighbours, not the mean.

    State: memory = nothing; server = the global model.

    Args:
      task: the model and its training.
      byzantine: f, how many clients of the cohort may be malicious, 2 f + 2 < M. None: as many as
        that allows.

    Raises:
      InputError: `byzantine` is too large for the cohort.

    Example:
      >>> _, info = one_round(krum(task, byzantine=0))
      >>> info.weights.shape
      (4, 4)
    """
    return global_model(task, aggregate=mean_of_nearest(byzantine, 1))
