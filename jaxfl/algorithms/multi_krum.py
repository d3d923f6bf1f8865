"""Multi-Krum: the mean of the models that are nearest to their neighbours."""

from typing import Annotated

from jaxtyping import Array

from jaxfl.algorithms.steps.templates import global_model
from jaxfl.core import papers
from jaxfl.core.facts import method
from jaxfl.core.options import COUNT, COUNT_OR_ZERO
from jaxfl.core.types import Algorithm, Cohort, Params, Task
from jaxfl.kernels import robust
from jaxfl.kernels.mixing import mix
from jaxfl.kernels.robust import check_byzantine


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

    State: clients = nothing; server = the global model.

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

    def aggregate(
        received: Params, start: Params, reported: Array, cohort: Cohort
    ) -> tuple[Params, Array]:
        check_byzantine(byzantine, cohort.ids.size)
        weights = robust.krum(received, cohort.ids, reported, byzantine, chosen)
        return mix(weights, received), weights

    return global_model(task, aggregate=aggregate)
