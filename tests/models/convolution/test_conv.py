from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from jax import lax
from toys import close, equal, federation, run

import jaxfl
from jaxfl.algorithms import fedavg, local, pfedgraph
from jaxfl.core import target
from jaxfl.models import cnn, lenet
from jaxfl.models.convolution import patches, tile_plan
from jaxfl.models.convolution.block import conv_relu_pool
from jaxfl.models.convolution.conv import WIDE, conv, max_pool
from jaxfl.models.mlp import mlp

NUMBERS = {"dimension_numbers": ("NHWC", "HWIO", "NHWC")}


@pytest.fixture(scope="module", autouse=True)
def as_shipped():
    """Results are compared closely, so programs are compiled with the options of a user."""
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", True)


def images(seed, shape):
    """Drawn by NumPy: compiling JAX's normal distribution for each shape takes many seconds."""
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def agree(ours, theirs, tolerance=1e-5):
    """A loss and its gradients are equal up to the rounding of float32.

    The loss is a sum of about a thousand sines, of either sign, each rounded to 1.2e-7: it may be
    much smaller than its terms, so its error is not relative to it.
    """
    np.testing.assert_allclose(ours[0], theirs[0], atol=10 * tolerance)
    for a, b in zip(ours[1], theirs[1], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=tolerance * float(jnp.abs(b).max()))


@pytest.mark.long(every=4)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"padding": "SAME"},
        {"padding": ((1, 0), (2, 1))},
        {"window_strides": (2, 3)},
        {"window_strides": (2, 2), "padding": "SAME"},
        {"rhs_dilation": (2, 1)},
        {"rhs_dilation": (2, 2), "window_strides": (1, 2), "padding": "SAME"},
    ],
    ids=str,
)
@pytest.mark.parametrize("kernel", [(3, 3), (5, 2), (1, 1)])
def test_equals_lax_forward_and_backward(options, kernel):
    options = {"window_strides": (1, 1), "padding": "VALID"} | options | NUMBERS
    x = images(0, (2, 11, 9, 3))
    w = images(1, (*kernel, 3, 4))

    def loss(f, x, w):
        return jnp.sum(jnp.sin(f(x, w, **options)))

    ours, theirs = (
        jax.jit(jax.value_and_grad(partial(loss, f), (0, 1)))(x, w)
        for f in (conv, lax.conv_general_dilated)
    )
    agree(ours, theirs)


@pytest.mark.parametrize(
    ("size", "channels"),
    [((7, 8), 16), ((7, 8), WIDE[4]), pytest.param((8, 6), WIDE[2], marks=pytest.mark.slow)],
)
@pytest.mark.parametrize("kernel", [(3, 3), pytest.param((2, 5), marks=pytest.mark.slow)])
@pytest.mark.parametrize("padding", ["SAME", "VALID", ((4, 0), (2, 6))], ids=str)
def test_many_channels_equal_lax(size, channels, kernel, padding):
    """Row by row, and 3x3 kernels also by Winograd's algorithm in tiles of 4x4 and of 2x2."""
    x = images(0, (4, *size, channels))
    w = images(1, (*kernel, channels, channels + 1)) / channels**0.5

    def loss(f, x, w):
        return 1e3 * jnp.mean(jnp.sin(f(x, w, (1, 1), padding, **NUMBERS)))

    ours, theirs = (
        jax.jit(jax.value_and_grad(partial(loss, f), (0, 1)))(x, w)
        for f in (conv, lax.conv_general_dilated)
    )
    agree(ours, theirs)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "kernel", "padding"),
    [
        ((3, 12, 10, 2), (5, 5, 2, 3), "VALID"),
        ((2, 9, 8, 2), (4, 3, 2, 5), "SAME"),
        # Winograd's algorithm, in tiles of 2x2 and of 4x4.
        ((1, 9, 8, 16), (3, 3, 16, 16), "SAME"),
        ((2, 8, 11, 17), (3, 3, 17, 16), "VALID"),
    ],
)
def test_the_fused_block_equals_its_parts(shape, kernel, padding):
    x = images(0, shape)
    w = images(1, kernel)
    b = images(2, kernel[3:])
    if kernel[2] == 2:
        # Equal patches make ties. Winograd's algorithm would round them differently.
        x = jnp.round(2 * x) / 2
    pads = tuple(map(tuple, lax.padtype_to_pads(shape[1:3], kernel[:2], (1, 1), padding)))

    def parts(x, w, b):
        y = lax.conv_general_dilated(x, w, (1, 1), padding, precision="highest", **NUMBERS)
        return nn.max_pool(nn.relu(y + b[None, None, None]), (2, 2), (2, 2))

    def loss(f, *arguments):
        return jnp.sum(jnp.sin(f(*arguments)))

    ours, theirs = (
        jax.jit(jax.value_and_grad(partial(loss, f), (0, 1, 2)))(x, w, b)
        for f in (partial(conv_relu_pool, padding=pads), parts)
    )
    agree(ours, theirs, 2e-5)


