"""ResNet-18's weights by torchvision's names, beside a forward pass in NumPy.

The pass reads arrays by the names of torchvision's `resnet18`, and is written from table 1 of the
paper and the equation of batch normalisation.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxfl.core import tree
from jaxfl.core.errors import InputError, RunWarning
from jaxfl.models import resnet8, resnet18
from jaxfl.models.pretrained import pretrained

CLASSES = 5
# Table 1 of He et al. (2016), conv2_x to conv5_x: channels that come in and go out, stride.
STAGES = [(64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2)]
BLOCKS = [
    (f"layer{stage}.{place}", *((before, after, stride) if place == 0 else (after, after, 1)))
    for stage, (before, after, stride) in enumerate(STAGES, 1)
    for place in (0, 1)
]


@pytest.fixture(scope="module")
def arrays():
    """Random arrays by the names of torchvision."""
    rng = np.random.default_rng(0)
    arrays = {}

    def layer(kernel, norm, *shape):
        out, *inside = shape
        arrays[f"{kernel}.weight"] = rng.normal(size=shape) * np.sqrt(2 / np.prod(inside))
        arrays[f"{norm}.weight"] = rng.uniform(0.5, 1.5, out)
        arrays[f"{norm}.bias"] = rng.normal(size=out)
        arrays[f"{norm}.running_mean"] = rng.normal(size=out)
        # Some channels hardly vary, so that the epsilon counts.
        arrays[f"{norm}.running_var"] = np.where(rng.random(out) < 0.1, 1e-5, rng.random(out) + 0.5)
        arrays[f"{norm}.num_batches_tracked"] = np.array(7)

    layer("conv1", "bn1", 64, 3, 7, 7)
    for block, before, after, stride in BLOCKS:
        layer(f"{block}.conv1", f"{block}.bn1", after, before, 3, 3)
        layer(f"{block}.conv2", f"{block}.bn2", after, after, 3, 3)
        if stride == 2:
            layer(f"{block}.downsample.0", f"{block}.downsample.1", after, before, 1, 1)
    arrays["fc.weight"] = rng.normal(size=(CLASSES, 512))
    arrays["fc.bias"] = rng.normal(size=CLASSES)
    return arrays


def windows(x, size, stride, padding, fill):
    """[h, w, c] -> [H, W, c, size, size]."""
    x = np.pad(x, ((padding, padding), (padding, padding), (0, 0)), constant_values=fill)
    return np.lib.stride_tricks.sliding_window_view(x, (size, size), (0, 1))[::stride, ::stride]


def forward(a, image):
    def layer(x, kernel, norm, stride, padding):
        kernel = a[f"{kernel}.weight"]
        cut = windows(x, kernel.shape[-1], stride, padding, 0)
        x = np.einsum("hwikl,oikl->hwo", cut, kernel, optimize=True)
        x = (x - a[f"{norm}.running_mean"]) / np.sqrt(a[f"{norm}.running_var"] + 1e-5)
        return x * a[f"{norm}.weight"] + a[f"{norm}.bias"]

    def relu(x):
        return np.maximum(x, 0)

    x = relu(layer(image, "conv1", "bn1", 2, 3))
    x = windows(x, 3, 2, 1, -np.inf).max(axis=(3, 4))
    for block, _, _, stride in BLOCKS:
        y = relu(layer(x, f"{block}.conv1", f"{block}.bn1", stride, 1))
        y = layer(y, f"{block}.conv2", f"{block}.bn2", 1, 1)
        if stride == 2:
            x = layer(x, f"{block}.downsample.0", f"{block}.downsample.1", 2, 0)
        x = relu(x + y)
    return a["fc.weight"] @ x.mean(axis=(0, 1)) + a["fc.bias"]


def outputs_of(module, weights, images):
    like = jax.eval_shape(module.init, jax.random.key(0), images)
    params = jax.tree_util.tree_map_with_path(
        lambda keys, leaf: jnp.asarray(weights[tree.path(keys)].reshape(leaf.shape), jnp.float32),
        like,
    )
    assert len(weights) == len(jax.tree.leaves(params))
    return jax.jit(module.apply)(params, images)


@pytest.mark.slow(seconds=30)
@pytest.mark.parametrize("shape", [(40, 40), (37, 50)])
def test_outputs_are_those_of_the_papers_table_on_weights_as_torchvision_names_them(arrays, shape):
    images = np.random.default_rng(1).normal(size=(2, *shape, 3)).astype(np.float32)
    module, weights = pretrained(resnet18(CLASSES), arrays)
    expected = np.stack([forward(arrays, image) for image in images.astype(np.float64)])
    found = outputs_of(module, weights, images)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3 * np.abs(expected).max())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        # ResNet-34 has a third block.
        (lambda a: a | {"layer1.2.conv1.weight": a["layer1.1.conv1.weight"]}, "is of no part of"),
        (lambda a: {k: x for k, x in a.items() if k != "bn1.bias"}, "the weights lack bn1.bias of"),
        (lambda a: {k: x for k, x in a.items() if k != "fc.weight"}, "the weights lack fc.weight"),
        (lambda a: a | {"bn1.running_var": np.ones(3)}, r"bn1.running_var \(3,\): expected \(out"),
        (lambda a: a | {"conv1.weight": np.ones((64, 147))}, r"conv1.weight has shape \(64, 147\)"),
    ],
)
def test_weights_of_something_else_are_refused_in_a_line(arrays, change, message):
    with pytest.raises(InputError, match=message) as error:
        pretrained(resnet18(CLASSES), change(arrays))
    assert "\n" not in str(error.value)


def test_of_another_model_than_those_with_names_the_paths_are_expected():
    with pytest.raises(InputError, match=r"conv1.weight: expected the paths .* resnet18, .*"):
        pretrained(resnet8(CLASSES), {"conv1.weight": np.ones((64, 3, 7, 7))})


def test_a_head_of_other_classes_begins_anew_which_is_told(arrays):
    with pytest.warns(RunWarning, match="head has 5 outputs, and the model 3: it begins anew"):
        _, weights = pretrained(resnet18(3), arrays)
    assert not any(path.startswith("params/head/") for path in weights)


def test_numbers_of_16_bits_are_folded_in_32(arrays):
    """A variance of 1e-8 and an epsilon of 1e-5 are nothing, or nearly, as 16 bits."""
    halves = {
        name: np.full_like(array, 1e-8) if name.endswith("var") else array
        for name, array in arrays.items()
    }
    halves = {name: array.astype(np.float16) for name, array in halves.items()}
    weights = pretrained(resnet18(CLASSES), halves).weights
    kernel, scale = (halves[name].astype(np.float64) for name in ("conv1.weight", "bn1.weight"))
    expected = (kernel * (scale / np.sqrt(1e-5))[:, None, None, None]).transpose(2, 3, 1, 0)
    np.testing.assert_allclose(weights["params/stem/kernel"], expected, rtol=1e-5)


def test_the_size_is_that_which_torchvision_tells():
    """resnet18 has 11,689,512 parameters, with two for each normalised channel."""
    images = jnp.zeros((1, 32, 32, 3))
    shapes = jax.eval_shape(resnet18(1000).init, jax.random.key(0), images)["params"]
    head = tree.size(shapes.pop("head"))
    biases = [
        leaf.size
        for keys, leaf in jax.tree_util.tree_leaves_with_path(shapes)
        if tree.path(keys).endswith("bias")
    ]
    assert tree.size(shapes) + sum(biases) + head == 11_689_512


@pytest.mark.parametrize(("side", "expected"), [(None, (2, 3)), (32, (8, 8))])
def test_images_are_resized_to_the_side_that_is_asked_for(side, expected):
    model = resnet18(3, side)
    _, state = jax.eval_shape(
        partial(model.init_with_output, capture_intermediates=True, mutable=True),
        jax.random.key(0),
        jnp.zeros((1, 8, 12, 3)),
    )
    # The stem and the pooling each divide by two.
    assert state["intermediates"]["block0"]["__call__"][0].shape[1:3] == expected


def test_images_are_checked():
    with pytest.raises(InputError, match=r"images \[height, width, 3\], not .* 8x8x1"):
        resnet18(3).init(jax.random.key(0), jnp.zeros((1, 8, 8, 1)))
