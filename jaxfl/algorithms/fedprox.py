"""FedProx, alone and with fine-tuning: local models stay near the global model.

each round t:                                                               (Algorithm 2)
  client i:  w_i = local training of F_i(w_i) + mu / 2 |w_i - w|^2 from w, and sends it     (2)
  server:    w = sum_i p_i w_i, where p_i are the clients' shares of the examples
client i deploys w; with fine-tuning the w_i that it trained last.
"""

from typing import Annotated

from jaxfl.algorithms import steps
from jaxfl.core.facts import NOT_NEGATIVE, Paper, method
from jaxfl.core.types import Algorithm, Scalar, Task
from jaxfl.training import data_loss, proximal

PAPER = Paper(
    authors="Li, Tian and Sahu, Anit Kumar and Zaheer, Manzil and Sanjabi, Maziar and "
    "Talwalkar, Ameet and Smith, Virginia",
    title="Federated Optimization in Heterogeneous Networks",
    venue="MLSys",
    year=2020,
    link="https://arxiv.org/abs/1812.06127",
)


@method(
    title="FedProx",
    paper=PAPER,
    place="Algorithm 2",
    personal="",
    sends="its model",
    defaults="pFedGraph's tables",
    advice="raise mu if clients drift apart; one model cannot fit clients that differ",
)
def fedprox(task: Task, *, mu: Annotated[Scalar, NOT_NEGATIVE] = 0.01) -> Algorithm:
    """FedAvg with a proximal term: clients minimise (2), their loss plus mu / 2 |w - w^t|^2.

    w^t is the global model.

    State: memory = nothing; server = the global model.

    Args:
      task: the model and its training.
      mu: strength of the proximal term; section 5 chooses from .001, .01, .1 and 1, pFedGraph's
        tables use .01.

    Differs: clients are weighted by their numbers of examples; in the paper they are drawn with
    probabilities proportional to these. Stragglers that take fewer steps, as in the paper, are an
    option of the run: `work.stragglers`.

    Example:
      >>> state = initial_state(fedprox(task, mu=0.1))
      >>> state.clients.memory
      ()
    """
    objective = proximal(data_loss(task.problem), mu)
    return steps.global_model(task, objective=objective, anchor=lambda start, trained: start)


@method(
    title="FedProx-FT",
    paper=PAPER,
    place="with fine-tuning as in the tables of pFedGraph (Ye et al., ICML 2023, section 4.1)",
    personal="the model as the client last trained it",
    sends="its model",
    defaults="pFedGraph's tables",
    advice="lower mu and raise --local-steps: the deployed model is then more the client's own",
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
    return steps.global_model(
        task, objective=objective, anchor=lambda start, trained: start, deploy_trained=True
    )
