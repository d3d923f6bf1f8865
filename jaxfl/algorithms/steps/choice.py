"""Several models sent, of which each client takes the one with the lowest loss: IFCA and others."""

from collections.abc import Callable

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from jaxfl.algorithms.steps.client_steps import train_and_send
from jaxfl.core import tree
from jaxfl.core.messages import Down, Turn
from jaxfl.core.types import Cohort, Params, PRNGKey, Task
from jaxfl.training.deployed import deployed_losses
from jaxfl.training.objectives import data_loss


def offer(models: Params, offered: Bool[Array, "m k"]) -> Down:
    """A download in which each client gets some of K models.

    Args:
      models: [K, ...].
      offered: which of them each client gets [M, K], at least one.

    Example:
      >>> offered = jnp.array([[True, False], [True, True]])
      >>> offer(jnp.zeros((2, 3)), offered).floats.tolist()
      [3, 6]
    """
    size = tree.size(models) // offered.shape[1]
    return Down(models, offered, floats=size * offered.sum(axis=1))


def choice(task: Task) -> Callable[[Down, Cohort], Int[Array, "m"]]:
    """The choice of one of K models by its loss on the client's own training data, if deployed.

    Returns:
      choose(a download of K models or an `offer`, cohort) -> the number of each client's model [M].
      A NaN is never the lowest loss.

    Example:
      >>> choose = choice(task)
      >>> models = tree.broadcast(task.problem.init(jax.random.key(0)), 3)
      >>> jax.eval_shape(choose, Down(models), cohort).shape
      (4,)
    """
    losses_of = deployed_losses(task)

    def losses(models: Params, cohort: Cohort) -> Float[Array, "m k"]:
        def of_model(model: Params) -> Float[Array, "m"]:
            stacked = tree.broadcast(model, cohort.ids.size)
            return losses_of(stacked, cohort.train, cohort)

        values = lax.map(of_model, models).T
        largest = jnp.finfo(values.dtype).max
        return jnp.where(values < largest, values, largest)

    def choose(down: Down, cohort: Cohort) -> Int[Array, "m"]:
        models, offered, *_ = down
        if isinstance(offered, tuple):
            return losses(models, cohort).argmin(axis=1).astype(jnp.int32)

        def lowest() -> Int[Array, "m"]:
            return jnp.where(offered, losses(models, cohort), jnp.inf).argmin(axis=1)

        several = (offered.sum(axis=1) > 1).any()
        return lax.cond(several, lowest, lambda: offered.argmax(axis=1)).astype(jnp.int32)

    return choose


def train_choice(task: Task) -> Callable[[PRNGKey, tuple, Down, Cohort], tuple]:
    """The step in which each client trains the model that it chooses, and says which it is.

    Returns:
      `Exchange.client`, for clients that keep nothing.

    Example:
      >>> models = tree.broadcast(task.problem.init(jax.random.key(0)), 3)
      >>> client = train_choice(task)
      >>> jax.eval_shape(client, jax.random.key(0), (), Down(models), cohort)[1].plain.shape
      (4,)
    """
    fit = task.trainer(data_loss(task.problem))
    choose = choice(task)

    def client(key: PRNGKey, memory: tuple, down: Down, cohort: Cohort) -> Turn[tuple]:
        number = choose(down, cohort)
        start = tree.take(down.common, number)
        _, up, report = train_and_send(fit, key, start, None, cohort)
        return memory, up._replace(plain=number), report

    return client


def deploy_choice(task: Task) -> Callable[[tuple, Down, Cohort], Params]:
    """What clients deploy if it is the model that they choose.

    Returns:
      `Wire.deploy`.

    Example:
      >>> models = tree.broadcast(task.problem.init(jax.random.key(0)), 3)
      >>> tree.size(jax.eval_shape(deploy_choice(task), (), Down(models), cohort))
      360
    """
    choose = choice(task)

    def deploy(memory: tuple, down: Down, cohort: Cohort) -> Params:
        return tree.take(down.common, choose(down, cohort))

    return deploy
