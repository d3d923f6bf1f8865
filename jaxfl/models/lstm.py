"""Long short-term memory (Hochreiter and Schmidhuber, 1997).

https://doi.org/10.1162/neco.1997.9.8.1735
"""

from functools import partial
from typing import cast

import jax
import jax.numpy as jnp
from flax import linen as nn

from jaxfl.core.errors import check
from jaxfl.models.ids import check_ids, embed


def _orthogonal(
    key: jax.Array, shape: tuple[int, ...], dtype: jnp.dtype = jnp.float32
) -> jax.Array:
    """Random orthogonal weights, flax's default, of one model after another.

    XLA on a CPU of few cores can wait for ever where LAPACK decomposes the matrices of several
    models side by side (jaxlib 0.10).
    """
    weights = partial(nn.initializers.orthogonal(), shape=shape, dtype=dtype)
    return jax.custom_batching.sequential_vmap(weights)(key)


class LSTM(nn.Module):
    """Layers of an LSTM over the steps, and one dense layer on what the last step gives."""

    classes: int
    words: int | None
    width: int
    hidden: int
    layers: int
    positions: bool = False

    head = "head"

    @nn.compact
    def __call__(self, x, *, until_head: bool = False):
        """[B, steps, channel], or ids of words or characters [B, steps] -> [B, classes].

        With `positions` [B, steps, classes].
        """
        ends = None
        if self.words is None:
            check(
                x.ndim == 3 and not jnp.issubdtype(x.dtype, jnp.integer),
                f"lstm takes series [steps, channel], not {x.dtype} of shape {x.shape[1:]}: "
                "choose another model",
            )
        else:
            check_ids(x, "lstm")
            ids = x
            x = embed(nn.Embed(self.words, self.width), ids)
            # Shorter texts have -1 behind their ends, or where there is none ids of 0.
            is_marked = (ids < 0).any(axis=1, keepdims=True)
            is_text = jnp.where(is_marked, ids >= 0, ids != 0)
            ends = jnp.where(is_text, jnp.arange(ids.shape[1])[None], 0).max(axis=1)
        for _ in range(self.layers):
            # `RNN` gives the last carry too, if it is asked to.
            cell = nn.OptimizedLSTMCell(self.hidden, recurrent_kernel_init=_orthogonal)
            x = cast(jax.Array, nn.RNN(cell)(x))
        if not self.positions:
            x = x[:, -1] if ends is None else x[jnp.arange(len(x)), ends]
        return x if until_head else nn.Dense(self.classes, name=self.head)(x)

    def features(self, x):
        """[B, steps, channel] or ids [B, steps] -> what enters the last layer, [B, d].

        With `positions` [B, steps, d].
        """
        return self(x, until_head=True)


def lstm(
    classes: int,
    vocabulary: tuple[int, ...] | None = None,
    width: int = 8,
    hidden: int = 64,
    layers: int = 1,
    positions: bool = False,
) -> nn.Module:
    """An LSTM of 64 units over a series or a text; logits from the last step of its own.

    The last step of a text is the one before the first -1, or where there is none that of its last
    id other than 0, which fills up shorter texts. With `positions` the logits are those of each
    step.

    A layer of h units on c channels has 4 h (c + h + 1) parameters. With `width=8, hidden=256,
    layers=2` it is the model of LEAF's Shakespeare (https://arxiv.org/abs/1812.01097) on ids of
    characters.

    Differs: PyTorch adds two biases to each gate, flax one.

    Args:
      classes: outputs.
      vocabulary: (number of ids,) if the steps are ids of words or characters.
      width: of an id's embedding.
      hidden: units of a layer.
      layers: one after another.
      positions: give logits of each step, for data with a label for each.

    Example:
      >>> series = jnp.zeros((2, 128, 9))
      >>> jaxfl.tree.size(jax.eval_shape(lstm(6).init, jax.random.key(0), series))
      19334
    """
    check(
        vocabulary is None or len(vocabulary) == 1,
        f"lstm takes ids of one kind, not of {len(vocabulary or ())}: choose model mf, for users "
        "and items",
    )
    words = None if vocabulary is None else vocabulary[0]
    return LSTM(classes, words, width, hidden, layers, positions)
