"""The networks of FedCedar (Wang et al., PAKDD 2024, section 4.1): the paper's numbers of layers, with GroupNorm."""

from flax import linen as nn

from jaxfl.errors import check
from jaxfl.models.conv import conv, max_pool
from jaxfl.models.norm import GroupNorm


class Cedar(nn.Module):
    """Stages of 3x3 convolutions, same padding, with ReLU, each stage ended by 2x2 max-pooling; two dense layers."""

    classes: int
    stages: tuple[
        tuple[int, ...], ...
    ]  # channels of each convolution; the first of a stage is normalised
    hidden: int
    groups: int | None
    head = "Dense_1"

    @nn.compact
    def __call__(self, x):
        """[B, h, w, channel] -> [B, classes]."""
        shape = "x".join(map(str, x.shape[1:]))
        check(
            x.ndim == 4,
            f"cedar3 and cedar6 take images [h, w, channel], not examples of shape {shape}: choose mlp",
        )
        check(
            min(x.shape[1:3]) >= 8,
            f"cedar3 and cedar6 take images of 8x8 or more, not {shape}: choose cnn or mlp",
        )
        for stage in self.stages:
            for number, width in enumerate(stage):
                x = nn.Conv(width, (3, 3), conv_general_dilated=conv)(x)
                if number == 0 and self.groups:
                    x = GroupNorm(self.groups)(x)
                x = nn.relu(x)
            x = max_pool(x)
        x = nn.relu(nn.Dense(self.hidden)(x.reshape(x.shape[0], -1)))
        return nn.Dense(self.classes)(x)


def cedar3(classes: int, groups: int | None = 8) -> nn.Module:
    """Three convolutions (16, 32, 64 channels, 3x3) with GroupNorm and 2x2 max-pooling, dense 128, logits.

    98,666 parameters for 28x28x1 images and 10 classes, 156,298 for 32x32x3. `groups=None`: without
    normalisation.

    Differs: the paper gives the number of layers, for MNIST and SVHN, and no widths; its code has
    two convolutions, with dropout.
    """
    return Cedar(classes, ((16,), (32,), (64,)), 128, groups)


def cedar6(classes: int, groups: int | None = 8) -> nn.Module:
    """Six convolutions (32, 64, pool, 128, 128, pool, 256, 256, pool, 3x3), dense 512, logits; GroupNorm.

    3,229,706 parameters for 32x32x3 images and 10 classes. `groups=None`: without normalisation.

    Differs: the authors' code, for CIFAR-10, has the same convolutions with BatchNorm in place of
    GroupNorm, dropout, and dense 1024 and 512 without a layer of 10 logits.
    """
    return Cedar(classes, ((32, 64), (128, 128), (256, 256)), 512, groups)
