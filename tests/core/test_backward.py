"""Functions with a backward pass of their own have all derivatives that JAX has."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxfl.core.backward import with_backward
from jaxfl.models.convolution import block, conv, patches
from jaxfl.training import lora

RNG = np.random.default_rng(0)


def numbers(*shape):
    return jnp.asarray(RNG.normal(size=shape), jnp.float32)


def plain(x, w):
    return jnp.tanh(x @ w)


def forward(x, w):
    y = plain(x, w)
    return y, (x, w, y)


def backward(needs, grad):
    x, w, y = needs
    inside = grad * (1 - y**2)
    return inside @ w.T, x.T @ inside


ours = with_backward(forward, backward)


def squares(f):
    return lambda x, w: jnp.sum(f(x, w) ** 2)


def steps(f):
    """Three steps of training, in a scan."""

    def train(x, w):
        def step(w, _):
            return w - 0.1 * jax.grad(squares(f), 1)(x, w), None

        return jnp.sum(jax.lax.scan(step, w, length=3)[0])

    return train


X, W = numbers(3, 4), numbers(4, 5)
MANY = numbers(7, 3, 4)
BOTH = (0, 1)


@pytest.mark.parametrize(
    "derivative",
    [
        lambda f: jax.grad(squares(f), BOTH)(X, W),
        lambda f: jax.grad(squares(f), 1)(X, W),
        lambda f: jax.jvp(squares(f), (X, W), (W[:3, :4], W)),
        lambda f: jax.hessian(squares(f), BOTH)(X, W),
        lambda f: jax.jacrev(jax.jacfwd(squares(f), BOTH), BOTH)(X, W),
        lambda f: jax.jacrev(jax.grad(squares(f), BOTH), BOTH)(X, W),
        lambda f: jax.vmap(jax.grad(squares(f), BOTH), (0, None))(MANY, W),
        lambda f: jax.grad(lambda w: jnp.sum(jax.vmap(f, (0, None))(MANY, w)))(W),
        lambda f: jax.vmap(lambda x: jax.jvp(squares(f), (x, W), (x, W)))(MANY),
        lambda f: jax.jvp(steps(f), (X, W), (X, W)),
        lambda f: jax.vmap(jax.grad(steps(f), BOTH), (0, None))(MANY, W),
        lambda f: jax.linearize(lambda w: squares(f)(X, w), W)[1](W),
    ],
)
def test_derivatives_are_those_of_the_plain_function(derivative):
    found, expected = (jax.jit(derivative, static_argnums=0)(f) for f in (ours, plain))
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4), found, expected
    )


def test_the_gradient_is_that_of_the_backward_pass():
    twice = with_backward(lambda x: (x**2, (x,)), lambda needs, grad: (4 * needs[0] * grad,))
    assert jax.grad(twice)(3.0) == 12
    assert jax.jacfwd(twice)(3.0) == 6
    assert jax.grad(lambda x: twice(x) * x)(3.0) == 12 * 3 + 9


PADDING = ((1, 1), (0, 1))
WINDOW = conv.Window((1, 1), PADDING, (1, 1))


@pytest.mark.parametrize(
    ("f", "shapes"),
    [
        (lambda x, k: conv._conv(x, k, WINDOW, None, "auto"), [(2, 6, 5, 3), (3, 2, 3, 4)]),
        (lambda x, k: conv._conv(x, k, WINDOW, None, "auto"), [(4, 8, 8, 32), (3, 3, 32, 33)]),
        (lambda x, k: patches.convolution(x, k, *WINDOW), [(2, 6, 5, 3), (3, 2, 3, 4)]),
        (conv.max_pool, [(2, 6, 5, 3)]),
        (
            lambda x, k, b: block.conv_relu_pool(x, k, b, PADDING),
            [(2, 6, 5, 3), (3, 2, 3, 4), (4,)],
        ),
        (lambda x, k, b: patches.block(x, k, b, PADDING), [(2, 6, 5, 3), (3, 2, 3, 4), (4,)]),
        (lora.product, [(5, 4, 2), (2, 3)]),
        (lora.product, [(5, 4, 3), (3, 2)]),
    ],
    ids=["conv", "winograd", "patches", "pool", "block", "block of patches", "out", "in"],
)
def test_forward_mode_is_the_gradient_along_a_direction(f, shapes):
    arrays, along = (tuple(numbers(*shape) for shape in shapes) for _ in range(2))

    def loss(*arrays):
        return jnp.sum(jnp.sin(f(*arrays)))

    places = tuple(range(len(shapes)))
    both = jax.jit(lambda a, d: (jax.grad(loss, places)(*a), jax.jvp(loss, a, d)[1]))
    grads, forwards = both(arrays, along)
    expected = sum(jnp.vdot(grad, direction) for grad, direction in zip(grads, along, strict=True))
    np.testing.assert_allclose(forwards, expected, rtol=1e-4)
    assert abs(expected) > 0.1
