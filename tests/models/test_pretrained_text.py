"""GPT-2's weights by the names of Hugging Face, beside a forward pass in NumPy that reads them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxfl.core import tree
from jaxfl.core.errors import InputError
from jaxfl.models import transformer
from jaxfl.models.pretrained import pretrained

WORDS, WIDTH, DEPTH, HEADS, LENGTH = 11, 8, 2, 2, 9


def weights_of(rng, front="transformer."):
    """Random arrays by GPT-2's names, whose layers have kernels [in, out]."""
    w = WIDTH
    shapes = {"wte.weight": (WORDS, w), "wpe.weight": (LENGTH, w)}
    shapes |= {"ln_f.weight": (w,), "ln_f.bias": (w,)}
    for i in range(DEPTH):
        layers = {"attn.c_attn": (w, 3 * w), "attn.c_proj": (w, w)}
        layers |= {"mlp.c_fc": (w, 4 * w), "mlp.c_proj": (4 * w, w)}
        for name, shape in layers.items():
            shapes |= {f"h.{i}.{name}.weight": shape, f"h.{i}.{name}.bias": shape[1:]}
        for name in ("ln_1", "ln_2"):
            shapes |= {f"h.{i}.{name}.weight": (w,), f"h.{i}.{name}.bias": (w,)}
    arrays = {f"{front}{n}": rng.normal(size=s).astype(np.float32) for n, s in shapes.items()}
    # Files have the mask of each attention, and the head, which is the embedding.
    for i in range(DEPTH):
        arrays[f"{front}h.{i}.attn.bias"] = np.tril(np.ones((1, 1, LENGTH, LENGTH), np.float32))
    if front:
        arrays["lm_head.weight"] = arrays[f"{front}wte.weight"]
    return arrays


def forward(arrays, ids):
    """GPT-2 (Radford et al., 2019) of one text, in float64: logits of each position [n, words]."""
    a = {n.removeprefix("transformer."): x.astype(np.float64) for n, x in arrays.items()}

    def norm(x, name):
        centred = x - x.mean(axis=1, keepdims=True)
        normal = centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-5)
        return normal * a[f"{name}.weight"] + a[f"{name}.bias"]

    def layer(x, name):
        return x @ a[f"{name}.weight"] + a[f"{name}.bias"]

    n = len(ids)
    x = a["wte.weight"][ids] + a["wpe.weight"][:n]
    for i in range(DEPTH):
        queries, keys, values = np.split(layer(norm(x, f"h.{i}.ln_1"), f"h.{i}.attn.c_attn"), 3, 1)
        size = WIDTH // HEADS
        mixed = np.zeros((n, WIDTH))
        for head in range(HEADS):
            part = slice(head * size, head * size + size)
            for at in range(n):
                scores = keys[: at + 1, part] @ queries[at, part] / np.sqrt(size)
                weights = np.exp(scores - scores.max())
                mixed[at, part] = weights / weights.sum() @ values[: at + 1, part]
        x = x + layer(mixed, f"h.{i}.attn.c_proj")
        up = layer(norm(x, f"h.{i}.ln_2"), f"h.{i}.mlp.c_fc")
        up = up * (1 + np.tanh(np.sqrt(2 / np.pi) * (up + 0.044715 * up**3))) / 2
        x = x + layer(up, f"h.{i}.mlp.c_proj")
    return norm(x, "ln_f") @ a["wte.weight"].T


def small(**options):
    sizes = {"width": WIDTH, "depth": DEPTH, "heads": HEADS, "positions": True, "tied": True}
    return transformer(WORDS, (WORDS,), **(sizes | options))


@pytest.mark.parametrize("front", ["", "transformer."])
def test_logits_are_those_of_gpt_2_on_its_weights(front):
    """Texts may be shorter than the table of positions."""
    rng = np.random.default_rng(0)
    arrays = weights_of(rng, front)
    ids = rng.integers(WORDS, size=(2, 6))
    module, by_path = pretrained(small(), arrays)
    like = jax.eval_shape(module.init, jax.random.key(0), jnp.asarray(ids))
    paths = {tree.path(keys) for keys, _ in jax.tree_util.tree_leaves_with_path(like)}
    assert paths == set(by_path)
    params = jax.tree_util.tree_map_with_path(lambda keys, _: by_path[tree.path(keys)], like)
    expected = np.stack([forward(arrays, text) for text in ids])
    found = module.apply(params, jnp.asarray(ids))
    np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"depth": 3}, "of 2 blocks of width 8, and the model has 3 of width 8"),
        ({"width": 16}, "of 2 blocks of width 8, and the model has 2 of width 16"),
    ],
)
def test_weights_of_another_size_are_refused(options, message):
    arrays = weights_of(np.random.default_rng(0))
    with pytest.raises(InputError, match=message):
        pretrained(small(**options), arrays)


def test_ids_of_another_vocabulary_are_refused():
    arrays = weights_of(np.random.default_rng(0))
    sizes = {"width": WIDTH, "depth": DEPTH, "heads": HEADS}
    with pytest.raises(InputError, match="embed 11 ids, and the data have 12"):
        pretrained(transformer(12, (12,), **sizes), arrays)
