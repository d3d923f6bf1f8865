"""TextCNN (Kim, 2014) as pFedGraph uses it."""

import jax.numpy as jnp
from flax import linen as nn
from jax.nn import initializers

from jaxfl.errors import check
from jaxfl.models.lenet import uniform


def centred(key, shape, dtype):
    """U(-.1, .1)."""
    return initializers.uniform(0.2)(key, shape, dtype) - 0.1


class TextCNN(nn.Module):
    """Embedding, convolutions over 3, 4 and 5 words, the maximum over time, one dense layer."""

    classes: int
    words: int
    width: int
    channels: int
    spans: tuple[int, ...]
    head = "Dense_0"

    @nn.compact
    def __call__(self, x):
        """Words [B, length] in 0 .. words - 1 -> [B, classes]."""
        check(
            x.ndim == 2 and jnp.issubdtype(x.dtype, jnp.integer),
            f"textcnn takes integer words [length], not {x.dtype} of shape {x.shape[1:]}: choose another model",
        )
        longest = max(self.spans)
        check(
            x.shape[1] >= longest,
            f"textcnn takes {longest} words or more, not {x.shape[1]}: pad the texts",
        )
        embedded = nn.Embed(self.words, self.width, embedding_init=centred)(x)  # [B, length, width]
        found = []
        for span in self.spans:
            kernel = self.param(f"kernel_{span}", uniform, (span * self.width, self.channels))
            bias = self.param(f"bias_{span}", initializers.zeros, (self.channels,))
            places = x.shape[1] - span + 1
            parts = kernel.reshape(span, self.width, self.channels)
            sums = sum(
                embedded[:, i : i + places] @ parts[i] for i in range(span)
            )  # [B, places, channels]
            found.append(nn.relu(sums.max(axis=1) + bias[None]))
        return nn.Dense(self.classes, kernel_init=uniform)(jnp.concatenate(found, axis=1))


def textcnn(classes: int, vocabulary: tuple[int, ...] = (10_000,)) -> nn.Module:
    """Embedding of words in 256 dimensions, 100 convolutions over each of 3, 4 and 5 words, maximum over time, logits.

    256 V + 307,500 + 301 classes parameters for V words. The maximum is taken before the bias and
    ReLU, which commute with it.

    Differs: biases start at zero, PyTorch's at random.
    """
    return TextCNN(classes, vocabulary[0], 256, 100, (3, 4, 5))