class Stock(nn.Module):
    """`cnn` written with flax's own layers; it takes the same parameters."""

    @nn.compact
    def __call__(self, x):
        for i, width in enumerate((16, 32)):
            x = nn.max_pool(
                nn.relu(nn.Conv(width, (3, 3), name=f"ConvReluPool_{i}")(x)), (2, 2), (2, 2)
            )
        x = nn.relu(nn.Dense(64)(x.reshape(x.shape[0], -1)))
        return nn.Dense(3)(x)


@pytest.mark.slow
def test_a_run_with_the_fused_layers_equals_a_run_with_flaxs_layers():
    rng = np.random.default_rng(0)
    xs = [rng.normal(size=(30, 8, 8, 1)).astype(np.float32) for _ in range(3)]
    data = federation(xs, [rng.integers(0, 3, 30).astype(np.int32) for _ in xs])
    options = {"batch_size": 8, "steps": 4, "optimizer": jaxfl.sgd(0.1)}
    tasks = [
        jaxfl.classification(model, jnp.zeros((8, 8, 1)), **options) for model in (cnn(3), Stock())
    ]
    state = pfedgraph(tasks[0]).init(jax.random.key(0), data.train)
    ours, theirs = (run(pfedgraph(task), data, 2, state=state)[:2] for task in tasks)
    close(ours, theirs, 1e-5)


def test_weights_that_differ_by_client_in_a_loop():
    """The convolution is called under `vmap` inside `scan`, as in local training."""
    x = images(0, (4, 2, 8, 8, 3))
    w = images(1, (4, 3, 3, 3, 5))

    def train(f, x, w):
        def step(w, _):
            gradient = jax.grad(lambda w: jnp.mean(jnp.tanh(f(x, w, (1, 1), "SAME", **NUMBERS))))(w)
            return w - 0.1 * gradient, None

        return lax.scan(step, w, None, length=3)[0]

    ours, theirs = (
        jax.jit(jax.vmap(partial(train, f)))(x, w) for f in (conv, lax.conv_general_dilated)
    )
    np.testing.assert_allclose(ours, theirs, atol=1e-5)


@pytest.mark.parametrize(
    "options",
    [
        {"lhs_dilation": (1, 2)},
        {"feature_group_count": 3},
        {"padding": ((-1, 0), (0, 0))},
        {"preferred_element_type": jnp.float32},
        {"dimension_numbers": ("NHWC", "HWIO", "NCHW")},
    ],
    ids=str,
)
def test_other_convolutions_are_left_to_lax(options):
    options = {"window_strides": (1, 1), "padding": ((0, 0), (1, 1))} | NUMBERS | options
    x = images(0, (2, 9, 9, 3))
    w = images(1, (3, 3, 1 if "feature_group_count" in options else 3, 6))
    np.testing.assert_array_equal(conv(x, w, **options), lax.conv_general_dilated(x, w, **options))


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(2, 4, 6, 3), (1, 5, 7, 2)])
def test_pooling_equals_flax_forward_and_backward(shape):
    # Rounding makes ties.
    x = jnp.round(2 * images(2, shape)) / 2

    def loss(pool, x):
        return jnp.sum(jnp.sin(pool(x)) * images(3, pool(x).shape))

    ours = jax.value_and_grad(partial(loss, max_pool))(x)
    theirs = jax.value_and_grad(partial(loss, lambda x: nn.max_pool(x, (2, 2), (2, 2))))(x)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("shape", "classes", "parameters"),
    [((32, 32, 3), 10, 62_006), ((32, 32, 3), 100, 69_656), ((28, 28, 1), 10, 44_426)],
)
def test_lenet_has_the_papers_number_of_parameters(shape, classes, parameters):
    params = jax.eval_shape(lenet(classes).init, jax.random.key(0), jnp.zeros((1, *shape)))
    assert sum(x.size for x in jax.tree.leaves(params)) == parameters


