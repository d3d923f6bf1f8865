"""How far the local steps of a round go along a gradient that stays the same."""

from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxfl.core.types import Cohort, Dataset, PRNGKey, Task


def displacement(task: Task) -> Callable[[PRNGKey, Cohort], Float[Array, "m"]]:
    """A function that measures the displacement of each client on the task's own optimiser.

    With SGD of rate eta and K steps it is eta K. With momentum it is more, since a later step goes
    further than the first. An optimiser that scales its gradients, such as Adam, has no such
    number: what is measured then depends on the size of the gradient, which is 1 here. Examples are
    neither augmented nor clipped nor noised in the measurement: no result depends on them.

    Args:
      task: its optimiser, and its steps or epochs.

    Returns:
      (key, cohort) -> how far each client goes along a constant gradient of 1 [M]; 0 for a client
      without a step.

    Example:
      >>> sgd = jaxfl.sgd(0.1, momentum=0.0, weight_decay=0.0)
      >>> task = jaxfl.classification(jaxfl.models.linear(2), jnp.zeros(8), optimizer=sgd, steps=5)
      >>> print(displacement(task)(jax.random.key(0), cohort))
      [0.5 0.5 0.5 0.5]
    """

    def unit_gradient(position: Array, batch: Dataset, anchor: None, key: PRNGKey):
        return position, position

    fit = task.trainer(unit_gradient, augment=None, example_clip=None, example_noise=0.0)

    def measure(key: PRNGKey, cohort: Cohort) -> Float[Array, "m"]:
        zero = jnp.zeros(cohort.ids.shape, jnp.float32)
        return -fit(key, zero, None, cohort).params

    return measure
