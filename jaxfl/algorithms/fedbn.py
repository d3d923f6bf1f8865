"""FedBN: personal normalisation layers."""

from jaxfl.algorithms.steps.server import equal_mean
from jaxfl.algorithms.steps.templates import partial_model
from jaxfl.core import tree
from jaxfl.core.facts import method
from jaxfl.core.papers import Paper
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
    turn_first="norms, the personal layers: a model without normalisation layers makes this FedAvg",
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

    return partial_model(task, divide, "shared", "norms", equal_mean)
