"""The server as an optimiser: it takes what the clients' mean moved for a gradient."""

import jax
import jax.numpy as jnp
import optax
from jaxtyping import PyTree

# What an optimiser such as Adam adds to a mean of squares before its root. It changes no step, and
# the root of a mean that is 0 then has a finite derivative.
UNDER_ROOT = 1e-36


def optimizer_step(
    optimizer: optax.GradientTransformation,
    opt_state: optax.OptState,
    model: PyTree,
    average: PyTree,
) -> tuple[PyTree, optax.OptState]:
    """One step of the server's optimiser along the pseudo-gradient, model - average.

    Reddi et al., "Adaptive Federated Optimization", ICLR 2021, Algorithm 1,
    https://arxiv.org/abs/2003.00295.

    Args:
      optimizer: any optax optimiser; SGD with learning rate 1 gives the average, FedAvg. An
        optimiser that keeps squares (Adam, Yogi) stands still for good after a pseudo-gradient
        whose square overflows: keep entries up to 1e15.
      opt_state: its state.
      model: what the clients started from.
      average: the mean of what they trained.

    Returns:
      The new model and the optimiser's new state.

    Example:
      >>> sgd = optax.sgd(0.5)
      >>> model = jnp.zeros(2)
      >>> optimizer_step(sgd, sgd.init(model), model, jnp.array([2.0, 4.0]))[0].tolist()
      [1.0, 2.0]
    """
    pseudo_gradient = jax.tree.map(jnp.subtract, model, average)
    updates, opt_state = optimizer.update(pseudo_gradient, opt_state, model)
    return optax.apply_updates(model, updates), opt_state
