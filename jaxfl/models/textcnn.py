"""TextCNN (Kim, 2014, https://arxiv.org/abs/1408.5882) as pFedGraph uses it."""

import jax.numpy as jnp
from flax import linen as nn
from jax.nn import initializers

from jaxfl.core.errors import check
from jaxfl.models.ids import check_ids, embed, has_id
from jaxfl.models.lenet import pytorch_uniform


def small_uniform(key, shape, dtype):
    """U(-0.1, 0.1)."""
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
    def __call__(self, x, *, until_head: bool = False):
        """Word ids [B, length] in 0 .. words - 1 -> [B, classes]."""
        check_ids(x, "textcnn")
        longest = max(self.spans)
        check(
            x.shape[1] >= longest,
            f"textcnn takes {longest} words or more, not {x.shape[1]}: pad the texts",
        )
        # [B, length, width]
        vectors = embed(nn.Embed(self.words, self.width, embedding_init=small_uniform), x)
        # Windows behind the end of a shorter text count for nothing.
        count = has_id(x).sum(axis=1)
        maxima = []
        for span in self.spans:
            kernel = self.param(
                f"kernel_{span}", pytorch_uniform, (span * self.width, self.channels)
            )
            bias = self.param(f"bias_{span}", initializers.zeros, (self.channels,))
            places = x.shape[1] - span + 1
            parts = kernel.reshape(span, self.width, self.channels)
            # [B, places, channels]
            sums = sum(
                (vectors[:, i : i + places] @ parts[i] for i in range(span)),
                start=jnp.zeros((), vectors.dtype),
            )
            last = jnp.maximum(count - span, 0)[:, None, None]
            inside = jnp.arange(places)[None, :, None] <= last
            largest = jnp.where(inside, sums, -jnp.inf).max(axis=1)
            maxima.append(nn.relu(largest + bias[None]))
        x = jnp.concatenate(maxima, axis=1)
        return x if until_head else nn.Dense(self.classes, kernel_init=pytorch_uniform)(x)

    def features(self, x):
        """Word ids [B, length] -> what enters the last layer [B, d]."""
        return self(x, until_head=True)


def textcnn(classes: int, vocabulary: tuple[int, ...] = (10_000,)) -> nn.Module:
    """Word embeddings, convolutions over 3, 4 and 5 words, the maximum over time, logits.

    Embeddings have 256 dimensions, and there are 100 convolutions of each span: 256 V + 307,500 +
    301 classes parameters for V words. The maximum is taken before the bias and ReLU, with which it
    commutes.

    Differs: biases start at zero; PyTorch's are random.

    Example:
      >>> texts = jnp.zeros((2, 50), int)
      >>> model = textcnn(4, vocabulary=(1000,))
      >>> jaxfl.tree.size(jax.eval_shape(model.init, jax.random.key(0), texts))
      564704
    """
    return TextCNN(classes, vocabulary[0], 256, 100, (3, 4, 5))
