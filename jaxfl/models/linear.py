"""One linear layer: linear and ridge regression, logistic regression."""

from flax import linen as nn


class Linear(nn.Module):
    """A linear map of the flattened input; all parameters start at zero (the losses are convex)."""

    outputs: int
    bias: bool
    head = "Dense_0"

    @nn.compact
    def __call__(self, x):
        """[B, *feature] -> [B, outputs]."""
        x = x.reshape(x.shape[0], -1)
        return nn.Dense(self.outputs, use_bias=self.bias, kernel_init=nn.initializers.zeros_init())(
            x
        )


def linear(outputs: int = 1, bias: bool = True) -> nn.Module:
    """One linear layer that starts at zero: logits of classes, or numbers to regress to."""
    return Linear(outputs, bias)
