"""A decoder of causal self-attention as GPT-2's (Radford et al., 2019).

https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf
"""

import jax.numpy as jnp
from flax import linen as nn
from jax.nn import initializers
from jaxtyping import Array, Float

from jaxfl.core.errors import check
from jaxfl.models.attention import attention
from jaxfl.models.ids import at_last_id, check_ids, check_one_kind, check_tied, embed

# GPT-2's, of weights and of the number that is added to a variance.
SPREAD = 0.02
EPSILON = 1e-5


class Block(nn.Module):
    """Causal self-attention and two dense layers, each on normalised inputs and added to them."""

    heads: int
    # of the weights that add to the inputs
    spread: float

    @nn.compact
    def __call__(self, x: Float[Array, "b n width"]) -> Float[Array, "b n width"]:
        """[B, n, width] -> [B, n, width]."""
        width = x.shape[-1]
        inner = initializers.normal(SPREAD)
        outer = initializers.normal(self.spread)
        y = nn.LayerNorm(EPSILON, name="norm1")(x)
        qkv = nn.Dense(3 * width, kernel_init=inner, name="qkv")(y)
        # Queries, keys and values, each of all heads one after the other.
        query, key, value = (
            one.reshape(*x.shape[:2], self.heads, -1) for one in jnp.split(qkv, 3, axis=-1)
        )
        y = attention(query, key, value, jnp.tri(x.shape[1], dtype=bool)).reshape(x.shape)
        x += nn.Dense(width, kernel_init=outer, name="out")(y)
        y = nn.LayerNorm(EPSILON, name="norm2")(x)
        y = nn.gelu(nn.Dense(4 * width, kernel_init=inner, name="up")(y))
        return x + nn.Dense(width, kernel_init=outer, name="down")(y)


class Transformer(nn.Module):
    """Embeddings of ids and of positions, blocks, and one dense layer on normalised outputs."""

    outputs: int
    words: int
    positions: bool
    width: int
    depth: int
    heads: int
    length: int | None
    tied: bool
    remat: bool

    @property
    def head(self) -> str | None:
        """The head; None if it is the embedding of the ids."""
        return None if self.tied else "head"

    @nn.compact
    def __call__(self, x, *, until_head: bool = False):
        """Ids [B, n] -> [B, outputs], or with `positions` [B, n, outputs]."""
        check_ids(x, "transformer")
        length = x.shape[1]
        rows = length if self.length is None else self.length
        check(
            length <= rows,
            f"transformer has positions for {rows} ids, and an example has {length}: raise its "
            "length, or cut the examples",
        )
        normal = initializers.normal(SPREAD)
        token = nn.Embed(self.words, self.width, embedding_init=normal, name="token")
        position = nn.Embed(rows, self.width, embedding_init=normal, name="position")
        ids = x
        x = embed(token, ids) + position(jnp.arange(length))[None]
        block = nn.remat(Block) if self.remat else Block
        for number in range(self.depth):
            # Two layers of each block add to the same sum, whose spread is to be the same.
            spread = SPREAD / (2 * self.depth) ** 0.5
            x = block(self.heads, spread, name=f"block{number}")(x)
        x = nn.LayerNorm(EPSILON, name="norm")(x)
        x = x if self.positions else at_last_id(ids, x)
        if until_head:
            return x
        if self.tied:
            return token.attend(x)
        return nn.Dense(self.outputs, kernel_init=normal, name="head")(x)

    def features(self, x):
        """Ids [B, n] -> what enters the last layer, [B, width] or [B, n, width]."""
        return self(x, until_head=True)


def transformer(
    outputs: int,
    vocabulary: tuple[int, ...] = (10_000,),
    positions: bool = False,
    width: int = 128,
    depth: int = 4,
    heads: int = 4,
    length: int | None = None,
    tied: bool = False,
    remat: bool = False,
) -> nn.Module:
    """A decoder as GPT-2's, of 4 blocks of width 128: logits of the last id, or of each one.

    A block is causal self-attention of `heads` heads and two dense layers with tanh-GELU, the first
    of 4 x `width`; a LayerNorm is before each of the two, and one before the head. So the logits of
    a position depend on the ids up to it alone. V ids of texts of n have (V + n) width parameters,
    a block 12 width^2 + 13 width. With `width=768, depth=12, heads=12, length=1024, tied=True` it
    is the smallest GPT-2.

    Source: Radford et al., Language Models are Unsupervised Multitask Learners, 2019, section 2.3.

    Differs: there is no dropout, and without `tied` the head has weights and a bias of its own.

    Args:
      outputs: logits of a position.
      vocabulary: (number of ids,).
      positions: give logits of each position, for data with a label for each.
      width: of the embedding of an id.
      depth: blocks, one after another.
      heads: of attention, by which `width` can be divided.
      length: rows of the table of positions, of which the first n are used. None: the length of the
        example that the model is made for.
      tied: the head is the embedding of the ids, without a bias; methods that need a head refuse
        such a model.
      remat: compute each block again in the backward pass, so that memory holds one block at a
        time. Results are the same up to rounding.

    Raises:
      InputError: ids of several kinds, heads that do not divide the width, or a tied head for other
        outputs than the ids.

    Example:
      >>> ids = jnp.zeros((2, 80), int)
      >>> model = transformer(65, vocabulary=(65,), positions=True)
      >>> jaxfl.tree.size(jax.eval_shape(model.init, jax.random.key(0), ids))
      820289
    """
    check_one_kind(vocabulary, "transformer")
    check(
        width % heads == 0,
        f"width is {width} and heads is {heads}: expected a width that heads divides, such as "
        f"{heads * max(1, width // heads)}",
    )
    check_tied(tied, outputs, vocabulary[0])
    return Transformer(outputs, vocabulary[0], positions, width, depth, heads, length, tied, remat)
