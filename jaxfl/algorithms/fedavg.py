"""FedAvg, alone and with fine-tuning: the mean of the clients' models.

each round t:                                                               (Algorithm 1)
  client i:  w_i = local training of F_i from w, and sends it
  server:    w = sum_i p_i w_i, where p_i are the clients' shares of the examples
client i deploys w; with fine-tuning the w_i that it trained last.
"""

from jaxfl.algorithms import steps
from jaxfl.core.facts import Paper, method
from jaxfl.core.types import Algorithm, Task

PAPER = Paper(
    authors="McMahan, H. Brendan and Moore, Eider and Ramage, Daniel and Hampson, Seth and "
    "Agüera y Arcas, Blaise",
    title="Communication-Efficient Learning of Deep Networks from Decentralized Data",
    venue="AISTATS",
    year=2017,
    link="https://arxiv.org/abs/1602.05629",
)


@method(
    title="FedAvg",
    paper=PAPER,
    place="Algorithm 1",
    personal="",
    sends="its model",
    defaults="the paper",
    advice="one model cannot fit clients that differ: take fedavg_ft, or a method with a "
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
    return steps.global_model(task)


@method(
    title="FedAvg-FT",
    paper=PAPER,
    place="with fine-tuning as in the tables of pFedGraph (Ye et al., ICML 2023, section 4.1)",
    personal="the model as the client last trained it",
    sends="its model",
    advice="--local-steps: with more of them the deployed model is more the client's own",
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
    return steps.global_model(task, deploy_trained=True)
