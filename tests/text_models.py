"""BERT and Llama in NumPy, by the names and the shapes of Hugging Face, a text at a time."""

import numpy as np
from scipy.special import erf, softmax

WORDS, WIDTH, DEPTH, HEADS, INNER, LENGTH, OUTPUTS = 11, 8, 3, 4, 12, 9, 3
GROUPS = 2  # of heads that share keys and values, in Llama
BERT = {
    "model_type": "bert",
    "hidden_size": WIDTH,
    "num_hidden_layers": DEPTH,
    "num_attention_heads": HEADS,
    "intermediate_size": INNER,
    "max_position_embeddings": LENGTH,
    "layer_norm_eps": 1e-12,
}
LLAMA = {
    "model_type": "llama",
    "hidden_size": WIDTH,
    "num_hidden_layers": DEPTH,
    "num_attention_heads": HEADS,
    "num_key_value_heads": GROUPS,
    "intermediate_size": INNER,
    "rms_norm_eps": 1e-6,
    "rope_parameters": {"rope_theta": 10_000.0, "rope_type": "default"},
}


def random_arrays(rng, shapes):
    return {name: rng.normal(size=s, scale=0.6).astype(np.float32) for name, s in shapes.items()}


def bert_arrays(rng, front="bert.", head=True):
    """Random weights of BertForSequenceClassification; kernels are [out, in] there."""
    shapes = {
        "embeddings.word_embeddings.weight": (WORDS, WIDTH),
        "embeddings.position_embeddings.weight": (LENGTH, WIDTH),
        "embeddings.token_type_embeddings.weight": (2, WIDTH),
        "embeddings.LayerNorm.weight": (WIDTH,),
        "embeddings.LayerNorm.bias": (WIDTH,),
        "pooler.dense.weight": (WIDTH, WIDTH),
        "pooler.dense.bias": (WIDTH,),
    }
    for i in range(DEPTH):
        block = f"encoder.layer.{i}."
        for name in ("self.query", "self.key", "self.value", "output.dense"):
            shapes[f"{block}attention.{name}.weight"] = (WIDTH, WIDTH)
            shapes[f"{block}attention.{name}.bias"] = (WIDTH,)
        shapes[f"{block}intermediate.dense.weight"] = (INNER, WIDTH)
        shapes[f"{block}intermediate.dense.bias"] = (INNER,)
        shapes[f"{block}output.dense.weight"] = (WIDTH, INNER)
        shapes[f"{block}output.dense.bias"] = (WIDTH,)
        for name in ("attention.output", "output"):
            shapes[f"{block}{name}.LayerNorm.weight"] = (WIDTH,)
            shapes[f"{block}{name}.LayerNorm.bias"] = (WIDTH,)
    arrays = random_arrays(rng, {f"{front}{name}": shape for name, shape in shapes.items()})
    top = {"classifier.weight": (OUTPUTS, WIDTH), "classifier.bias": (OUTPUTS,)}
    return arrays | (random_arrays(rng, top) if head else {})


def bert_logits(arrays, ids, positions=False):
    """Of one text: [outputs] of the first place, or [n, outputs] of each."""
    a = {name.removeprefix("bert."): x.astype(np.float64) for name, x in arrays.items()}

    def dense(x, name):
        return x @ a[f"{name}.weight"].T + a[f"{name}.bias"]

    def norm(x, name):
        rows = np.array([(row - row.mean()) / np.sqrt(row.var() + 1e-12) for row in x])
        return rows * a[f"{name}.LayerNorm.weight"] + a[f"{name}.LayerNorm.bias"]

    x = a["embeddings.word_embeddings.weight"][ids]
    x = x + a["embeddings.position_embeddings.weight"][: len(ids)]
    x = norm(x + a["embeddings.token_type_embeddings.weight"][0], "embeddings")
    for i in range(DEPTH):
        block = f"encoder.layer.{i}."
        query, key, value = (
            np.split(dense(x, f"{block}attention.self.{name}"), HEADS, axis=1)
            for name in ("query", "key", "value")
        )
        heads = [
            softmax(q @ k.T / np.sqrt(WIDTH / HEADS), axis=1) @ v
            for q, k, v in zip(query, key, value, strict=True)
        ]
        mixed = dense(np.concatenate(heads, axis=1), f"{block}attention.output.dense")
        x = norm(x + mixed, f"{block}attention.output")
        up = dense(x, f"{block}intermediate.dense")
        up = up * (1 + erf(up / np.sqrt(2))) / 2
        x = norm(x + dense(up, f"{block}output.dense"), f"{block}output")
    if positions:
        return dense(x, "classifier")
    return dense(np.tanh(dense(x[:1], "pooler.dense")), "classifier")[0]


