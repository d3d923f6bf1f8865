"""The labels of the clients' examples: whether there are any, how many classes, their sizes."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxfl.core import tree
from jaxfl.core.errors import check
from jaxfl.core.types import Dataset, Problem
from jaxfl.training.objectives import training_predictions

__all__ = ["class_count", "class_sizes", "has_labels", "require_labels"]


def has_labels(problem: Problem, train: Dataset) -> bool:
    """Whether the model is trained on labels, one whole number an example.

    Args:
      problem: of the model; one that learns from inputs alone looks at no label.
      train: the clients' examples [C, n, ...].

    Example:
      >>> has_labels(task.problem, cohort.train)
      True
    """
    one = train.y.ndim == 2 and jnp.issubdtype(train.y.dtype, jnp.integer)
    return one and problem.target is None


def require_labels(problem: Problem, train: Dataset, title: str) -> None:
    """Refuses a problem or data without labels.

    Args:
      problem: of the model.
      train: the clients' examples [C, n, ...].
      title: the method's, for the message.

    Raises:
      InputError: the targets are not one whole number for each example, or the model is not trained
        on them.

    Example:
      >>> targets = Dataset(jnp.zeros((1, 2, 3)), jnp.zeros((1, 2)), jnp.ones((1, 2), bool))
      >>> require_labels(task.problem, targets, "FedRoD")
      Traceback (most recent call last):
      jaxfl.core.errors.InputError: FedRoD needs labels, a whole number an example: ...
    """
    check(
        has_labels(problem, train),
        f"{title} needs labels, a whole number an example: choose another algorithm for "
        "this data and model",
    )


def class_count(problem: Problem, train: Dataset) -> int:
    """The number of classes of the model: its number of outputs for an example.

    Args:
      problem: of the model; nothing is computed.
      train: the clients' examples [C, n, ...].

    Example:
      >>> train = Dataset(jnp.zeros((1, 2, 8)), jnp.zeros((1, 2), int), jnp.ones((1, 2), bool))
      >>> class_count(task.problem, train)
      2
    """
    key = jax.random.key(0)
    model = jax.eval_shape(problem.init, key)
    example = tree.shapes(train.x, 1, axes=2)
    # As in training: statistics that clients recompute are not known otherwise.
    predict = training_predictions(problem)
    predictions, _ = jax.eval_shape(predict, model, example, jnp.ones(1, bool), key)
    # Predictions that are a pytree are of no classes.
    return getattr(predictions, "shape", (0,))[-1]


def class_sizes(data: Dataset, classes: int) -> Float[Array, "m k"]:
    """How many examples of each class the clients have [M, K].

    Args:
      data: of M clients [M, n, ...].
      classes: K.

    Example:
      >>> labels = jnp.array([[1, 1, 0], [0, 0, 0]])
      >>> mask = jnp.array([[True, True, True], [True, False, False]])
      >>> class_sizes(Dataset(jnp.zeros((2, 3, 1)), labels, mask), 2).tolist()
      [[1.0, 2.0], [1.0, 0.0]]
    """
    one_hot = jax.nn.one_hot(jnp.asarray(data.y), classes)
    return jnp.sum(one_hot * data.mask[..., None], axis=1)
