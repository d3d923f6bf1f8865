"""A module of flax.nnx as pure functions."""

from collections.abc import Callable
from typing import Any

import jax
from flax import nnx
from jaxtyping import PyTree

from jaxfl.core.errors import check
from jaxfl.core.types import Params, PRNGKey
from jaxfl.training.pure_model import Model


def from_nnx(
    make: Callable[[nnx.Rngs], nnx.Module] | nnx.Module,
    *,
    trained: Any = nnx.Param,
    features: str | None = None,
    head: str | None = None,
) -> Model:
    """A model of a module of flax.nnx.

    Args:
      make: rngs -> the module, which is drawn anew from each key; or a module, from whose
        parameters all clients begin. Of a module that is given, other variables than the trained
        ones are frozen: they are there once for all clients.
      trained: a filter of nnx for the variables that are trained, sent and mixed, such as
        `nnx.LoRAParam`.
      features: name of the module's method that returns what enters the head [B, d].
      head: a regular expression that finds the head's parameters by their paths.

    Raises:
      InputError: the module has batch statistics, or variables that are not trained and would be
        drawn anew in each client.

    Example:
      >>> from flax import nnx
      >>> class Net(nnx.Module):
      ...     def __init__(self, rngs):
      ...         self.hidden = nnx.Linear(64, 32, rngs=rngs)
      ...         self.out = nnx.Linear(32, 10, rngs=rngs)
      ...
      ...     def __call__(self, x):
      ...         return self.out(nnx.relu(self.hidden(x.reshape(len(x), 64))))
      >>> model = jaxfl.from_nnx(lambda rngs: Net(rngs), head="out")
      >>> task = jaxfl.classification(model, np.zeros((8, 8)))
      >>> jax.tree.map(jnp.shape, task.problem.init(jax.random.key(0)))["out"]
      {'bias': (10,), 'kernel': (32, 10)}
    """
    given = isinstance(make, nnx.Module)
    module = make if isinstance(make, nnx.Module) else nnx.eval_shape(lambda: make(nnx.Rngs(0)))
    graph, start, streams, rest = nnx.split(module, trained, nnx.RngState, ...)
    others = sorted({type(leaf).__name__ for _, leaf in nnx.to_flat_state(rest)})
    check(
        "BatchStat" not in others,
        f"{type(module).__name__} has batch statistics: expected layers without, such as "
        "GroupNorm, or a module of flax.linen, as flax.nnx.bridge.to_linen makes one",
    )
    check(
        given or not others,
        f"{type(module).__name__} has variables that are not trained ({', '.join(others)}): give "
        "the module itself, with their values, in place of the function that makes it",
    )

    def init(key: PRNGKey) -> Params:
        if isinstance(make, nnx.Module):
            return nnx.to_pure_dict(start)
        return nnx.to_pure_dict(nnx.split(make(nnx.Rngs(key)), trained, ...)[1])

    def module_of(params: Params, key: PRNGKey) -> nnx.Module:
        state = nnx.clone(start)
        nnx.replace_by_pure_dict(state, params)
        # Variables of this trace, which a later one would not let change.
        one = nnx.merge(graph, state, *nnx.clone((streams, rest)))
        nnx.reseed(one, default=key, params=key, dropout=key)
        return one

    def call(params: Params, x: PyTree, key: PRNGKey, mode: str, method: str) -> PyTree:
        one = module_of(params, key)
        getattr(one, mode)()
        return getattr(one, method)(x)

    def apply(params: Params, x: PyTree) -> PyTree:
        return call(params, x, jax.random.key(0), "eval", "__call__")

    def train(params: Params, x: PyTree, key: PRNGKey) -> PyTree:
        return call(params, x, key, "train", "__call__")

    def features_of(params: Params, x: PyTree) -> PyTree:
        return call(params, x, jax.random.key(0), "eval", str(features))

    return Model(init, apply, train, None if features is None else features_of, head)
