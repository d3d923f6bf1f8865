"""Which labels a client's model predicts: whether all its examples get one, though they differ."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from jaxfl.simulation.score_functions import Number, Weight, flat_labels

Ends = tuple[Array | np.int32, Array | np.int32]


class LabelRange(NamedTuple):
    """The lowest and the highest label of examples, as predicted and as they are."""

    predicted: Ends
    occurring: Ends

    def join(self, other: "LabelRange") -> "LabelRange":
        """That of the examples of both."""
        pairs = zip(self, other, strict=True)
        return LabelRange(*((jnp.minimum(a[0], b[0]), jnp.maximum(a[1], b[1])) for a, b in pairs))

    @property
    def one_label(self) -> Number:
        """1 if several labels occur and one is predicted, 0 if several are; NaN if one occurs."""
        one = (self.predicted[0] == self.predicted[1]).astype(jnp.float32)
        return jnp.where(self.occurring[0] < self.occurring[1], one, jnp.nan)


# Of no examples, or of examples without labels.
NO_LABELS = LabelRange(*2 * [(np.int32(2**31 - 1), np.int32(-1))])


def label_range(predictions: PyTree, y: PyTree, weight: Weight) -> LabelRange:
    """The range of the labels of examples; `NO_LABELS` where predictions are no logits.

    Example:
      >>> logits = jnp.array([[2.0, 1.0], [3.0, 2.0]])
      >>> labels = label_range(logits, jnp.array([0, 1]), jnp.ones(2))
      >>> [low.item() for low, high in labels], [high.item() for low, high in labels]
      ([0, 0], [0, 1])
    """
    if not (isinstance(predictions, Array) and isinstance(y, Array)):
        return NO_LABELS
    are_logits = predictions.ndim == y.ndim + 1 and predictions.shape[-1] > 1
    if not are_logits or y.dtype.kind not in "iu":
        return NO_LABELS
    logits, y, weight = flat_labels(predictions, y, weight)

    def ends(labels: Array, none: Ends) -> Ends:
        labels = labels.astype(jnp.int32)
        low, high = (jnp.where(weight > 0, labels, end) for end in none)
        return low.min(), high.max()

    return LabelRange(ends(logits.argmax(axis=-1), NO_LABELS[0]), ends(y, NO_LABELS[1]))


def one_label(predictions: PyTree, y: PyTree, weight: Weight) -> Number:
    """Whether all examples get one label, though they have several: 1 if so, else 0.

    NaN where the examples have one label, or the predictions are no logits.

    Example:
      >>> logits = jnp.array([[2.0, 1.0], [3.0, 2.0]])
      >>> one_label(logits, jnp.array([0, 1]), jnp.ones(2)).item()
      1.0
    """
    return label_range(predictions, y, weight).one_label
