"""A decoder as Llama (Touvron et al., 2023, https://arxiv.org/abs/2302.13971)."""

import jax.numpy as jnp
from flax import linen as nn
from jax.nn import initializers
from jaxtyping import Array, Float

from jaxfl.core.errors import check
from jaxfl.models.attention import attention
from jaxfl.models.ids import at_last_id, check_ids, check_one_kind, check_tied, embed

SPREAD = 0.02


def rotate(x: Float[Array, "b n heads size"], base: float) -> Float[Array, "b n heads size"]:
    """Rotary embeddings: pairs of numbers of a head turn by angles that grow with the place.

    Of a head of size d, number i and number i + d/2 are a pair, which turns by p base^(-2i/d) at
    place p, as in Hugging Face's weights.

    Source: Su et al., RoFormer, 2021, section 3.2.2, https://arxiv.org/abs/2104.09864.

    Example:
      >>> x = jnp.ones((1, 2, 1, 2))
      >>> rotate(x, 10_000.0)[0, :, 0].round(3).tolist()
      [[1.0, 1.0], [-0.301, 1.382]]
    """
    half = x.shape[-1] // 2
    speeds = base ** (-jnp.arange(half) / half)
    angles = (jnp.arange(x.shape[1])[:, None] * speeds[None])[None, :, None]
    cos, sin = jnp.cos(angles).astype(x.dtype), jnp.sin(angles).astype(x.dtype)
    first, second = x[..., :half], x[..., half:]
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


class Block(nn.Module):
    """Causal attention and a gated layer, each on normalised inputs and added to them."""

    heads: int
    groups: int
    size: int
    inner: int
    epsilon: float
    base: float

    @nn.compact
    def __call__(self, x: Float[Array, "b n width"]) -> Float[Array, "b n width"]:
        """[B, n, width] -> [B, n, width]."""
        width = x.shape[-1]

        def dense(outputs: int, name: str) -> nn.Dense:
            spread = initializers.normal(SPREAD)
            return nn.Dense(outputs, use_bias=False, kernel_init=spread, name=name)

        y = nn.RMSNorm(self.epsilon, name="norm1")(x)
        counts = {"query": self.heads, "key": self.groups, "value": self.groups}
        query, key, value = (
            dense(count * self.size, name)(y).reshape(*x.shape[:2], count, self.size)
            for name, count in counts.items()
        )
        query, key = rotate(query, self.base), rotate(key, self.base)
        mixed = attention(query, key, value, jnp.tri(x.shape[1], dtype=bool))
        x += dense(width, "out")(mixed.reshape(*x.shape[:2], -1))
        y = nn.RMSNorm(self.epsilon, name="norm2")(x)
        y = nn.silu(dense(self.inner, "gate")(y)) * dense(self.inner, "up")(y)
        return x + dense(width, "down")(y)


class Llama(nn.Module):
    """Embeddings of ids, blocks, and one dense layer without a bias on normalised outputs."""

    outputs: int
    words: int
    positions: bool
    width: int
    depth: int
    heads: int
    groups: int
    size: int
    inner: int
    epsilon: float
    base: float
    tied: bool

    @property
    def head(self) -> str | None:
        """The head; None if it is the embedding of the ids."""
        return None if self.tied else "head"

    @nn.compact
    def __call__(self, x, *, until_head: bool = False):
        """Ids [B, n] -> [B, outputs], or with `positions` [B, n, outputs]."""
        check_ids(x, "llama")
        spread = initializers.normal(SPREAD)
        token = nn.Embed(self.words, self.width, embedding_init=spread, name="token")
        ids = x
        x = embed(token, ids)
        for number in range(self.depth):
            sizes = (self.heads, self.groups, self.size, self.inner, self.epsilon, self.base)
            x = Block(*sizes, name=f"block{number}")(x)
        x = nn.RMSNorm(self.epsilon, name="norm")(x)
        x = x if self.positions else at_last_id(ids, x)
        if until_head:
            return x
        if self.tied:
            return token.attend(x)
        return nn.Dense(self.outputs, use_bias=False, kernel_init=spread, name="head")(x)

    def features(self, x):
        """Ids [B, n] -> what enters the last layer, [B, width] or [B, n, width]."""
        return self(x, until_head=True)


def llama(
    outputs: int,
    vocabulary: tuple[int, ...] = (32_000,),
    positions: bool = False,
    width: int = 128,
    depth: int = 4,
    heads: int = 4,
    groups: int | None = None,
    size: int | None = None,
    inner: int | None = None,
    epsilon: float = 1e-5,
    base: float = 10_000.0,
    tied: bool = False,
) -> nn.Module:
    """A decoder as Llama, of 4 blocks of width 128: logits of the last id, or of each place.

    A block is causal attention with rotary embeddings, in which several heads may share keys and
    values, and a gated layer; both are on inputs that are divided by their root mean square. So the
    logits of a place depend on the ids up to it alone. With `--pretrained` the sizes are those of
    the weights.

    Source: Touvron et al., LLaMA, 2023, section 2.2; shared keys and values: Ainslie et al., GQA,
    EMNLP 2023, https://arxiv.org/abs/2305.13245.

    Args:
      outputs: logits of a place.
      vocabulary: (number of ids,).
      positions: give logits of each place, for data with a label for each.
      width: of the embedding of an id.
      depth: blocks, one after another.
      heads: of queries.
      groups: of heads that share keys and values, by which `heads` can be divided; None: no head
        shares them.
      size: of a head, an even number; None: `width` / `heads`.
      inner: outputs of the gate; None: 4 x `width`.
      epsilon: added to a mean square.
      base: of the angles of rotary embeddings.
      tied: the head is the embedding of the ids; methods that need a head refuse such a model.

    Raises:
      InputError: ids of several kinds, sizes that do not divide each other, or a tied head for
        other outputs than the ids.

    Example:
      >>> ids = jnp.zeros((2, 80), int)
      >>> model = llama(65, vocabulary=(65,), positions=True, groups=2)
      >>> jaxfl.tree.size(jax.eval_shape(model.init, jax.random.key(0), ids))
      1000832
    """
    check_one_kind(vocabulary, "llama")
    groups = heads if groups is None else groups
    size = width // heads if size is None else size
    check(
        heads % groups == 0 and size % 2 == 0,
        f"heads is {heads}, groups is {groups} and the size of a head is {size}: expected groups "
        "that divide the heads, and an even size",
    )
    check_tied(tied, outputs, vocabulary[0])
    inner = 4 * width if inner is None else inner
    sizes = (width, depth, heads, groups, size, inner)
    return Llama(outputs, vocabulary[0], positions, *sizes, epsilon, base, tied)
