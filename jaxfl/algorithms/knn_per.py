"""kNN-Per (Marfoq et al., "Personalized Federated Learning through Local Memorization", ICML 2022)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from jaxfl import tree
from jaxfl.errors import check, check_not_negative, check_positive
from jaxfl.kernels.mixing import mix, size_weights
from jaxfl.kernels.neighbours import neighbour_labels
from jaxfl.types import Algorithm, Cohort, Dataset, Info, Params, PRNGKey, Scalar, State, Task

PART = 32  # examples whose features are taken at a time


class Memory(NamedTuple):
    """What a client predicts with."""

    model: Params
    features: Float[Array, "*n"]  # [n, d] of its training examples
    labels: Int[Array, "*n"]  # [n]
    mask: Bool[Array, "*n"]  # [n]


def knn_per(
    task: Task, *, neighbours: int = 10, lam: Scalar = 0.5, scale: Scalar = 1.0
) -> Algorithm:
    """FedAvg's model, and the labels of the nearest training examples of the client in that model's features.

    p = lam p_knn + (1 - lam) softmax(model). Personal are the examples; the model alone is sent.

    State: clients = nothing; server = the global model. `recall` makes the memory of a model when
    it predicts, so that the features are never those of an old one.

    Args:
      task: classification and its training; without a model that names its head, its predictions
        are the features.
      neighbours: k.
      lam: weight of the neighbours, from 0 to 1; in the paper by grid search on validation data, .5
        in pFedGraph's tables.
      scale: of the squared distances, which are divided by their dimension and this.

    Differs: a client remembers all of its training examples, and its k and lam are those of all.
    pFedGraph's code takes a softmax over the summed similarities, which flattens p_knn.
    """
    check_positive(neighbours=neighbours, scale=scale)
    check_not_negative(lam=lam)
    check(
        not isinstance(lam, float | int) or lam <= 1, f"lam is {lam}: expected a weight from 0 to 1"
    )
    fit, features = task.trainer(task.loss), task.features or task.apply

    def init(key: PRNGKey, train: Dataset) -> State:
        return State((), task.init(key))

    def round(key: PRNGKey, state: State, cohort: Cohort) -> tuple[State, Info]:
        fit_key, uplink_key = jax.random.split(key)
        start = tree.broadcast(state.server, cohort.ids.size)
        trained, loss = fit(fit_key, start, None, cohort)
        received, heard = task.uplink(uplink_key, start, trained, cohort.ids)
        share = size_weights(cohort.sizes * heard)  # [M], the same for every receiver
        model = mix(share, received)
        floats = jnp.full_like(cohort.ids, tree.size(model))
        weights = tree.broadcast(share, loss.size)
        return State((), model), Info(
            loss, weights, floats, floats, batches=task.batches(cohort), heard=heard
        )

    def models(state: State, ids: Int[Array, "m"]) -> Params:
        return tree.broadcast(state.server, ids.size)

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
            return task.apply(known, x)
        logits, query = task.apply(known.model, x), features(known.model, x)
        by_model = jax.nn.softmax(logits)
        near = neighbour_labels(
            query.reshape(len(x), -1),
            *known[1:],
            classes=logits.shape[1],
            neighbours=neighbours,
            scale=scale,
        )
        share = lam * known.mask.any()
        return jnp.log(jnp.maximum(share * near + (1 - share) * by_model, 1e-30))

    return Algorithm(init, round, models, apply, recall)
