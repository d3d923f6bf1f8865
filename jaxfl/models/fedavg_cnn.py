"""The convolutional network of FedAvg, as PFLlib has it."""

from flax import linen as nn

from jaxfl.core.errors import check
from jaxfl.core.options import checked
from jaxfl.models.convolution.block import ConvReluPool
from jaxfl.models.convolution.conv import Conv
from jaxfl.models.lenet import pytorch_uniform


class FedAvgCNN(nn.Module):
    """Two convolutions 5x5 without padding, with ReLU and 2x2 max-pooling, two dense layers."""

    classes: int
    conv: Conv = "auto"
    head = "Dense_1"

    @nn.compact
    def __call__(self, x, *, until_head: bool = False):
        """[B, h, w, channel] -> [B, classes]."""
        check(
            x.ndim == 4,
            f"fedavg_cnn takes images [h, w, channel], not examples of shape {x.shape[1:]}: "
            "choose model mlp",
        )
        check(
            min(x.shape[1:3]) >= 16,
            f"fedavg_cnn takes images of 16x16 or more, not {x.shape[1]}x{x.shape[2]}: "
            "choose model cnn or mlp",
        )
        for width in (32, 64):
            x = ConvReluPool(
                width, (5, 5), padding="VALID", kernel_init=pytorch_uniform, conv=self.conv
            )(x)
        x = nn.relu(nn.Dense(512, kernel_init=pytorch_uniform)(x.reshape(x.shape[0], -1)))
        return x if until_head else nn.Dense(self.classes, kernel_init=pytorch_uniform)(x)

    def features(self, x):
        """[B, h, w, channel] -> what enters the last layer [B, d]."""
        return self(x, until_head=True)


@checked
def fedavg_cnn(classes: int, conv: Conv = "auto") -> nn.Module:
    """Two convolutions (5x5; 32, 64 channels, no padding) with 2x2 max-pooling, dense 512, logits.

    582,026 parameters for 28x28x1 images and 10 classes, 924,708 for 32x32x3 images and 100
    classes. It is `FedAvgCNN` of PFLlib (https://github.com/TsingZ0/PFLlib), with which its table
    of methods is made.

    Differs: biases start at zero, PyTorch's are random. The CNN of the FedAvg paper (McMahan et
    al., 2017, https://arxiv.org/abs/1602.05629) pads its convolutions: 1,663,370 parameters.

    `conv` is the way of computing convolutions, see `jaxfl.models.convolution.conv.Conv`.

    Example:
      >>> shapes = jax.eval_shape(fedavg_cnn(10).init, jax.random.key(0), jnp.zeros((1, 28, 28, 1)))
      >>> jaxfl.tree.size(shapes)
      582026
    """
    return FedAvgCNN(classes, conv=conv)
