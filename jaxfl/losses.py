"""What training lowers and what evaluation averages: one number for each prediction of a batch."""

import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Shaped

from jaxfl.errors import check


def cross_entropy(logits: Float[Array, "b classes"], y: Int[Array, "b"]) -> Float[Array, "b"]:
    """Softmax cross-entropy of each example; with one output it would be 0 whatever the model.

    Example:
      >>> print(cross_entropy(jnp.array([[0.0, 0.0], [90.0, 0.0]]), jnp.array([1, 0])).round(3))
      [0.693 0.   ]
    """
    check(
        logits.shape[-1] > 1,
        "the model has one output, and its softmax is always 1: expected an output for each class, "
        "two or more; change the model, or use regression for targets that are numbers",
    )
    return optax.softmax_cross_entropy_with_integer_labels(logits, y)


def correct(logits: Float[Array, "b classes"], y: Int[Array, "b"]) -> Float[Array, "b"]:
    """1 for an example whose label has the largest logit, otherwise 0; the mean is the accuracy.

    Example:
      >>> correct(jnp.array([[1.0, 2.0], [1.0, 2.0]]), jnp.array([1, 0])).tolist()
      [1.0, 0.0]
    """
    return (logits.argmax(axis=-1) == y).astype(jnp.float32)


def squared_error(prediction: Float[Array, "b k"], y: Shaped[Array, "b *k"]) -> Float[Array, "b"]:
    """Squared distance of each prediction [B, k] from its target [B, k], or [B] if k is 1.

    Example:
      >>> squared_error(jnp.array([[2.0], [3.0]]), jnp.array([5.0, 3.0])).tolist()
      [9.0, 0.0]
    """
    check(
        prediction.size == y.size,
        f"the model predicts {prediction.shape[1]} numbers an example, the targets have shape "
        f"{y.shape}: expected as many",
    )
    return jnp.sum(jnp.square(prediction - y.reshape(prediction.shape)), axis=-1)
