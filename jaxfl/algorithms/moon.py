"""MOON: a contrastive loss on the features of models.

each round t, with features f and v_i, the model that the client trained last:  (Algorithm 1)
  client i:  a = exp(cos(f_w_i(x), f_w(x)) / temperature), b = the same with f_v_i
             w_i = local training of F_i - mu log(a / (a + b)) from w, and sends it         (3)
  server:    w = sum_i p_i w_i, where p_i are the clients' shares of the examples
client i deploys w.
"""

from typing import Annotated

from jaxfl.algorithms import steps
from jaxfl.core.facts import POSITIVE, Paper, method
from jaxfl.core.types import Algorithm, Dataset, Params, PRNGKey, Scalar, Task
from jaxfl.kernels.contrastive import contrast
from jaxfl.training import data_loss, masked_mean


@method(
    title="MOON",
    paper=Paper(
        authors="Li, Qinbin and He, Bingsheng and Song, Dawn",
        title="Model-Contrastive Federated Learning",
        venue="CVPR",
        year=2021,
        link="https://arxiv.org/abs/2103.16257",
    ),
    place="Algorithm 1",
    personal="",
    sends="its model",
    defaults="the authors' code",
    advice="lower mu; one model cannot fit clients that differ",
)
def moon(
    task: Task, *, mu: Scalar = 1.0, temperature: Annotated[Scalar, POSITIVE] = 0.5
) -> Algorithm:
    """FedAvg with features near those of the global model and far from those of the last local one.

    A client minimises (3), its loss plus mu times -log(a / (a + b)), where a is the exponential of
    the cosine between an example's features in its model and in the global model, over the
    temperature, and b the same with its last local model. The features are the input of the model's
    head.

    State: memory = each client's last trained model, at first the common initial model; server =
    the global model.

    Args:
      task: the model and its training.
      mu: strength of the contrastive loss; section 4.1 finds 5, 1 and 10 best for CIFAR-10,
        CIFAR-100 and Tiny-ImageNet.
      temperature: of the contrastive loss (section 4.1).

    Raises:
      InputError: the model does not define its features.

    Differs: the features are those of the model itself; the paper adds a projection head of two
    layers. With dropout or BatchNorm the features of the trained model are those of the pass in
    which it predicts; the other two models are in evaluation mode.

    Example:
      >>> state = initial_state(moon(task, mu=5.0))
      >>> state.clients.memory.model["params"]["Dense_1"]["bias"].shape
      (4, 2)
    """
    features = steps.features_of(task.problem)
    training_features = steps.training_features_of(task.problem)
    loss = data_loss(task.problem)

    def objective(params: Params, batch: Dataset, others: tuple, key: PRNGKey):
        value, aux = loss(params, batch, None, key)
        # (3): features near those of the global model, far from those of the last local model.
        start, last_model = others
        embeddings = training_features(params, batch.x, batch.mask, key)
        positive = features(start, batch.x)
        negative = features(last_model, batch.x)
        contrasts = contrast(embeddings, positive, negative, temperature)
        return value + mu * masked_mean(contrasts, batch.weights), aux

    return steps.global_model(
        task,
        objective=objective,
        anchor=lambda start, trained: (start, trained),
        keep_trained=True,
    )
