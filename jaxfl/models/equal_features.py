"""Models whose features have one size, so that clients of different architectures share them."""

import inspect

import jax
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Float, PyTree

from jaxfl.core.errors import check


class EqualFeatures(nn.Module):
    """A model up to its head, its features averaged to `size` of them, and a new head."""

    body: nn.Module
    size: int
    outputs: int

    head = "head"

    @nn.compact
    def __call__(self, x):
        """[B, *feature] -> [B, outputs]."""
        return nn.Dense(self.outputs, name=self.head)(self.features(x))

    def features(self, x):
        """[B, *feature] -> what enters the last layer [B, size]."""
        features = self.body.features(x)
        return features @ averages(features.shape[-1], self.size)


def averages(width: int, size: int) -> Float[np.ndarray, "width size"]:
    """The matrix that makes `size` numbers of `width`, each the mean of neighbours.

    Number i is the mean of those from floor(i width / size) to ceil((i + 1) width / size), as the
    adaptive mean pooling of PyTorch has it.

    Example:
      >>> averages(3, 2).T.tolist()
      [[0.5, 0.5, 0.0], [0.0, 0.5, 0.5]]
    """
    matrix = np.zeros((width, size), np.float32)
    for i in range(size):
        begin, end = i * width // size, -(-(i + 1) * width // size)
        matrix[begin:end, i] = 1 / (end - begin)
    return matrix


def equal_features(
    models: dict[str, nn.Module], example: PyTree, outputs: int
) -> dict[str, nn.Module]:
    """The models, with features of one size: that of the model which has the fewest.

    Models with more get a head of their own on the means of neighbouring features
    (`EqualFeatures`), as HtFLlib does with a size that one chooses. So clients of different
    architectures can share prototypes, heads and graphs over them. A model without features stays
    as it is.

    Args:
      models: flax modules by name; with `features` for this.
      example: one input [*feature], or its shape.
      outputs: logits or numbers of the models.

    Raises:
      InputError: a model with more features than another behaves differently in training.

    Example:
      >>> models = {"small": jaxfl.models.mlp(3, hidden=(8,)), "large": jaxfl.models.mlp(3)}
      >>> equal = equal_features(models, jnp.zeros(4), 3)
      >>> model = equal["large"].init(jax.random.key(0), jnp.zeros((1, 4)))
      >>> model["params"]["head"]["kernel"].shape
      (8, 3)
    """
    sizes = {name: _size(model, example) for name, model in models.items()}
    known = [size for size in sizes.values() if size]
    smallest = min(known, default=0)

    def one(name: str, model: nn.Module) -> nn.Module:
        if sizes[name] in (0, smallest):
            return model
        check(
            "train" not in inspect.signature(type(model).__call__).parameters,
            f"the features of {name} are {sizes[name]}, those of another model {smallest}, and a "
            "model with `train` is not changed: give models whose features have one size",
        )
        return EqualFeatures(model, smallest, outputs)

    return {name: one(name, model) for name, model in models.items()}


def _size(model: nn.Module, example: PyTree) -> int:
    """The number of features of a model; 0: it has none."""
    if not callable(getattr(model, "features", None)):
        return 0

    def shape(x: Array) -> jax.ShapeDtypeStruct:
        # Models see bytes as fractions.
        return jax.ShapeDtypeStruct((1, *x.shape), "float32" if x.dtype == np.uint8 else x.dtype)

    batch = jax.tree.map(shape, example)

    def features(x: PyTree) -> Array:
        return model.init_with_output(jax.random.key(0), x, method="features")[0]

    return jax.eval_shape(features, batch).shape[-1]
