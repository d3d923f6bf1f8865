"""LG-FedAvg: personal bodies under a shared head."""

from jaxfl import tree
from jaxfl.registry import method
from jaxfl.skeleton import head_of, partial_model
from jaxfl.types import Algorithm, Params, Task


@method(
    title="LG-FedAvg",
    paper='Liang et al., "Think Locally, Act Globally: Federated Learning with Local and Global '
    'Representations", NeurIPS 2019 Workshop on Federated Learning, Algorithm 1',
    link="https://arxiv.org/abs/2001.01523",
    personal="the body",
    sends="its head",
)
def lg_fedavg(task: Task, *, head: tree.Layers | None = None) -> Algorithm:
    """The head is FedAvg's; each client keeps a body of its own. Both are trained together.

    It is FedPer the other way round: a client deploys the mean head on its own body. With a model
    that is all head it is FedAvg.

    State: clients = each client's body; server = the global head. Weights: "head", "body".

    Args:
      task: the model and its training.
      head: the shared layers: a regular expression to find in their paths, or a predicate; None:
        the model's head.

    Raises:
      InputError: the model names no head and none is given, or no layer matches.

    Differs: all start from the common initial model; the paper's experiments start from a model
    that FedAvg has trained. A client deploys its own model; the paper's ensemble for clients never
    seen is not here.
    """
    head = head_of(task.problem, head)

    def divide(model: Params) -> tuple[Params, Params]:
        return tree.split(model, head)

    return partial_model(task, divide, "head", "body")
