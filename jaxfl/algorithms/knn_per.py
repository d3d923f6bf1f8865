"""kNN-Per: predictions by FedAvg's model and by the client's own examples.

each round t, as in FedAvg:
  client i:  w_i = local training of F_i from w, and sends it
  server:    w = sum_i p_i w_i, where p_i are the clients' shares of the examples
client i deploys w, and predicts lam p_knn + (1 - lam) softmax(logits of w), where p_knn is of
the labels of the k training examples with the nearest features.
"""

from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PyTree

from jaxfl.algorithms import steps
from jaxfl.core import tree
from jaxfl.core.errors import check
from jaxfl.core.facts import COUNT, FRACTION, POSITIVE, Paper, method
from jaxfl.core.types import Algorithm, Dataset, Params, Scalar, Task
from jaxfl.kernels.neighbours import neighbour_labels
from jaxfl.training import training_predictions

# number of examples whose features are computed at a time
PART = 32


class Memory(NamedTuple):
    """The model and the training examples with which a client predicts."""

    model: Params
    # [n, d] the features of the client's training examples
    features: Float[Array, "*n"]
    # [n] their labels
    labels: Int[Array, "*n"]
    # [n] which examples are real
    mask: Bool[Array, "*n"]


@method(
    title="kNN-Per",
    paper=Paper(
        authors="Marfoq, Othmane and Neglia, Giovanni and Vidal, Richard and Kameni, Laetitia",
        title="Personalized Federated Learning through Local Memorization",
        venue="ICML",
        year=2022,
        link="https://arxiv.org/abs/2111.09360",
    ),
    personal="the examples that the client remembers",
    sends="its model",
    defaults="the authors' code; lam is of pFedGraph's tables",
    advice="lam, the weight of the remembered examples: choose it on validation scores",
)
def knn_per(
    task: Task,
    *,
    neighbours: Annotated[int, COUNT] = 10,
    lam: Annotated[Scalar, FRACTION] = 0.5,
    scale: Annotated[Scalar, POSITIVE] = 1.0,
) -> Algorithm:
    """FedAvg's model, and the labels of the nearest training examples in the model's features.

    The prediction is p = lam p_knn + (1 - lam) softmax(logits), where p_knn comes from the labels
    of the client's k nearest training examples.

    State: memory = nothing; server = the global model. `recall` computes the features of the
    training examples when a client predicts, so that they are never features of an old model.

    Args:
      task: classification and its training.
      neighbours: k.
      lam: weight of p_knn; chosen by grid search on validation data in the paper, .5 in pFedGraph's
        tables.
      scale: squared distances are divided by the dimension of the features and by this number.

    Raises:
      InputError: the model does not define its features, or the task is not classification.

    Differs: a client uses all of its training examples, and k and lam are the same for all clients.
    pFedGraph's code applies a softmax to the summed similarities, which makes p_knn more uniform.

    Example:
      >>> algorithm = knn_per(task, neighbours=3)
      >>> algorithm.recall is None
      False
    """
    features = steps.features_of(task.problem)

    def recall(model: Params, train: Dataset) -> Memory:
        one = train.y.ndim == 1 and jnp.issubdtype(train.y.dtype, jnp.integer)
        classes = one and task.problem.target is None
        check(
            classes,
            "knn_per counts the classes of neighbours: choose a data set for classification",
        )

        def features_of_example(position: Int[Array, ""]) -> Array:
            return features(model, tree.at(tree.at(train.x, position), None))[0]

        embeddings = lax.map(features_of_example, jnp.arange(train.mask.size), batch_size=PART)
        return Memory(
            model, embeddings.reshape(len(embeddings), -1), jnp.asarray(train.y), train.mask
        )

    def apply(memory: Params | Memory, x: PyTree) -> Array:
        if not isinstance(memory, Memory):
            return task.problem.apply(memory, x)
        logits = task.problem.apply(memory.model, x)
        by_neighbours = neighbour_labels(
            features(memory.model, x).reshape(tree.rows(x), -1),
            *memory[1:],
            classes=logits.shape[1],
            neighbours=neighbours,
            scale=scale,
        )
        # A client without examples predicts with the model alone.
        weight = lam * memory.mask.any()
        blend = weight * by_neighbours + (1 - weight) * jax.nn.softmax(logits)
        return jnp.log(jnp.maximum(blend, 1e-30))

    # A client fine-tunes the model alone.
    predict = training_predictions(task.problem)
    return steps.global_model(task)._replace(apply=apply, recall=recall, predict=predict)
