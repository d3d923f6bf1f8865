"""A task: the model, its loss and how clients train it; everything that an algorithm is given."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn
from jaxtyping import Array, Float, Int, PyTree

from jaxfl.local import trainer
from jaxfl.types import Chunk, Dataset, Objective, Params, PRNGKey, Task, Uplink


def honest(key: PRNGKey, before: Params, after: Params, ids: Int[Array, "m"]) -> Params:
    """The uplink that delivers what the clients trained."""
    return after


def classification(
    model: nn.Module,
    example: Array | np.ndarray,
    *,
    optimizer: optax.GradientTransformation | None = None,
    batch_size: int = 64,
    steps: int | None = None,
    epochs: int | None = None,
    scale: float = 1.0,
    micro: int | None = None,
    chunk: Chunk = "auto",
    uplink: Uplink = honest,
) -> Task:
    """Classification by softmax cross-entropy, scored by accuracy.

    Args:
      model: a flax module that maps x [B, *feature] to logits [B, classes].
      example: one input [*feature], of any dtype: its shape fixes the shapes of the parameters.
      optimizer: any optax optimiser; SGD with learning rate .01, momentum .9 and weight decay 1e-5 if None.
      batch_size: examples a local step.
      steps: local steps a round, or
      epochs: local epochs a round. Neither given: 200 steps. These defaults are pFedGraph's (section 4.1).
      scale: inputs are converted to float32 and divided by it, batch by batch, so data may stay uint8.
      micro: examples whose gradient is computed at a time, see `local.accumulated`. None: 16 for a model with
        convolutions on CPU, where the patches of more fall out of the cache; else the whole batch.
      chunk: clients trained side by side, see `tree.over_clients`; "auto" is "all" for a model without convolutions.
      uplink: what the server sees of the clients' models.
    """
    if optimizer is None:
        optimizer = sgd()
    if steps is None and epochs is None:
        steps = 200

    def init(key: PRNGKey) -> Params:
        return model.init(key, _to_float(jnp.asarray(example)[None], scale))

    kernels = jax.tree.leaves(jax.eval_shape(init, jax.random.key(0)))
    convolutional = any(kernel.ndim == 4 for kernel in kernels)
    if micro is None and convolutional and jax.default_backend() == "cpu":
        micro = 16
    if chunk == "auto" and not convolutional:
        chunk = "all"

    def apply(params: Params, x: Array) -> Float[Array, "b classes"]:
        return model.apply(params, _to_float(x, scale))

    def loss_of(apply: Callable) -> Objective:
        def loss(params: Params, batch: Dataset, anchor: PyTree, key: PRNGKey) -> tuple[Array, Array]:
            each = optax.softmax_cross_entropy_with_integer_labels(apply(params, batch.x), batch.y)
            mean = masked_mean(each, batch.mask)
            return mean, mean

        return loss

    def score(prediction: Float[Array, "b classes"], y: Int[Array, "b"]) -> Float[Array, "b"]:
        return (prediction.argmax(axis=-1) == y).astype(jnp.float32)

    def train(objective: Objective):
        return trainer(
            objective, optimizer, batch_size=batch_size, steps=steps, epochs=epochs, micro=micro, chunk=chunk
        )

    return Task(init, apply, loss_of(apply), loss_of, score, train, uplink)


def sgd(learning_rate: float = 0.01, momentum: float = 0.9, weight_decay: float = 1e-5) -> optax.GradientTransformation:
    """SGD as PyTorch and the papers write it: the decay is added to the gradient, before the momentum."""
    return optax.chain(
        optax.add_decayed_weights(weight_decay), optax.sgd(learning_rate, momentum if momentum else None)
    )


def masked_mean(values: Float[Array, "b"], mask: Array) -> Float[Array, ""]:
    """Mean of the values where the mask holds; 0 if it holds nowhere."""
    return jnp.sum(jnp.where(mask, values, 0.0)) / jnp.maximum(jnp.count_nonzero(mask), 1)


def _to_float(x: Array, scale: float) -> Float[Array, "..."]:
    return x.astype(jnp.float32) / scale
