"""The convolution of each channel is lax's grouped one, forward and backward."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxfl.core import target
from jaxfl.models.convolution.conv import NHWC
from jaxfl.models.convolution.depthwise import depthwise

RNG = np.random.default_rng(0)
CHANNELS = 3
IMAGES = jnp.asarray(RNG.normal(size=(2, 9, 6, CHANNELS)), jnp.float32)


def grouped(images, kernel, strides, padding):
    return lax.conv_general_dilated(
        images, kernel, strides, padding, dimension_numbers=NHWC, feature_group_count=CHANNELS
    )


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize(("sides", "strides"), [((3, 3), (1, 1)), ((5, 3), (2, 1))])
def test_it_equals_lax_forward_and_backward(sides, strides, padding):
    check(IMAGES, sides, strides, padding)


@pytest.mark.parametrize("stride", [1, 2])
def test_a_kernel_larger_than_the_image_meets_padding(stride):
    check(IMAGES[:, :2, :2], (5, 5), (stride, stride), "SAME")


def check(images, sides, strides, padding):
    kernel = jnp.asarray(RNG.normal(size=(*sides, 1, CHANNELS)), jnp.float32)

    def loss(convolution, images, kernel):
        outputs = convolution(images, kernel, strides, padding)
        return jnp.sin(outputs).sum(), outputs

    for convolution in (depthwise, grouped):
        function = jax.jit(
            jax.value_and_grad(loss, (1, 2), has_aux=True), static_argnames=("convolution",)
        )
        ((_, outputs), grads) = function(convolution, images, kernel)
        if convolution is depthwise:
            ours = outputs, grads
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4), ours, (outputs, grads)
    )


def test_other_platforms_take_that_of_lax(monkeypatch):
    kernel = jnp.ones((3, 3, 1, CHANNELS))
    ways = {}
    for platform in ("cpu", "gpu"):
        monkeypatch.setattr(target, "platform", lambda name=platform: name)
        ways[platform] = str(jax.make_jaxpr(lambda x: depthwise(x, kernel, (1, 1), "SAME"))(IMAGES))
    assert "conv_general_dilated" in ways["gpu"]
    assert "conv_general_dilated" not in ways["cpu"]
