"""Norm clipping: updates that are too long are shortened.

each round t:
  client i:  w_i = local training of F_i from w, and sends it
  server:    w = w + sum_i p_i (w_i - w) min(1, bound / |w_i - w|)
client i deploys w.
"""

from typing import Annotated

from jaxtyping import Array

from jaxfl.algorithms import steps
from jaxfl.core.facts import POSITIVE, Paper, method
from jaxfl.core.messages import Uploads
from jaxfl.core.types import Algorithm, Params, Scalar, Task
from jaxfl.kernels import robust


@method(
    title="Norm clipping",
    paper=Paper(
        authors="Sun, Ziteng and Kairouz, Peter and Suresh, Ananda Theertha and McMahan, H. "
        "Brendan",
        title="Can You Really Backdoor Federated Learning?",
        venue="",
        year=2019,
        link="https://arxiv.org/abs/1911.07963",
    ),
    place="section 4",
    personal="",
    sends="its model",
    defaults="ours",
    advice="raise bound if benign updates are cut; one model cannot fit clients that differ",
)
def norm_clipping(task: Task, *, bound: Annotated[Scalar | None, POSITIVE] = None) -> Algorithm:
    """FedAvg whose server shortens updates that are longer than a bound.

    State: memory = nothing; server = the global model.

    Args:
      task: the model and its training.
      bound: the largest Euclidean length of an update. None: the median of the lengths in the
        round.

    Example:
      >>> _, info = one_round(norm_clipping(task, bound=1.0))
      >>> info.weights.shape
      (4, 4)
    """

    def aggregate(uploads: Uploads) -> tuple[Params, Array]:
        clipped = robust.clip_updates(uploads.before, uploads.received, bound, uploads.reported)
        return steps.mean_by_size(uploads._replace(received=clipped))

    return steps.global_model(task, aggregate=aggregate)
