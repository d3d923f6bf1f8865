"""FedAvg with fine-tuning."""

from jaxfl.algorithms.steps.templates import global_model
from jaxfl.core import papers
from jaxfl.core.facts import method
from jaxfl.core.types import Algorithm, Task


@method(
    title="FedAvg-FT",
    paper=papers.FEDAVG,
    place="with fine-tuning as in the tables of pFedGraph (Ye et al., ICML 2023, section 4.1)",
    personal="the model as the client last trained it",
    sends="its model",
    turn_first="--local-steps: with more of them the deployed model is more the client's own",
)
def fedavg_ft(task: Task) -> Algorithm:
    """FedAvg, but each client deploys the model that it last trained from the global model.

    There is no separate phase of fine-tuning: the local steps of a round are the fine-tuning. A
    client that has never taken part deploys the current global model.

    State: memory = each client's last trained model; server = the global model.

    Example:
      >>> state = initial_state(fedavg_ft(task))
      >>> state.clients.memory.seen.shape
      (4,)
    """
    return global_model(task, deploy_trained=True)
