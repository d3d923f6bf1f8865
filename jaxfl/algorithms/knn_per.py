"""kNN-Per: FedAvg's model and the client's own examples."""

from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from jaxfl.errors import check
from jaxfl.kernels.neighbours import neighbour_labels
from jaxfl.options import COUNT, FRACTION, POSITIVE
from jaxfl.registry import method
from jaxfl.skeleton import features_of, global_model
from jaxfl.types import Algorithm, Dataset, Params, Scalar, Task

PART = 32  # examples whose features are taken at a time


class Memory(NamedTuple):
    """What a client predicts with."""

    model: Params
    # [n, d] of its training examples
    features: Float[Array, "*n"]
    # [n]
    labels: Int[Array, "*n"]
    # [n]
    mask: Bool[Array, "*n"]


@method(
    title="kNN-Per",
    paper='Marfoq et al., "Personalized Federated Learning through Local Memorization", ICML 2022',
    link="https://arxiv.org/abs/2111.09360",
    personal="the examples that the client remembers",
    sends="its model",
)
def knn_per(
    task: Task,
    *,
    neighbours: Annotated[int, COUNT] = 10,
    lam: Annotated[Scalar, FRACTION] = 0.5,
    scale: Annotated[Scalar, POSITIVE] = 1.0,
) -> Algorithm:
    """FedAvg's model, and the labels of the client's nearest training examples in its features.

    The prediction is p = lam p_knn + (1 - lam) softmax(model).

    State: clients = nothing; server = the global model. `recall` makes the memory of a model when
    the client predicts, so that the features are never those of an old model.

    Args:
      task: classification and its training.
      neighbours: k.
      lam: weight of the neighbours; in the paper by grid search on validation data, .5 in
        pFedGraph's tables.
      scale: of the squared distances, which are divided by their dimension and this.

    Raises:
      InputError: the model does not say what its features are, or the task is not classification.

    Differs: a client remembers all of its training examples, and all clients have one k and lam.
    pFedGraph's code takes a softmax over the summed similarities, which flattens p_knn.
    """
    features = features_of(task.problem)

    def recall(model: Params, train: Dataset) -> Memory:
        classes = train.y.ndim == 1 and jnp.issubdtype(train.y.dtype, jnp.integer)
        check(
            classes,
            "knn_per counts the classes of neighbours: choose a data set for classification",
        )
        found = lax.map(lambda x: features(model, x[None])[0], train.x, batch_size=PART)
        return Memory(model, found.reshape(len(found), -1), train.y, train.mask)

    def apply(known: Params | Memory, x: Array) -> Array:
        if not isinstance(known, Memory):
            return task.problem.apply(known, x)
        logits = task.problem.apply(known.model, x)
        by_neighbours = neighbour_labels(
            features(known.model, x).reshape(len(x), -1),
            *known[1:],
            classes=logits.shape[1],
            neighbours=neighbours,
            scale=scale,
        )
        weight = lam * known.mask.any()
        blend = weight * by_neighbours + (1 - weight) * jax.nn.softmax(logits)
        return jnp.log(jnp.maximum(blend, 1e-30))

    return global_model(task)._replace(apply=apply, recall=recall)
