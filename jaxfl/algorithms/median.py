"""Median and trimmed mean: aggregates of each coordinate.

each round t:                                                               (Algorithm 1)
  client i:  w_i = local training of F_i from w, and sends it
  server:    for each coordinate k
             option I:   w[k] = the median of w_1[k], ..., w_M[k]
             option II:  w[k] = their mean without the fractions `trim` of largest and smallest
client i deploys w.
"""

from typing import Annotated

from jaxfl.algorithms import steps
from jaxfl.core.facts import Paper, Range, method
from jaxfl.core.messages import Uploads
from jaxfl.core.types import Algorithm, Params, Scalar, Task
from jaxfl.kernels import robust

PAPER = Paper(
    authors="Yin, Dong and Chen, Yudong and Ramchandran, Kannan and Bartlett, Peter",
    title="Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates",
    venue="ICML",
    year=2018,
    link="https://arxiv.org/abs/1803.01498",
)


@method(
    title="Median",
    paper=PAPER,
    place="Algorithm 1, option I",
    personal="",
    sends="its model",
    advice="it is for malicious clients; with none, take another method",
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

    return steps.global_model(task, aggregate=aggregate)


@method(
    title="Trimmed mean",
    paper=PAPER,
    place="Algorithm 1, option II",
    personal="",
    sends="its model",
    defaults="ours",
    advice="lower trim to the fraction of malicious clients; with none, take another method",
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

    return steps.global_model(task, aggregate=aggregate)
