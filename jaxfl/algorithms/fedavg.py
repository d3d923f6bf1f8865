"""FedAvg: the mean of the clients' models."""

from jaxfl import papers
from jaxfl.registry import method
from jaxfl.skeleton import global_model
from jaxfl.types import Algorithm, Task


@method(
    title="FedAvg",
    paper=papers.FEDAVG,
    place="Algorithm 1",
    personal="",
    sends="its model",
)
def fedavg(task: Task) -> Algorithm:
    """One global model: the mean of the clients' models, weighted by their numbers of examples.

    State: clients = nothing; server = the global model.

    Example:
      >>> state = initial_state(fedavg(task))
      >>> state.clients
      ()
    """
    return global_model(task)
