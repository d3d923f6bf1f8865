"""Multilayer perceptron."""

from collections.abc import Sequence

from flax import linen as nn

from jaxfl.models.width import divided


class MLP(nn.Module):
    """Dense layers with ReLU between them, on the flattened input."""

    widths: Sequence[int]

    @property
    def head(self) -> str:
        """The path of the last layer."""
        return f"Dense_{len(self.widths) - 1}"

    @nn.compact
    def __call__(self, x, *, until_head: bool = False):
        """[B, *feature] -> [B, widths[-1]]."""
        x = x.reshape(x.shape[0], -1)
        for width in self.widths[:-1]:
            x = nn.relu(nn.Dense(width)(x))
        return x if until_head else nn.Dense(self.widths[-1])(x)

    def features(self, x):
        """[B, *feature] -> what enters the last layer [B, d]."""
        return self(x, until_head=True)


def mlp(classes: int, hidden: Sequence[int] = (32, 32, 32), narrow: int = 1) -> nn.Module:
    """Dense layers of the given widths over `narrow` with ReLU, then one of `classes` logits.

    Example:
      >>> shapes = jax.eval_shape(mlp(2, hidden=(8,)).init, jax.random.key(0), jnp.zeros((1, 4)))
      >>> shapes["params"]["Dense_0"]["kernel"].shape, shapes["params"]["Dense_1"]["kernel"].shape
      ((4, 8), (8, 2))
    """
    return MLP((*divided(hidden, narrow), classes))
