"""The parameters of a model, without the running statistics of BatchNorm.

By parameters alone models are compared: whatever looks at similarities, distances, lengths or
penalties takes `trainable` of them, as the kernels of `jaxfl.kernels` do by themselves. Running
statistics move far from where they start, and by the same steps in all clients.
"""

from typing import Any

from jaxtyping import PyTree

from jaxfl.core import tree

# flax's name of the collection
STATISTICS = "batch_stats"


def of_statistics(path: str) -> bool:
    """Whether the path of a leaf is that of a statistic.

    Example:
      >>> of_statistics("batch_stats/BatchNorm_0/mean")
      True
    """
    return STATISTICS in path.split("/")


def trainable(model: PyTree) -> Any:
    """The trainable part of a model: None in place of each statistic, which JAX counts as no leaf.

    Args:
      model: anything that contains models, or stacks of them.

    Example:
      >>> parts = trainable({"params": {"bias": jnp.ones(2)}, "batch_stats": {"mean": jnp.ones(1)}})
      >>> parts["batch_stats"], parts["params"]["bias"].tolist()
      ({'mean': None}, [1.0, 1.0])
    """
    _, rest = tree.split(model, of_statistics)
    return rest
