"""One linear layer: linear and ridge regression, logistic regression."""

from flax import linen as nn


class Linear(nn.Module):
    """A linear map of the flattened input; all parameters start at zero (the losses are convex)."""

    outputs: int
    bias: bool
    head = "Dense_0"

    @nn.compact
    def __call__(self, x, *, until_head: bool = False):
        """[B, *feature] -> [B, outputs]."""
        x = x.reshape(x.shape[0], -1)
        zeros = nn.initializers.zeros_init()
        last = nn.Dense(self.outputs, use_bias=self.bias, kernel_init=zeros)
        return x if until_head else last(x)

    def features(self, x):
        """[B, *feature] -> what enters the last layer [B, d]."""
        return self(x, until_head=True)


def linear(outputs: int = 1, bias: bool = True) -> nn.Module:
    """One linear layer that starts at zero: logits of classes, or numbers to regress to.

    Example:
      >>> params = linear(2).init(jax.random.key(0), jnp.zeros((1, 3)))
      >>> params["params"]["Dense_0"]["kernel"].tolist()
      [[0.0, 0.0], [0.0, 0.0], [0.0, 0.0]]
    """
    return Linear(outputs, bias)
