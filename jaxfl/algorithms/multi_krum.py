"""Multi-Krum: the mean of the models that are nearest to their neighbours."""

from typing import Annotated

from jaxfl.algorithms.steps.server import mean_of_nearest
from jaxfl.algorithms.steps.templates import global_model
from jaxfl.core import papers
from jaxfl.core.facts import method
from jaxfl.core.options import COUNT, COUNT_OR_ZERO
from jaxfl.core.types import Algorithm, Task


@method(
    title="Multi-Krum",
    paper=papers.KRUM,
    place="section 5",
    personal="",
    sends="its model",
    defaults="ours, the most that the rule allows",
    turn_first="byzantine: as few as you expect malicious clients; with none, take another method",
)
def multi_krum(
    task: Task,
    *,
    byzantine: Annotated[int | None, COUNT_OR_ZERO] = None,
    chosen: Annotated[int | None, COUNT] = None,
) -> Algorithm:
    """FedAvg whose server takes the mean of only those models that are nearest to their neighbours.

    State: memory = nothing; server = the global model.

    Args:
      task: the model and its training.
      byzantine: f, how many clients of the cohort may be malicious, 2 f + 2 < M. None: as many as
        that allows.
      chosen: m, how many models to take. None: M - f.

    Raises:
      InputError: `byzantine` is too large for the cohort.

    Example:
      >>> _, info = one_round(multi_krum(task, chosen=2))
      >>> info.weights.shape
      (4, 4)
    """
    return global_model(task, aggregate=mean_of_nearest(byzantine, chosen))
