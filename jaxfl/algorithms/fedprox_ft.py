"""FedProx with fine-tuning."""

from typing import Annotated

from jaxfl.algorithms.steps.templates import global_model
from jaxfl.core import papers
from jaxfl.core.facts import method
from jaxfl.core.options import NOT_NEGATIVE
from jaxfl.core.types import Algorithm, Scalar, Task
from jaxfl.training.objectives import data_loss, proximal


@method(
    title="FedProx-FT",
    paper=papers.FEDPROX,
    place="with fine-tuning as in the tables of pFedGraph (Ye et al., ICML 2023, section 4.1)",
    personal="the model as the client last trained it",
    sends="its model",
    defaults="pFedGraph's tables",
    turn_first="lower mu and raise --local-steps: the deployed model is then more the client's own",
)
def fedprox_ft(task: Task, *, mu: Annotated[Scalar, NOT_NEGATIVE] = 0.01) -> Algorithm:
    """FedProx, but each client deploys the model that it last trained from the global model.

    As in `fedavg_ft`, there is no separate phase of fine-tuning. A client that has never taken part
    deploys the current global model.

    State: memory = each client's last trained model; server = the global model.

    Args:
      task: the model and its training.
      mu: strength of the proximal term, as in `fedprox`.

    Differs: in the same points as `fedprox`.

    Example:
      >>> state = initial_state(fedprox_ft(task, mu=0.1))
      >>> state.clients.memory.model["params"]["Dense_1"]["bias"].shape
      (4, 2)
    """
    objective = proximal(data_loss(task.problem), mu)
    return global_model(
        task, objective=objective, anchor=lambda start, trained: start, deploy_trained=True
    )
