"""FedBN: personal normalisation layers.

each round t, with the client's normalisation layers n_i:                   (Algorithm 1)
  client i:  (b_i, n_i) = local training of F_i from (b, n_i), and sends b_i
  server:    b = the mean of the b_i
client i deploys (b, n_i).
"""

from jaxfl.algorithms import steps
from jaxfl.core import tree
from jaxfl.core.facts import Paper, method
from jaxfl.core.types import Algorithm, Params, Task


@method(
    title="FedBN",
    paper=Paper(
        authors="Li, Xiaoxiao and Jiang, Meirui and Zhang, Xiaofei and Kamp, Michael and Dou, Qi",
        title="FedBN: Federated Learning on Non-IID Features via Local Batch Normalization",
        venue="ICLR",
        year=2021,
        link="https://arxiv.org/abs/2102.07623",
    ),
    place="Algorithm 1",
    personal="the normalisation layers",
    sends="all other layers",
    advice="norms, the personal layers: a model without normalisation layers makes this FedAvg",
)
def fedbn(task: Task, *, norms: tree.Layers = "[Nn]orm") -> Algorithm:
    """FedAvg, but each client keeps the parameters and statistics of its normalisation layers.

    Clients count equally, as in the paper. If the model has no such layers, the method is FedAvg
    with equal weights.

    State: memory = each client's normalisation layers; server = the other layers of the global
    model. Weights: "shared" and "norms".

    Args:
      task: the model and its training.
      norms: the personal layers: a regular expression to find in their paths, or a predicate. The
        default finds layers with flax's names, such as BatchNorm, GroupNorm and LayerNorm.

    Example:
      >>> _, info = one_round(fedbn(task))
      >>> sorted(info.weights)
      ['norms', 'shared']
    """

    def divide(model: Params) -> tuple[Params, Params]:
        personal, shared = tree.split(model, norms)
        return shared, personal

    return steps.partial_model(task, divide, "shared", "norms", steps.equal_mean)
