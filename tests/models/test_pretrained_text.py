"""Weights of models of texts by the names of Hugging Face, beside NumPy that reads them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from text_models import (
    BERT,
    LLAMA,
    OUTPUTS,
    bert_arrays,
    bert_logits,
    llama_arrays,
    llama_logits,
)

from jaxfl.core import tree
from jaxfl.core.errors import InputError
from jaxfl.models import bert, llama, transformer
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


# Texts of 6, 4 and 1 ids; -1 is none.
IDS = np.array([[3, 1, 4, 1, 5, 9], [2, 6, 5, 3, -1, -1], [8, -1, -1, -1, -1, -1]])


def logits_of(module, arrays, config):
    """The logits of our module on IDS, with the weights of others."""
    module, by_path = pretrained(module, arrays, config)
    like = jax.eval_shape(module.init, jax.random.key(0), jnp.asarray(IDS))
    paths = {tree.path(keys) for keys, _ in jax.tree_util.tree_leaves_with_path(like)}
    assert paths == set(by_path)
    params = jax.tree_util.tree_map_with_path(lambda keys, _: by_path[tree.path(keys)], like)
    return np.asarray(module.apply(params, jnp.asarray(IDS)))


def test_logits_are_those_of_bert_on_its_weights():
    """What stands behind the end of a text changes nothing, since it is not there in NumPy."""
    arrays = bert_arrays(np.random.default_rng(0))
    found = logits_of(bert(OUTPUTS, (WORDS,)), arrays, BERT)
    expected = [bert_logits(arrays, ids[ids >= 0]) for ids in IDS]
    np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-4)
    each = logits_of(bert(OUTPUTS, (WORDS,), positions=True), arrays, BERT)
    for ids, one in zip(IDS, each, strict=True):
        ids = ids[ids >= 0]
        whole = bert_logits(arrays, ids, positions=True)
        np.testing.assert_allclose(one[: len(ids)], whole, rtol=2e-4, atol=2e-4)


def test_logits_are_those_of_llama_on_its_weights():
    arrays = llama_arrays(np.random.default_rng(0))
    found = logits_of(llama(OUTPUTS, (WORDS,)), arrays, LLAMA)
    expected = [llama_logits(arrays, ids[ids >= 0])[-1] for ids in IDS]
    np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("head", ["lm_head.weight", None])
def test_a_model_of_the_next_id_has_the_head_of_the_weights_or_the_embedding(head):
    arrays = llama_arrays(np.random.default_rng(0), head, WORDS)
    config = LLAMA | {"tie_word_embeddings": head is None}
    found = logits_of(llama(WORDS, (WORDS,), positions=True), arrays, config)
    expected = llama_logits(arrays, IDS[0], head or "embed_tokens.weight")
    np.testing.assert_allclose(found[0], expected, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("head", ["lm_head.weight", None])
def test_rows_of_ids_that_no_text_has_are_left_out(head):
    """Tables may be longer than the vocabulary of the tokenizer, up to a round number."""
    arrays = llama_arrays(np.random.default_rng(0), head, WORDS)
    longer = dict(arrays)
    for name in ("model.embed_tokens.weight", *([head] if head else [])):
        longer[name] = np.concatenate([arrays[name], np.ones((16 - WORDS, WIDTH), np.float32)])
    config = LLAMA | {"tie_word_embeddings": head is None}
    module = llama(WORDS, (WORDS,), positions=True)
    np.testing.assert_array_equal(
        logits_of(module, longer, config), logits_of(module, arrays, config)
    )
    with pytest.raises(InputError, match="embed 11 ids, and the data have 7: number the ids"):
        pretrained(llama(OUTPUTS, (7,)), arrays, LLAMA)


def test_a_head_that_is_not_there_is_missed():
    arrays = llama_arrays(np.random.default_rng(0), None)
    with pytest.raises(InputError, match=r"lack lm_head\.weight"):
        pretrained(
            llama(WORDS, (WORDS,), positions=True), arrays, LLAMA | {"tie_word_embeddings": False}
        )


def test_older_names_of_a_normalisation_are_read():
    arrays = bert_arrays(np.random.default_rng(0))
    older = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): array
        for name, array in arrays.items()
    }
    assert "bert.embeddings.LayerNorm.gamma" in older
    module = bert(OUTPUTS, (WORDS,))
    np.testing.assert_array_equal(logits_of(module, older, BERT), logits_of(module, arrays, BERT))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_attention_heads": 3}, "width is 8 and heads is 3"),
        ({"num_attention_heads": "4"}, "num_attention_heads '4': expected a positive number"),
        ({"layer_norm_eps": 0}, "layer_norm_eps 0: expected a positive number"),
        ({"is_decoder": True}, "is_decoder True, and bert has False"),
        ({"model_type": "roberta"}, "config.json has model_type 'roberta', and bert has 'bert'"),
        ({"hidden_act": "relu"}, "hidden_act 'relu', and bert has 'gelu'"),
        ({"hidden_size": None}, "config.json lacks hidden_size"),
        ({"num_hidden_layers": 2}, "of 3 blocks of width 8, and the model has 2 of width 8"),
    ],
)
def test_a_config_of_another_model_is_refused(change, message):
    arrays = bert_arrays(np.random.default_rng(0))
    with pytest.raises(InputError, match=message):
        pretrained(bert(OUTPUTS, (WORDS,)), arrays, BERT | change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rope_parameters": {"rope_type": "llama3"}}, "scales rotary positions as 'llama3'"),
        (
            {"rope_scaling": {"type": "linear", "factor": 2.0}},
            "scales rotary positions as 'linear'",
        ),
        ({"rope_scaling": "linear"}, "rope_scaling 'linear': expected an object"),
        ({"num_key_value_heads": 3}, "heads is 4, groups is 3"),
        ({"head_dim": 7}, "the size of a head is 7"),
    ],
)
def test_a_llama_of_another_kind_is_refused(change, message):
    arrays = llama_arrays(np.random.default_rng(0))
    with pytest.raises(InputError, match=message):
        pretrained(llama(OUTPUTS, (WORDS,)), arrays, LLAMA | change)


def test_the_base_of_rotary_positions_is_that_of_the_config():
    bare = LLAMA | {"rope_theta": 500.0, "rope_parameters": {"rope_type": "default"}}
    arrays = llama_arrays(np.random.default_rng(0))
    assert pretrained(llama(OUTPUTS, (WORDS,)), arrays, bare).module.base == 500
