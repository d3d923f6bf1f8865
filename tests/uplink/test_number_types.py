"""Every uplink in float64 and in bfloat16, without compiling anything."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxfl.uplink import ATTACKS, attack, clip_to_median, deduplicate, gaussian, quantise, top_k

C = 5
FEW = np.arange(C) < 2
UPLINKS = {
    **{name: attack(name, FEW) for name in ATTACKS},
    "clip_to_median": clip_to_median,
    "deduplicate": deduplicate(),
    "gaussian": gaussian(1.0, 0.1),
    "quantise": quantise(8),
    "top_k": top_k(0.5),
}


@pytest.mark.parametrize(
    ("dtype", "x64"), [("float32", True), ("float64", True), ("bfloat16", False)]
)
def test_an_uplink_keeps_the_types_of_models(dtype, x64):
    with jax.enable_x64(x64):
        models = {"kernel": jnp.ones((C, 3, 2), dtype), "bias": jnp.ones((C, 2), dtype)}
        for name, uplink in UPLINKS.items():
            try:
                received = jax.eval_shape(
                    uplink, jax.random.key(0), models, models, jnp.arange(C, dtype=jnp.int32)
                )
            except Exception as error:
                raise AssertionError(name) from error
            assert {x.dtype for x in jax.tree.leaves(received)} == {jnp.dtype(dtype)}, name
