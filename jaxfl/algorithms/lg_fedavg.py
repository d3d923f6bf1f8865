"""LG-FedAvg: personal bodies with a shared head.

each round t, with the client's body b_i:                                   (Algorithm 1)
  client i:  (b_i, h_i) = local training of F_i from (b_i, h), and sends h_i
  server:    h = sum_i p_i h_i, where p_i are the clients' shares of the examples
client i deploys (b_i, h).
"""

from jaxfl.algorithms import steps
from jaxfl.core import tree
from jaxfl.core.facts import Paper, method
from jaxfl.core.types import Algorithm, Params, Task


@method(
    title="LG-FedAvg",
    paper=Paper(
        authors="Liang, Paul Pu and Liu, Terrance and Ziyin, Liu and Allen, Nicholas B. and "
        "Auerbach, Randy P. and Brent, David and Salakhutdinov, Ruslan and Morency, "
        "Louis-Philippe",
        title="Think Locally, Act Globally: Federated Learning with Local and Global "
        "Representations",
        venue="NeurIPS Workshop on Federated Learning",
        year=2019,
        link="https://arxiv.org/abs/2001.01523",
    ),
    place="Algorithm 1",
    personal="the body",
    sends="its head",
    advice="head, the shared layers: name fewer of them where clients differ much",
)
def lg_fedavg(task: Task, *, head: tree.Layers | None = None) -> Algorithm:
    """FedAvg of the head; each client keeps a body of its own, trained together with the head.

    The roles of head and body in FedPer are exchanged: a client deploys its own body with the mean
    head. If all layers are the head, the method equals FedAvg.

    State: memory = each client's body; server = the global head. Weights: "head" and "body".

    Args:
      task: the model and its training.
      head: the shared layers: a regular expression to find in their paths, or a predicate. None:
        the model's head.

    Raises:
      InputError: the model names no head and none is given, or no layer matches.

    Differs: all clients start from the common initial model; the paper's experiments start from a
    model trained by FedAvg. A client deploys its own model; the paper's ensemble for new clients is
    not implemented.

    Example:
      >>> state = initial_state(lg_fedavg(task, head="Dense_1"))
      >>> state.clients.memory["params"]["Dense_0"]["kernel"].shape
      (4, 8, 8)
    """
    head = steps.head_of(task.problem, head)

    def divide(model: Params) -> tuple[Params, Params]:
        return tree.split(model, head)

    return steps.partial_model(task, divide, "head", "body")
