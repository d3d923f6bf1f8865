"""A model as pure functions: plain JAX, and the models of any library that can be written so."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from jaxfl.core import tree
from jaxfl.core.errors import check
from jaxfl.core.types import Params, PRNGKey
from jaxfl.training.functions import Functions


@dataclass(frozen=True)
class Model:
    """A model of two functions, which stands wherever a flax module may stand.

    The parameters are a pytree of arrays of real numbers, of any form. What is no parameter belongs
    into the functions, as the values of a closure.

    Args:
      init: key -> the parameters of one model.
      apply: (params, x [B, *feature]) -> predictions [B, ...]. Where an example is a pytree of
        arrays, x is one; predictions may be one for an error of your own.
      train: (params, x [B, *feature], key) -> the predictions in training, for a model with
        dropout. None: as `apply`.
      features: (params, x [B, *feature]) -> what enters the head [B, d], for the methods that
        compare features. None: the model has none.
      head: a regular expression that finds the parameters of the head by their paths, for the
        methods that keep a head at the clients. None: the model names none.

    Example:
      >>> def init(key):
      ...     return {"weight": 0.1 * jax.random.normal(key, (64, 10)), "bias": jnp.zeros(10)}
      >>> def apply(params, x):
      ...     return x.reshape(len(x), 64) @ params["weight"] + params["bias"][None]
      >>> task = jaxfl.classification(jaxfl.Model(init, apply), np.zeros((8, 8)))
      >>> task.problem.apply(task.problem.init(jax.random.key(0)), jnp.zeros((5, 8, 8))).shape
      (5, 10)
    """

    init: Callable[[PRNGKey], Params]
    apply: Callable[[Params, Any], Any]
    train: Callable[[Params, Any, PRNGKey], Any] | None = None
    features: Callable[[Params, Any], Array] | None = None
    head: str | None = None


def pure_functions(model: Model) -> Functions:
    """What training and evaluation need of a model of pure functions.

    Args:
      model: any.

    Raises:
      InputError: `init` returns something else than arrays of real numbers.

    Example:
      >>> model = Model(lambda key: jnp.zeros(3), lambda params, x: x @ params)
      >>> pure_functions(model).apply(jnp.ones(3), jnp.ones((5, 3))).shape
      (5,)
    """
    _check_parameters(model)

    def init(key: PRNGKey, x: PyTree) -> Params:
        return model.init(key)

    def predict(params: Params, x: PyTree, mask: Array, key: PRNGKey) -> tuple[PyTree, None]:
        if model.train is None:
            return model.apply(params, x), None
        return model.train(params, x, key), None

    return Functions(init, model.apply, predict, model.features)


def _check_parameters(model: Model) -> None:
    """Raises an `InputError` unless all leaves are arrays of real numbers."""
    try:
        leaves, _ = jax.tree_util.tree_flatten_with_path(
            jax.eval_shape(model.init, jax.random.key(0))
        )
    except TypeError as error:
        check("valid JAX type" not in str(error), _not_pure(str(error).split("\n")[0]))
        raise
    check(bool(leaves), "the model's init returns no arrays: expected a pytree of parameters")
    for keys, leaf in leaves:
        check(
            jnp.issubdtype(leaf.dtype, jnp.floating),
            f"the parameter {tree.path(keys)} of the model has type {leaf.dtype}: expected real "
            "numbers; what training does not change belongs into the functions of the model, or "
            "into the weights of jaxfl.freeze",
        )


def _not_pure(message: Any) -> str:
    return (
        f"the model's init returns what is no array ({message:.80}): expected a pytree of arrays; "
        "keep the rest in the functions of the model, as equinox.partition does"
    )
