"""Every kernel in float64 and in bfloat16, without compiling anything."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from claims import Clients
from claims_graphs import TABLE as GRAPHS
from claims_models import TABLE as MODELS

TABLE = GRAPHS + MODELS
# The type of the models, whether JAX has float64, and the narrowest type of a result.
TYPES = [
    ("float32", True, "float32"),
    ("float64", True, "float64"),
    ("bfloat16", False, "bfloat16"),
]


def check_types(kernel, dtype, least):
    rng = np.random.default_rng(0)
    clients = Clients(
        jnp.asarray(rng.normal(size=(5, 12)), dtype),
        jnp.arange(5, dtype=jnp.int32),
        jnp.arange(5, dtype=jnp.int32) + 1,
        jnp.ones(5, bool),
    )
    results = jax.tree.leaves(jax.eval_shape(kernel.of, clients))
    for result in results:
        if jnp.issubdtype(result.dtype, jnp.floating):
            assert jnp.promote_types(result.dtype, least) == result.dtype


@pytest.mark.long(every=3)
@pytest.mark.parametrize(("dtype", "x64", "least"), TYPES, ids=[t[0] for t in TYPES])
def test_kernels_take_models_of_other_types_and_give_no_narrower_one(dtype, x64, least):
    with jax.enable_x64(x64):
        for kernel in TABLE:
            try:
                check_types(kernel, dtype, least)
            except Exception as error:
                raise AssertionError(kernel.name) from error
