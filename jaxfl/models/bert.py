"""An encoder as BERT (Devlin et al., 2019, https://arxiv.org/abs/1810.04805)."""

import jax.numpy as jnp
from flax import linen as nn
from jax.nn import initializers
from jaxtyping import Array, Bool, Float

from jaxfl.core.errors import check
from jaxfl.models.attention import attention
from jaxfl.models.gelu import gelu
from jaxfl.models.ids import check_ids, check_one_kind, embed, has_id

SPREAD = 0.02  # of weights, as the authors' code draws them
TYPES = 2  # of segments, of which a single text has the first


class Block(nn.Module):
    """Attention and two dense layers, each added to its input and normalised after that."""

    heads: int
    inner: int
    epsilon: float

    @nn.compact
    def __call__(
        self, x: Float[Array, "b n width"], seen: Bool[Array, "b n"]
    ) -> Float[Array, "b n width"]:
        """[B, n, width] -> [B, n, width]; places that are not seen are no keys."""
        width = x.shape[-1]
        spread = initializers.normal(SPREAD)
        query, key, value = (
            nn.Dense(width, kernel_init=spread, name=name)(x).reshape(*x.shape[:2], self.heads, -1)
            for name in ("query", "key", "value")
        )
        mixed = attention(query, key, value, seen[:, None, None])
        y = nn.Dense(width, kernel_init=spread, name="out")(mixed.reshape(x.shape))
        x = nn.LayerNorm(self.epsilon, name="norm1")(x + y)
        y = nn.Dense(self.inner, kernel_init=spread, name="up")(x)
        y = nn.Dense(width, kernel_init=spread, name="down")(gelu(y))
        return nn.LayerNorm(self.epsilon, name="norm2")(x + y)


class Bert(nn.Module):
    """Embeddings of ids, places and segments, blocks, and a dense layer on the first place."""

    outputs: int
    words: int
    positions: bool
    width: int
    depth: int
    heads: int
    inner: int
    length: int
    epsilon: float

    head = "head"

    @nn.compact
    def __call__(self, x, *, until_head: bool = False):
        """Ids [B, n] -> [B, outputs], or with `positions` [B, n, outputs]."""
        check_ids(x, "bert")
        check(
            x.shape[1] <= self.length,
            f"bert has places for {self.length} ids, and an example has {x.shape[1]}: cut the "
            "examples, as jaxfl prepare text --length does",
        )
        spread = initializers.normal(SPREAD)

        def table(rows: int, name: str) -> nn.Embed:
            return nn.Embed(rows, self.width, embedding_init=spread, name=name)

        places = table(self.length, "position")(jnp.arange(x.shape[1]))
        segment = table(TYPES, "segment")(jnp.zeros(1, int))
        seen = has_id(x)
        x = embed(table(self.words, "token"), x) + places[None] + segment[None]
        x = nn.LayerNorm(self.epsilon, name="norm")(x)
        for number in range(self.depth):
            x = Block(self.heads, self.inner, self.epsilon, name=f"block{number}")(x, seen)
        if not self.positions:
            pooler = nn.Dense(self.width, kernel_init=spread, name="pooler")
            x = jnp.tanh(pooler(x[:, 0]))
        if until_head:
            return x
        return nn.Dense(self.outputs, kernel_init=spread, name=self.head)(x)

    def features(self, x):
        """Ids [B, n] -> what enters the last layer, [B, width] or [B, n, width]."""
        return self(x, until_head=True)


def bert(
    outputs: int,
    vocabulary: tuple[int, ...] = (30_522,),
    positions: bool = False,
    width: int = 128,
    depth: int = 2,
    heads: int = 2,
    inner: int | None = None,
    length: int = 512,
    epsilon: float = 1e-12,
) -> nn.Module:
    """An encoder as BERT, of 2 blocks of width 128: logits of the first place, or of each one.

    Each place sees all others of its text. The first one, where BERT's tokenizer puts [CLS], passes
    one more dense layer and tanh before the head, but not with `positions`. With `--pretrained` the
    sizes are those of the weights. The default is BERT-Tiny (Turc et al., 2019,
    https://arxiv.org/abs/1908.08962); 768, 12 and 12 are BERT-Base.

    Source: Devlin et al., NAACL 2019, section 3.

    Differs: there is no dropout. All places are of the first segment.

    Args:
      outputs: logits.
      vocabulary: (number of ids,).
      positions: give logits of each place, for data with a label for each.
      width: of the embedding of an id.
      depth: blocks, one after another.
      heads: of attention, by which `width` can be divided.
      inner: outputs of the first of a block's two dense layers; None: 4 x `width`.
      length: places for which there is an embedding.
      epsilon: added to a variance.

    Raises:
      InputError: ids of several kinds, heads that do not divide the width, or targets that are ids.

    Example:
      >>> ids = jnp.zeros((2, 80), int)
      >>> jaxfl.tree.size(jax.eval_shape(bert(2).init, jax.random.key(0), ids))
      4386178
    """
    check_one_kind(vocabulary, "bert")
    check(
        width % heads == 0,
        f"width is {width} and heads is {heads}: expected a width that heads divides",
    )
    check(
        not positions or outputs != vocabulary[0],
        f"the targets are one of {outputs} ids at each place, and bert sees the whole text, the "
        "next id too: choose transformer or llama",
    )
    inner = 4 * width if inner is None else inner
    return Bert(outputs, vocabulary[0], positions, width, depth, heads, inner, length, epsilon)
