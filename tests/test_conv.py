import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from jax import lax

from jaxfl.models.conv import conv, max_pool

NUMBERS = {"dimension_numbers": ("NHWC", "HWIO", "NHWC")}


def images(key, shape):
    return jax.random.normal(jax.random.key(key), shape)


@pytest.mark.parametrize("padding", ["SAME", "VALID", ((1, 0), (2, 1))])
@pytest.mark.parametrize("kernel", [(3, 3), (5, 2), (1, 1)])
def test_equals_lax_forward_and_backward(padding, kernel):
    x, w = images(0, (2, 7, 6, 3)), images(1, (*kernel, 3, 4))

    def loss(f, x, w):
        return jnp.sum(jnp.sin(f(x, w, (1, 1), padding, **NUMBERS)))

    ours, theirs = (jax.value_and_grad(loss, (1, 2))(f, x, w) for f in (conv, lax.conv_general_dilated))
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "options",
    [{"window_strides": (2, 2)}, {"rhs_dilation": (2, 1)}, {"lhs_dilation": (1, 2)}, {"feature_group_count": 3}],
    ids=str,
)
def test_all_else_is_laxs(options):
    options = {"window_strides": (1, 1), "padding": ((0, 0), (1, 1))} | options | NUMBERS
    x, w = images(0, (2, 9, 9, 3)), images(1, (3, 3, 1 if "feature_group_count" in options else 3, 6))
    np.testing.assert_array_equal(conv(x, w, **options), lax.conv_general_dilated(x, w, **options))


@pytest.mark.parametrize("shape", [(2, 4, 6, 3), (1, 5, 7, 2)])
def test_pooling_equals_flax(shape):
    x = images(2, shape)
    np.testing.assert_array_equal(max_pool(x), nn.max_pool(x, (2, 2), (2, 2)))
