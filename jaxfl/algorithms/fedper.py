"""FedPer: personal heads on a shared body.

each round t, with the client's head h_i:                             (Algorithms 1 and 2)
  client i:  (b_i, h_i) = local training of F_i from (b, h_i), and sends b_i
  server:    b = sum_i p_i b_i, where p_i are the clients' shares of the examples
client i deploys (b, h_i).
"""

from jaxfl.algorithms import steps
from jaxfl.core import tree
from jaxfl.core.facts import Paper, method
from jaxfl.core.types import Algorithm, Params, Task


@method(
    title="FedPer",
    paper=Paper(
        authors="Arivazhagan, Manoj Ghuhan and Aggarwal, Vinay and Singh, Aaditya Kumar and "
        "Choudhary, Sunav",
        title="Federated Learning with Personalization Layers",
        venue="",
        year=2019,
        link="https://arxiv.org/abs/1912.00818",
    ),
    place="Algorithms 1 and 2",
    personal="the head",
    sends="its body",
    advice="head, the personal layers: name more of them where clients differ much",
)
def fedper(task: Task, *, head: tree.Layers | None = None) -> Algorithm:
    """FedAvg of the body; each client keeps a head of its own, trained together with the body.

    A client deploys the mean body with its own head. If all layers are the head, nothing is shared.

    State: memory = each client's head; server = the global body. Weights: "body" and "head".

    Args:
      task: the model and its training.
      head: the personal layers: a regular expression to find in their paths, or a predicate. None:
        the model's head.

    Raises:
      InputError: the model names no head and none is given, or no layer matches.

    Example:
      >>> _, info = one_round(fedper(task, head="Dense_1"))
      >>> sorted(info.weights)
      ['body', 'head']
    """
    head = steps.head_of(task.problem, head)

    def divide(model: Params) -> tuple[Params, Params]:
        personal, body = tree.split(model, head)
        return body, personal

    return steps.partial_model(task, divide, "body", "head")
