"""Matrix factorisation of ratings (Koren, Bell and Volinsky, 2009)."""

import jax.numpy as jnp
from flax import linen as nn
from jax.nn import initializers

from jaxfl.errors import check


class MF(nn.Module):
    """Inner product of a user's and an item's vector, with a bias of each and one of all."""

    users: int
    items: int
    rank: int
    head = "user"

    @nn.compact
    def __call__(self, x):
        """[B, 2] user and item -> [B, 1] rating."""
        check(
            x.shape[1:] == (2,) and jnp.issubdtype(x.dtype, jnp.integer),
            f"mf takes integer pairs (user, item), not {x.dtype} of shape {x.shape[1:]}: choose another model",
        )
        zeros, normal = initializers.zeros, initializers.normal(0.1)
        user, item = x[:, 0], x[:, 1]
        p = nn.Embed(self.users, self.rank, embedding_init=normal, name="user")(user)
        q = nn.Embed(self.items, self.rank, embedding_init=normal, name="item")(item)
        bias = nn.Embed(self.users, 1, embedding_init=zeros, name="user_bias")(user)
        bias += nn.Embed(self.items, 1, embedding_init=zeros, name="item_bias")(item)
        return (p * q).sum(axis=1, keepdims=True) + bias + self.param("mean", zeros, (1,))[None]


def mf(outputs: int = 1, vocabulary: tuple[int, ...] = (943, 1682), rank: int = 10) -> nn.Module:
    """Matrix factorisation with biases: 11 numbers a user and an item, and one of all; MovieLens' sizes by default.

    The head, what a client may keep to itself, is all that belongs to users.
    """
    return MF(*vocabulary, rank)
