"""FedAvg: the mean of the clients' models."""

from jaxfl.algorithms.steps.templates import global_model
from jaxfl.core import papers
from jaxfl.core.facts import method
from jaxfl.core.types import Algorithm, Task


@method(
    title="FedAvg",
    paper=papers.FEDAVG,
    place="Algorithm 1",
    personal="",
    sends="its model",
    turn_first="one model cannot fit clients that differ: take fedavg_ft, or a method with a "
    "personal part",
)
def fedavg(task: Task) -> Algorithm:
    """One global model: the mean of the clients' models, weighted by their numbers of examples.

    State: memory = nothing; server = the global model.

    Example:
      >>> state = initial_state(fedavg(task))
      >>> state.clients.memory
      ()
    """
    return global_model(task)
