"""FedProx: clients stay near the global model."""

from typing import Annotated

from jaxfl.objectives import data_loss, proximal
from jaxfl.options import NOT_NEGATIVE
from jaxfl.registry import method
from jaxfl.skeleton import global_model
from jaxfl.types import Algorithm, Scalar, Task


@method(
    title="FedProx",
    paper='Li et al., "Federated Optimization in Heterogeneous Networks", MLSys 2020, Algorithm 2',
    link="https://arxiv.org/abs/1812.06127",
    personal="",
    sends="its model",
)
def fedprox(task: Task, *, mu: Annotated[Scalar, NOT_NEGATIVE] = 0.01) -> Algorithm:
    """FedAvg whose clients minimise their loss plus mu / 2 |w - w^t|^2, w^t the global model (2).

    State: clients = nothing; server = the global model.

    Args:
      task: the model and its training.
      mu: strength of the proximal term; section 5 chooses from .001, .01, .1 and 1, pFedGraph's
        tables take .01.

    Differs: clients are weighted by their numbers of examples, where the paper draws them with such
    probabilities. All clients take the task's steps, where the paper lets stragglers take fewer.
    """
    objective = proximal(data_loss(task.problem), mu)
    return global_model(task, objective=objective, anchor=lambda start, trained: start)
