"""The server as an optimiser: what the clients' mean moved is taken for a gradient."""

import jax
import jax.numpy as jnp
import optax
from jaxtyping import PyTree


def descend(
    optimizer: optax.GradientTransformation, memory: optax.OptState, model: PyTree, average: PyTree
) -> tuple[PyTree, optax.OptState]:
    """One step of the server's optimiser (Reddi et al., "Adaptive Federated Optimization", ICLR 2021, Algorithm 1).

    Args:
      optimizer: any optax optimiser; SGD with learning rate 1 gives the average, FedAvg. One that
        keeps squares (Adam, Yogi) stands still for good after a difference whose square overflows:
        keep entries up to 1e15.
      memory: its state.
      model: what the clients started from.
      average: of what they trained; the model less this is the pseudo-gradient.

    Returns:
      The new model and the optimiser's new state.
    """
    updates, memory = optimizer.update(jax.tree.map(jnp.subtract, model, average), memory, model)
    return optax.apply_updates(model, updates), memory
