"""MOON: contrast between the features of models."""

from typing import Annotated

from jaxfl.kernels.contrastive import contrast
from jaxfl.objectives import data_loss, masked_mean
from jaxfl.options import POSITIVE
from jaxfl.registry import method
from jaxfl.skeleton import features_of, global_model
from jaxfl.types import Algorithm, Dataset, Params, PRNGKey, Scalar, Task


@method(
    title="MOON",
    paper='Li, He and Song, "Model-Contrastive Federated Learning", CVPR 2021, Algorithm 1',
    link="https://arxiv.org/abs/2103.16257",
    personal="",
    sends="its model",
)
def moon(
    task: Task, *, mu: Scalar = 1.0, temperature: Annotated[Scalar, POSITIVE] = 0.5
) -> Algorithm:
    """FedAvg whose clients draw their features to the global model's and away from their last own.

    Features are what enters the model's head.

    State: clients = each client's last trained model, first the common initial one; server = the
    global model.

    Args:
      task: the model and its training.
      mu: strength of the contrast; section 4.1 finds 5, 1 and 10 best for CIFAR-10, CIFAR-100 and
        Tiny-ImageNet.
      temperature: of the contrast (section 4.1).

    Raises:
      InputError: the model does not say what its features are.

    Differs: features come from the model as it is, without the paper's projection head of two
    layers more.
    """
    features = features_of(task.problem)
    loss = data_loss(task.problem)

    def objective(params: Params, batch: Dataset, others: tuple, key: PRNGKey):
        value, aux = loss(params, batch, None, key)
        # (3): the global model is near, the client's last model is far.
        own, near, far = (features(model, batch.x) for model in (params, *others))
        contrasts = contrast(own, near, far, temperature)
        return value + mu * masked_mean(contrasts, batch.mask), aux

    return global_model(
        task,
        objective=objective,
        anchor=lambda start, trained: (start, trained),
        keep_trained=True,
    )
