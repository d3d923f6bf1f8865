"""The vision transformer and its weights, beside a forward pass in NumPy from the papers.

The pass reads arrays by the names that timm gives them, so that it knows nothing of ours.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import erf

import jaxfl
from jaxfl.core import tree
from jaxfl.core.errors import InputError
from jaxfl.models import vit_tiny
from jaxfl.models.pretrained import pretrained
from jaxfl.models.vit import ViT

WIDTH, DEPTH, HEADS, PATCH, GRID, CLASSES = 12, 2, 3, 4, 3, 5


def timm_weights(rng):
    """Random arrays by the names of timm's vision transformer."""
    w = WIDTH
    shapes = {
        "cls_token": (1, 1, w),
        "pos_embed": (1, GRID * GRID + 1, w),
        "patch_embed.proj.weight": (w, 3, PATCH, PATCH),
        "patch_embed.proj.bias": (w,),
        "norm.weight": (w,),
        "norm.bias": (w,),
        "head.weight": (CLASSES, w),
        "head.bias": (CLASSES,),
    }
    for i in range(DEPTH):
        layers = {"attn.qkv": (3 * w, w), "attn.proj": (w, w)}
        layers |= {"mlp.fc1": (4 * w, w), "mlp.fc2": (w, 4 * w)}
        for name, shape in layers.items():
            shapes |= {f"blocks.{i}.{name}.weight": shape, f"blocks.{i}.{name}.bias": shape[:1]}
        for name in ("norm1", "norm2"):
            shapes |= {f"blocks.{i}.{name}.weight": (w,), f"blocks.{i}.{name}.bias": (w,)}
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def hugging_face_weights(timm):
    """The same arrays by the names of transformers."""
    renamed = {}
    for name, array in timm.items():
        if ".attn.qkv." in name:
            number, kind = name.split(".")[1], name.rpartition(".")[2]
            parts = zip(("query", "key", "value"), np.split(array, 3), strict=True)
            for part, piece in parts:
                path = f"vit.encoder.layer.{number}.attention.attention.{part}.{kind}"
                renamed[path] = piece
            continue
        for old, new in (
            ("cls_token", "vit.embeddings.cls_token"),
            ("pos_embed", "vit.embeddings.position_embeddings"),
            ("patch_embed.proj", "vit.embeddings.patch_embeddings.projection"),
            ("attn.proj", "attention.output.dense"),
            ("mlp.fc1", "intermediate.dense"),
            ("mlp.fc2", "output.dense"),
            ("norm1", "layernorm_before"),
            ("norm2", "layernorm_after"),
            ("head", "classifier"),
        ):
            name = name.replace(old, new)
        name = name.replace("blocks.", "vit.encoder.layer.")
        renamed["vit.layernorm" + name[4:] if name.startswith("norm.") else name] = array
    return renamed


def normalised(x, scale, bias):
    mean = x.mean(axis=-1, keepdims=True)
    return (x - mean) / np.sqrt(x.var(axis=-1, keepdims=True) + 1e-6) * scale + bias


def forward(weights, images):
    """Section 3.1, equations 1 to 4, of Dosovitskiy et al. (2021), in float64."""
    a = {name: array.astype(np.float64) for name, array in weights.items()}

    def layer(x, name):
        return x @ a[f"{name}.weight"].T + a[f"{name}.bias"]

    logits = []
    for image in images.astype(np.float64):
        tokens = [a["cls_token"][0, 0]]
        for row in range(GRID):
            for column in range(GRID):
                window = image[row * PATCH : (row + 1) * PATCH, column * PATCH :][:, :PATCH]
                kernel = a["patch_embed.proj.weight"]
                value = np.einsum("hwc,ochw->o", window, kernel) + a["patch_embed.proj.bias"]
                tokens.append(value)
        x = np.stack(tokens) + a["pos_embed"][0]
        for i in range(DEPTH):
            block = f"blocks.{i}"
            inside = normalised(x, a[f"{block}.norm1.weight"], a[f"{block}.norm1.bias"])
            query, key, value = np.split(layer(inside, f"{block}.attn.qkv"), 3, axis=-1)
            size = WIDTH // HEADS
            mixed = np.zeros_like(x)
            for head in range(HEADS):
                part = slice(head * size, (head + 1) * size)
                scores = np.exp(query[:, part] @ key[:, part].T / np.sqrt(size))
                mixed[:, part] = scores / scores.sum(axis=1, keepdims=True) @ value[:, part]
            x = x + layer(mixed, f"{block}.attn.proj")
            inside = normalised(x, a[f"{block}.norm2.weight"], a[f"{block}.norm2.bias"])
            inside = layer(inside, f"{block}.mlp.fc1")
            inside = inside * (1 + erf(inside / np.sqrt(2))) / 2
            x = x + layer(inside, f"{block}.mlp.fc2")
        x = normalised(x, a["norm.weight"], a["norm.bias"])
        logits.append(layer(x[0], "head"))
    return np.stack(logits)


