"""Geometric median (RFA): the global model is the one with the least mean distance to all.

each round t:                                                         (Algorithms 1 and 2)
  client i:  w_i = local training of F_i from w, and sends it
  server:    w = argmin_w sum_i p_i |w - w_i|, by R times
             w = sum_i b_i w_i / sum_i b_i, where b_i = p_i / max(nu, |w - w_i|)
client i deploys w.
"""

from typing import Annotated

from jaxtyping import Array, Float

from jaxfl.algorithms.steps import global_model
from jaxfl.core.facts import COUNT, POSITIVE, Paper, method
from jaxfl.core.messages import Uploads
from jaxfl.core.types import Algorithm, Params, Scalar, Task
from jaxfl.kernels import geometric_median_weights, mix, size_weights


@method(
    title="RFA",
    paper=Paper(
        authors="Pillutla, Krishna and Kakade, Sham M. and Harchaoui, Zaid",
        title="Robust Aggregation for Federated Learning",
        venue="IEEE TSP",
        year=2022,
        link="https://arxiv.org/abs/1912.13445",
    ),
    place="Algorithms 1 and 2",
    personal="",
    sends="its model",
    defaults="the paper",
    advice="raise steps where far models still count; with no malicious clients, take another "
    "method",
)
def geometric_median(
    task: Task,
    *,
    steps: Annotated[int, COUNT] = 3,
    smoothing: Annotated[Scalar, POSITIVE] = 1e-6,
) -> Algorithm:
    """FedAvg whose server takes the geometric median of the models, not the mean.

    It lowers sum_i p_i |w - w_i|, where p_i are relative numbers of examples, by Weiszfeld's
    algorithm: w is a mean in which model i counts by p_i / |w - w_i|, again and again. So a model
    pulls with the same force however far it is, and less than half of the examples cannot move w
    without bound.

    State: memory = nothing; server = the global model.

    Args:
      task: the model and its training.
      steps: of Weiszfeld's algorithm, R of Algorithm 2.
      smoothing: nu, the least distance that counts.

    Example:
      >>> _, info = one_round(geometric_median(task))
      >>> info.weights.shape
      (4, 4)
    """

    def aggregate(uploads: Uploads) -> tuple[Params, Float[Array, "m"]]:
        weights = geometric_median_weights(
            uploads.received,
            size_weights(uploads.sizes * uploads.reported),
            uploads.reported,
            steps=steps,
            smoothing=smoothing,
        )
        return mix(weights, uploads.received), weights

    return global_model(task, aggregate=aggregate)