@pytest.mark.slow(seconds=18)
@pytest.mark.parametrize("micro", [None, 4])
def test_padding_changes_no_bit_of_a_convolutional_model(micro):
    rng = np.random.default_rng(0)
    xs = [rng.normal(size=(n, 8, 8, 1)).astype(np.float32) for n in (40, 21, 33)]
    ys = [rng.integers(0, 3, len(x)).astype(np.int32) for x in xs]
    task = jaxfl.classification(cnn(3), jnp.zeros((8, 8, 1)), batch_size=32, micro=micro, epochs=2)
    algorithm = local(task)
    lean, padded = (run(algorithm, federation(xs, ys, pad, rubbish=1e3), 2)[:2] for pad in (0, 13))
    equal(lean, padded)


@pytest.mark.slow
@pytest.mark.parametrize(
    "model", [mlp(3, hidden=(8,)), pytest.param(cnn(3), marks=pytest.mark.slow(seconds=24))]
)
def test_bfloat16_computes_in_sixteen_bits_and_keeps_parameters_in_thirty_two(model):
    rng = np.random.default_rng(0)
    xs = [rng.normal(size=(30, 8, 8, 1)).astype(np.float32) for _ in range(3)]
    data = federation(xs, [(x.mean(axis=(1, 2, 3)) > 0).astype(np.int32) for x in xs])
    options = {"batch_size": 8, "steps": 4, "optimizer": jaxfl.sgd(0.1)}
    full, short = (
        run(
            fedavg(jaxfl.classification(model, jnp.zeros((8, 8, 1)), compute=compute, **options)),
            data,
            2,
        )
        for compute in ("float32", "bfloat16")
    )
    for a, b in zip(jax.tree.leaves(full[0]), jax.tree.leaves(short[0]), strict=True):
        assert a.dtype == b.dtype == jnp.float32
    np.testing.assert_allclose(short[1].loss, full[1].loss, rtol=0.05)
    assert (short[1].loss != full[1].loss).any()


# The way of a GPU, computed here on a CPU.


@pytest.mark.parametrize(
    ("kernel", "stride", "padding", "dilation", "side"),
    [
        ((3, 3), (1, 1), ((0, 0), (0, 0)), (1, 1), 1),
        ((3, 3), (1, 1), ((1, 0), (2, 1)), (1, 1), 4),
        ((5, 2), (1, 1), ((0, 0), (0, 0)), (1, 1), 2),
        ((3, 3), (2, 3), ((0, 0), (0, 0)), (1, 1), 2),
        ((1, 1), (2, 2), ((0, 0), (0, 0)), (1, 1), 4),
        ((5, 2), (2, 2), ((1, 1), (1, 1)), (1, 1), 4),
        ((3, 3), (1, 1), ((0, 0), (0, 0)), (2, 1), 6),
        ((3, 2), (1, 2), ((1, 1), (1, 1)), (2, 2), 2),
    ],
    ids=str,
)
def test_patches_for_a_gpu_equal_lax_forward_and_backward(
    kernel, stride, padding, dilation, side, monkeypatch
):
    """Whatever the side of the tiles, which need not divide the number of outputs."""
    monkeypatch.setattr(tile_plan, "SIDES", (side,))
    x = images(0, (2, 11, 9, 3))
    w = images(1, (*kernel, 3, 4))

    def theirs(x, w):
        return lax.conv_general_dilated(x, w, stride, padding, None, dilation, **NUMBERS)

    def ours(x, w):
        return patches.convolution(x, w, stride, padding, dilation)

    def loss(f, x, w):
        return jnp.sum(jnp.sin(f(x, w)))

    agree(*(jax.jit(jax.value_and_grad(partial(loss, f), (0, 1)))(x, w) for f in (ours, theirs)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "kernel", "padding", "sides"),
    [
        ((3, 12, 10, 2), (5, 5, 2, 3), ((0, 0), (0, 0)), (2, 4)),
        ((2, 9, 8, 2), (4, 3, 2, 5), ((1, 2), (1, 1)), (4,)),
        ((2, 8, 11, 17), (3, 3, 17, 16), ((0, 0), (0, 0)), (6,)),
    ],
)
def test_the_block_for_a_gpu_equals_its_parts(shape, kernel, padding, sides, monkeypatch):
    monkeypatch.setattr(tile_plan, "SIDES", sides)
    x = images(0, shape)
    w = images(1, kernel)
    b = images(2, kernel[3:])
    if kernel[2] == 2:
        # Equal patches make ties.
        x = jnp.round(2 * x) / 2

    def parts(x, w, b):
        y = lax.conv_general_dilated(x, w, (1, 1), padding, precision="highest", **NUMBERS)
        return nn.max_pool(nn.relu(y + b[None, None, None]), (2, 2), (2, 2))

    def loss(f, *arguments):
        return jnp.sum(jnp.sin(f(*arguments)))

    ours, theirs = (
        jax.jit(jax.value_and_grad(partial(loss, f), (0, 1, 2)))(x, w, b)
        for f in (partial(patches.block, padding=padding), parts)
    )
    agree(ours, theirs, 2e-5)


