"""Krum and Multi-Krum: the models that are nearest to their neighbours.

each round t:
  client i:  w_i = local training of F_i from w, and sends it
  server:    score of i = the sum of |w_i - w_j|^2 over the M - f - 2 models w_j nearest to w_i
             w = the mean of the m models with the lowest scores; Krum: m = 1
client i deploys w.
"""

from typing import Annotated

from jaxtyping import Array, Float

from jaxfl.algorithms import steps
from jaxfl.core.errors import check
from jaxfl.core.facts import COUNT, COUNT_OR_ZERO, Paper, method
from jaxfl.core.messages import Uploads
from jaxfl.core.types import Algorithm, Params, Task
from jaxfl.kernels import mix, robust

PAPER = Paper(
    authors="Blanchard, Peva and El Mhamdi, El Mahdi and Guerraoui, Rachid and Stainer, Julien",
    title="Machine Learning with Adversaries: Byzantine Tolerant Gradient Descent",
    venue="NeurIPS",
    year=2017,
    link="https://arxiv.org/abs/1703.02757",
)


def mean_of_nearest(byzantine: int | None, chosen: int | None) -> steps.Aggregate:
    """Krum's aggregate: the mean of the models that are nearest to their neighbours.

    Args:
      byzantine: how many clients may be malicious, see `robust.krum`.
      chosen: of how many models the mean is.

    Returns:
      An `Aggregate`. It raises an `InputError` if `byzantine` is too large for the cohort.

    Example:
      >>> received = jnp.array([[0.0], [1.0], [1.5], [90.0]])
      >>> uploads = Uploads(cohort.ids, cohort.sizes, jnp.ones(4, bool), received, received)
      >>> mean_of_nearest(0, chosen=2)(uploads)[0].tolist()
      [1.25]
    """

    def aggregate(uploads: Uploads) -> tuple[Params, Float[Array, "m"]]:
        ids, _, reported, received, *_ = uploads
        check_byzantine(byzantine, ids.size)
        weights = robust.krum(received, ids, reported, byzantine, chosen)
        return mix(weights, received), weights

    return aggregate


def check_byzantine(byzantine: int | None, clients: int) -> None:
    """Raises an `InputError` unless Krum's guarantee holds for a cohort: 2 f + 2 < M.

    Example:
      >>> check_byzantine(4, clients=10)
      Traceback (most recent call last):
      jaxfl.core.errors.InputError: byzantine is 4: expected at most 3 for a cohort of 10 ...
    """
    most = max((clients - 3) // 2, 0)
    check(
        byzantine is None or byzantine <= most,
        f"byzantine is {byzantine}: expected at most {most} for a cohort of {clients} clients "
        "(2 f + 2 < M)",
    )


@method(
    title="Krum",
    paper=PAPER,
    place="section 4",
    personal="",
    sends="its model",
    defaults="ours, the most that the rule allows",
    advice="byzantine: as few as you expect malicious clients; with none, take another method",
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
    return steps.global_model(task, aggregate=mean_of_nearest(byzantine, 1))


@method(
    title="Multi-Krum",
    paper=PAPER,
    place="section 5",
    personal="",
    sends="its model",
    defaults="ours, the most that the rule allows",
    advice="byzantine: as few as you expect malicious clients; with none, take another method",
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
    return steps.global_model(task, aggregate=mean_of_nearest(byzantine, chosen))