def llama_arrays(rng, head="score.weight", outputs=OUTPUTS):
    """Random weights of LlamaForSequenceClassification, or with lm_head.weight ForCausalLM."""
    shapes = {"model.embed_tokens.weight": (WORDS, WIDTH), "model.norm.weight": (WIDTH,)}
    size = WIDTH // HEADS
    for i in range(DEPTH):
        block = f"model.layers.{i}."
        for name, rows in (("q", WIDTH), ("k", GROUPS * size), ("v", GROUPS * size), ("o", WIDTH)):
            shapes[f"{block}self_attn.{name}_proj.weight"] = (rows, WIDTH)
        shapes |= {f"{block}mlp.{n}_proj.weight": (INNER, WIDTH) for n in ("gate", "up")}
        shapes[f"{block}mlp.down_proj.weight"] = (WIDTH, INNER)
        shapes[f"{block}input_layernorm.weight"] = (WIDTH,)
        shapes[f"{block}post_attention_layernorm.weight"] = (WIDTH,)
        # Older files have the angles of rotary positions.
        shapes[f"{block}self_attn.rotary_emb.inv_freq"] = (size // 2,)
    return random_arrays(rng, shapes | ({head: (outputs, WIDTH)} if head else {}))


def llama_logits(arrays, ids, head="score.weight"):
    """Of one text, the logits of each place [n, outputs]."""
    a = {name.removeprefix("model."): x.astype(np.float64) for name, x in arrays.items()}
    size = WIDTH // HEADS

    def norm(x, name):
        return x / np.sqrt((x**2).mean(axis=1, keepdims=True) + 1e-6) * a[f"{name}.weight"]

    def turned(x):
        """Each pair of numbers of a head [n, size] as a complex number, times its rotation."""
        pairs = x[:, : size // 2] + 1j * x[:, size // 2 :]
        speeds = 10_000.0 ** (-np.arange(0, size, 2) / size)
        pairs = pairs * np.exp(1j * np.arange(len(x))[:, None] * speeds)
        return np.concatenate([pairs.real, pairs.imag], axis=1)

    x = a["embed_tokens.weight"][ids]
    causal = np.tril(np.ones((len(ids), len(ids)), bool))
    for i in range(DEPTH):
        block = f"layers.{i}."
        y = norm(x, f"{block}input_layernorm")
        query, key, value = (
            np.split(y @ a[f"{block}self_attn.{name}_proj.weight"].T, count, axis=1)
            for name, count in (("q", HEADS), ("k", GROUPS), ("v", GROUPS))
        )
        heads = []
        for number, q in enumerate(query):
            group = number // (HEADS // GROUPS)
            scores = turned(q) @ turned(key[group]).T / np.sqrt(size)
            heads.append(softmax(np.where(causal, scores, -np.inf), axis=1) @ value[group])
        x = x + np.concatenate(heads, axis=1) @ a[f"{block}self_attn.o_proj.weight"].T
        y = norm(x, f"{block}post_attention_layernorm")
        gate = y @ a[f"{block}mlp.gate_proj.weight"].T
        up = gate / (1 + np.exp(-gate)) * (y @ a[f"{block}mlp.up_proj.weight"].T)
        x = x + up @ a[f"{block}mlp.down_proj.weight"].T
    return norm(x, "norm") @ a[head].T