@pytest.mark.slow
def test_patches_for_a_gpu_keep_bfloat16():
    x = images(0, (2, 8, 8, 3))
    w = images(1, (3, 3, 3, 4))
    weights = images(2, (2, 8, 8, 4))
    padding = ((1, 1), (1, 1))

    def loss(dtype, x, w):
        y = patches.convolution(x.astype(dtype), w.astype(dtype), (1, 1), padding, (1, 1))
        assert y.dtype == dtype
        return jnp.sum(weights * y.astype(jnp.float32))

    short, full = (
        jax.jit(jax.grad(partial(loss, dtype), (0, 1)))(x, w)
        for dtype in (jnp.bfloat16, jnp.float32)
    )
    for a, e in zip(short, full, strict=True):
        np.testing.assert_allclose(a, e, atol=0.02 * float(jnp.abs(e).max()))
    block = jax.eval_shape(
        partial(patches.block, padding=padding),
        *(leaf.astype(jnp.bfloat16) for leaf in (x, w, jnp.zeros(4))),
    )
    assert block.dtype == jnp.bfloat16


def convolutions(function, *arguments):
    """How many convolutions a program has that lax computes."""
    return str(jax.make_jaxpr(lambda *a: function(*a))(*arguments)).count("conv_general_dilated[")


@pytest.mark.parametrize(
    ("platform", "way", "grouped"),
    [
        ("cpu", "auto", False),
        ("cpu", "grouped", False),
        ("gpu", "auto", False),
        ("gpu", "grouped", True),
        ("tpu", "auto", True),
        ("tpu", "patches", False),
    ],
)
def test_the_way_of_convolutions_follows_the_platform_and_the_argument(
    platform, way, grouped, monkeypatch
):
    monkeypatch.setattr(target, "platform", lambda: platform)
    x = jnp.zeros((1, 16, 16, 3))
    model = lenet(3, conv=way)
    params = jax.eval_shape(model.init, jax.random.key(0), x)
    gradient = jax.grad(lambda params: model.apply(params, x).sum())
    assert (convolutions(gradient, params) > 0) == grouped
    single = partial(conv, window_strides=(1, 1), padding="SAME", way=way, **NUMBERS)
    gradient = jax.grad(lambda w: single(x, w).sum())
    assert (convolutions(gradient, jnp.zeros((3, 3, 3, 4))) > 0) == grouped


@pytest.mark.parametrize("shape", [(2, 4, 6, 3), (1, 5, 7, 2)])
def test_pooling_is_the_same_on_a_gpu(shape, monkeypatch):
    x = jnp.round(2 * images(2, shape)) / 2
    weights = images(3, max_pool(x).shape)

    def gradient(platform):
        monkeypatch.setattr(target, "platform", lambda: platform)
        return jax.value_and_grad(lambda x: jnp.sum(jnp.sin(max_pool(x)) * weights))(x)

    for a, b in zip(gradient("cpu"), gradient("gpu"), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)


def test_larger_tiles_are_chosen_where_channels_are_few():
    """Tiles of 4x4 for LeNet's first layer; wide layers have small tiles."""
    plain = ((1, 1), ((1, 1), (1, 1)), (1, 1))
    first = tile_plan.plan((64, 32, 32, 3), (5, 5, 3, 6), *plain, pooled=True)
    wide = tile_plan.plan((64, 8, 8, 256), (3, 3, 256, 256), *plain)
    assert first.high.tile * first.wide.tile >= 16
    assert wide.high.tile * wide.wide.tile <= 2
