"""How many rows an example has in the products of a module's dense layers."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from flax import linen as nn


@contextmanager
def dense_rows() -> Iterator[list[int]]:
    """A list of the rows in each dense layer that is called in the context, for one example.

    A transformer has a row for each token. A model with a recurrence has one row, whatever the
    layers around it have: its products have a row for each example, in each of its steps.

    Example:
      >>> with dense_rows() as rows:
      ...     _ = nn.Dense(2).init(jax.random.key(0), jnp.ones((1, 7, 3)))
      >>> rows
      [7]
    """
    rows: list[int] = []
    recurrent = False

    def record(call: Any, arguments: tuple, named: dict, context: Any) -> Any:
        nonlocal recurrent
        y = call(*arguments, **named)
        layer = context.module
        recurrent |= isinstance(layer, nn.RNNCellBase)
        if context.method_name == "__call__" and isinstance(layer, nn.Dense | nn.DenseGeneral):
            rows.append(y.size // int(np.prod(layer.features)))
        return y

    with nn.intercept_methods(record):
        yield rows
    if recurrent:
        rows[:] = [1]
