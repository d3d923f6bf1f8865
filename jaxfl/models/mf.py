"""Matrix factorisation of ratings (Koren, Bell and Volinsky, 2009).

https://doi.org/10.1109/MC.2009.263
"""

import jax.numpy as jnp
from flax import linen as nn
from jax.nn import initializers

from jaxfl.core.errors import check


class MF(nn.Module):
    """Inner product of the vectors of user and item, plus a bias of each and a mean."""

    users: int
    items: int
    rank: int
    head = "user"

    @nn.compact
    def __call__(self, x):
        """Pairs of user and item [B, 2] -> ratings [B, 1]."""
        check(
            x.shape[1:] == (2,) and jnp.issubdtype(x.dtype, jnp.integer),
            f"mf takes integer pairs (user, item), not {x.dtype} of shape {x.shape[1:]}: "
            "choose another model",
        )
        zeros = initializers.zeros
        normal = initializers.normal(0.1)
        user = x[:, 0]
        item = x[:, 1]
        p = nn.Embed(self.users, self.rank, embedding_init=normal, name="user")(user)
        q = nn.Embed(self.items, self.rank, embedding_init=normal, name="item")(item)
        bias = nn.Embed(self.users, 1, embedding_init=zeros, name="user_bias")(user)
        bias += nn.Embed(self.items, 1, embedding_init=zeros, name="item_bias")(item)
        return (p * q).sum(axis=1, keepdims=True) + bias + self.param("mean", zeros, (1,))[None]


def mf(outputs: int = 1, vocabulary: tuple[int, ...] = (943, 1682), rank: int = 10) -> nn.Module:
    """Matrix factorisation with biases: 11 parameters for each user and item, and a mean.

    The numbers of users and items are MovieLens 100k's by default. The head, which a client may
    keep to itself, is all parameters of users.

    Example:
      >>> pairs = jnp.array([[0, 5], [2, 1]])  # of user and item
      >>> model = mf(vocabulary=(3, 6))
      >>> jaxfl.tree.size(jax.eval_shape(model.init, jax.random.key(0), pairs))
      100
    """
    users, items = vocabulary
    return MF(users, items, rank)
