"""Clients that tell a loss beside their model, by which the server weighs them."""

from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxfl.algorithms.steps.client_steps import deploy_common, train_and_send
from jaxfl.core import tree
from jaxfl.core.messages import Down, Turn, Uploads
from jaxfl.core.types import Cohort, PRNGKey, Task
from jaxfl.kernels.mixing import possible_sizes
from jaxfl.training.deployed import deployed_losses
from jaxfl.training.objectives import data_loss


def train_and_tell(task: Task) -> Callable[[PRNGKey, tuple, Down, Cohort], tuple]:
    """The step of clients that train the server's model, and tell its loss on their examples.

    The loss is that of the model as it was received, on the client's training examples.

    Returns:
      `Exchange.client`, for clients that keep nothing.

    Example:
      >>> client, model = train_and_tell(task), task.problem.init(jax.random.key(0))
      >>> jax.eval_shape(client, jax.random.key(0), (), Down(model), cohort)[1].plain.shape
      (4,)
    """
    fit = task.trainer(data_loss(task.problem))
    losses_of = deployed_losses(task)

    def client(key: PRNGKey, memory: tuple, down: Down, cohort: Cohort) -> Turn[tuple]:
        start = deploy_common(memory, down, cohort)
        losses = losses_of(start, cohort.train, cohort)
        _, up, report = train_and_send(fit, key, start, None, cohort)
        return memory, up._replace(plain=losses), report

    return client


def client_losses(
    uploads: Uploads, losses: Float[Array, "m"]
) -> tuple[Float[Array, "m"], Float[Array, "m"]]:
    """The losses that clients have told, and their numbers of examples.

    Both are 0 for a client that does not count: its upload is lost, its loss is not finite or
    beyond 1e15, or it has no examples.

    Args:
      uploads: of the clients.
      losses: that they tell [M].

    Example:
      >>> losses = jnp.array([2.0, 3.0, jnp.nan, 5.0])
      >>> reported = jnp.array([True, True, True, False])
      >>> uploads = Uploads(cohort.ids, cohort.sizes, reported, (), ())
      >>> [x.tolist() for x in client_losses(uploads, losses)]
      [[2.0, 3.0, 0.0, 0.0], [10.0, 10.0, 0.0, 0.0]]
    """
    counted = uploads.reported & tree.finite_squares(losses, losses.size)
    sizes = possible_sizes(uploads.sizes * counted)
    return jnp.where(sizes > 0, losses, 0.0), sizes