def small(outputs=CLASSES, **options):
    return ViT(outputs, WIDTH, DEPTH, HEADS, **options)


@pytest.mark.parametrize("names", ["timm", "hugging face"])
def test_outputs_are_those_of_the_papers_equations_on_the_weights_as_others_name_them(names):
    rng = np.random.default_rng(0)
    weights = timm_weights(rng)
    images = rng.normal(size=(3, GRID * PATCH, GRID * PATCH, 3)).astype(np.float32)
    given = weights if names == "timm" else hugging_face_weights(weights)
    module, by_path = pretrained(small(), given)
    assert (module.patch, module.side) == (PATCH, GRID * PATCH)
    like = jax.eval_shape(module.init, jax.random.key(0), images)
    leaves = jax.tree_util.tree_leaves_with_path(like)
    assert {tree.path(keys): leaf.shape for keys, leaf in leaves} == {
        path: array.shape for path, array in by_path.items()
    }
    params = jax.tree_util.tree_map_with_path(lambda keys, _: by_path[tree.path(keys)], like)
    found = module.apply(params, images)
    np.testing.assert_allclose(found, forward(weights, images), rtol=2e-4, atol=2e-4)


def test_images_of_another_size_are_resized_to_that_of_the_weights():
    weights = timm_weights(np.random.default_rng(1))
    module, _ = pretrained(small(), weights)
    shapes = jax.eval_shape(module.init, jax.random.key(0), jnp.zeros((1, 30, 20, 3)))
    assert shapes["params"]["position"].shape == (1, GRID * GRID + 1, WIDTH)


def test_a_head_for_other_classes_begins_anew_and_says_so():
    weights = timm_weights(np.random.default_rng(1))
    with pytest.warns(UserWarning, match="head has 5 outputs, and the model 7: it begins anew"):
        _, by_path = pretrained(small(7), weights)
    assert not [path for path in by_path if "head" in path]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda w: w | {"blocks.2.norm1.weight": w["norm.weight"]}, "of 3 blocks of width 12"),
        (lambda w: w | {"pos_embed": np.zeros((1, 12, WIDTH))}, "11 patches, which are no square"),
        (lambda w: w | {"fc.weight": w["norm.weight"]}, "'fc.weight' is of no part of such"),
        (lambda w: {k: x for k, x in w.items() if k != "norm.weight"}, "lack norm/weight"),
    ],
)
def test_weights_of_something_else_are_refused_in_a_line(change, message):
    weights = change(timm_weights(np.random.default_rng(1)))
    with pytest.raises(InputError, match=message) as error:
        pretrained(small(), weights)
    assert "\n" not in str(error.value)


def test_weights_by_other_names_need_a_vision_transformer():
    with pytest.raises(InputError, match="weights are called cls_token, pos_embed"):
        pretrained(jaxfl.models.linear(3), timm_weights(np.random.default_rng(1)))


def test_the_size_is_that_which_timm_tells():
    """vit_tiny_patch16_224 with 1000 classes has 5,717,416 parameters."""
    images = jnp.zeros((1, 224, 224, 3))
    assert tree.size(jax.eval_shape(vit_tiny(1000).init, jax.random.key(0), images)) == 5717416


@pytest.mark.long(every=4)
@pytest.mark.parametrize(("side", "patch"), [(8, 2), (28, 4), (32, 4), (64, 16)])
def test_small_images_have_small_patches(side, patch):
    images = jnp.zeros((1, side, side, 1))
    shapes = jax.eval_shape(vit_tiny(10).init, jax.random.key(0), images)["params"]
    assert shapes["position"].shape[1] == (side // patch) ** 2 + 1
    assert shapes["patches"]["kernel"].shape == (patch * patch, 192)


@pytest.mark.slow
def test_blocks_that_are_computed_again_give_the_same_gradient():
    rng = np.random.default_rng(2)
    images = jnp.asarray(rng.normal(size=(2, 8, 8, 1)), jnp.float32)
    params = small().init(jax.random.key(0), images)

    def gradient(module):
        return jax.jit(jax.grad(lambda p: jnp.square(module.apply(p, images)).sum()))(params)

    plain, again = gradient(small()), gradient(small(remat=True))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4), plain, again)
    program = str(
        jax.make_jaxpr(jax.grad(lambda p: small(remat=True).apply(p, images).sum()))(params)
    )
    assert "remat" in program
