"""The functions of a model of whatever kind."""

from typing import Any

from flax import linen as nn
from jaxtyping import PyTree

from jaxfl.core.errors import check
from jaxfl.core.options import checked
from jaxfl.training import flax_model
from jaxfl.training.frozen import Frozen, frozen_functions
from jaxfl.training.functions import Functions
from jaxfl.training.lora import Lora, lora_functions
from jaxfl.training.pure_model import Model, pure_functions

AnyModel = nn.Module | Model | Frozen | Lora


@checked
def functions_of(model: Any, example: PyTree, statistics: flax_model.Statistics) -> Functions:
    """The functions of a model.

    Args:
      model: a flax module, a `Model`, or one of these with adapters or frozen weights.
      example: the shape of one input [1, *feature] of the model, or a pytree of shapes.
      statistics: how batch statistics of a flax module are handled, see `flax_model`.

    Raises:
      InputError: the model is something else, or it is one that its own functions refuse.

    Example:
      >>> module = nn.Dense(2)
      >>> functions = functions_of(module, jax.ShapeDtypeStruct((1, 3), "float32"), "averaged")
      >>> functions.whole_batch
      False
    """
    if isinstance(model, Frozen):
        return frozen_functions(model, functions_of(model.model, example, statistics), example)
    if isinstance(model, Lora):
        return lora_functions(model, functions_of(model.module, example, statistics), example)
    if isinstance(model, Model):
        return pure_functions(model)
    check(
        isinstance(model, nn.Module),
        f"the model is a {type(model).__module__}.{type(model).__name__}: expected a module of "
        "flax.linen, or jaxfl.Model(init, apply); jaxfl.from_nnx makes one of a module of flax.nnx",
    )
    return flax_model.functions(model, example, statistics)


def head_of_model(model: Any) -> str | None:
    """The regular expression that finds the head's parameters by path; None: there is none.

    Example:
      >>> head_of_model(Frozen(jaxfl.models.lenet(10), {}, "Dense_1"))
      'Dense_2'
    """
    if isinstance(model, Frozen):
        return head_of_model(model.model)
    if isinstance(model, Lora):
        return head_of_model(model.module)
    return getattr(model, "head", None) or None
