"""The parameter counts, the heads, the features, and the inputs that each model refuses."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy.signal import correlate

import jaxfl
from jaxfl.core import tree
from jaxfl.core.errors import InputError
from jaxfl.models import MODELS, conv1d, fedavg_cnn, lstm, mf, textcnn

WORDS = jnp.zeros(20, jnp.int32)
PAIR = jnp.zeros(2, jnp.int32)
SERIES = jnp.zeros((20, 3))
EXAMPLES = {
    **dict.fromkeys(("textcnn", "transformer", "bert", "llama"), WORDS),
    "mf": PAIR,
    **dict.fromkeys(("conv1d", "lstm"), SERIES),
}


def image(size, channels):
    return jnp.zeros((size, size, channels))


# Of the weights that they are made for.
EXAMPLES |= dict.fromkeys(("efficientnet_lite0", "resnet18"), image(16, 3))


def params_of(model, example):
    return jax.eval_shape(lambda: model.init(jax.random.key(0), example[None]))


@pytest.mark.parametrize(
    ("name", "classes", "example", "count"),
    [
        ("lenet", 10, image(32, 3), 62_006),
        ("lenet", 100, image(32, 3), 69_656),
        ("lenet", 10, image(28, 1), 44_426),
        ("fedavg_cnn", 10, image(28, 1), 582_026),
        ("fedavg_cnn", 100, image(32, 3), 924_708),
        ("cedar3", 10, image(28, 1), 98_666),
        ("cedar6", 10, image(32, 3), 3_229_706),
        ("resnet8", 10, image(32, 3), 78_042),
        ("textcnn", 10, WORDS, 256 * 10_000 + (3 + 4 + 5) * 256 * 100 + 300 + 300 * 10 + 10),
        ("mf", 1, PAIR, 11 * (943 + 1682) + 1),
        ("conv1d", 6, SERIES, 5 * 3 * 32 + 32 + 5 * 32 * 64 + 64 + 65 * 6),
        ("lstm", 6, SERIES, 4 * 64 * (3 + 64 + 1) + 65 * 6),
    ],
)
def test_parameter_counts(name, classes, example, count):
    assert tree.size(params_of(MODELS[name](classes), example)) == count


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(MODELS))
def test_each_model_names_its_head(name):
    """The head is every parameter whose shape depends on the classes; mf's is the users' part."""
    example = EXAMPLES.get(name, image(16, 1))
    model = MODELS[name](7)
    params = params_of(model, example)
    numbered = jax.tree.unflatten(
        jax.tree.structure(params), jnp.arange(len(jax.tree.leaves(params)))
    )
    if name == "mf":
        assert len(tree.select(numbered, model.head)) == 2
        return
    more = jax.tree.leaves(params_of(MODELS[name](8), example))
    depends = [a.shape != b.shape for a, b in zip(jax.tree.leaves(params), more, strict=True)]
    assert [int(leaf) for leaf in tree.select(numbered, model.head)] == np.flatnonzero(
        depends
    ).tolist()
    task = jaxfl.classification(model, example, scale=None if example is WORDS else 1.0)
    assert task.problem.head == model.head
    # The features of the model are the input of its last layer.
    params = jax.jit(task.problem.init)(jax.random.key(0))
    x = jnp.asarray(example)[None]
    features = jax.jit(task.problem.features)(params, x)
    bias, kernel = 0.0, None
    for leaf in tree.select(params, model.head):
        kernel, bias = (leaf, bias) if leaf.ndim == 2 else (kernel, leaf[None])
    expected = features @ kernel + bias
    np.testing.assert_allclose(jax.jit(task.problem.apply)(params, x), expected, atol=1e-5)


def test_fedavg_cnn_equals_convolutions_in_numpy():
    model = fedavg_cnn(10)
    x = np.random.default_rng(0).normal(size=(2, 17, 16, 1)).astype(np.float32)
    params = jax.jit(model.init)(jax.random.key(0), x)
    held = jax.tree.map(np.asarray, params["params"])
    y = x
    for name in ("ConvReluPool_0", "ConvReluPool_1"):
        windows = np.lib.stride_tricks.sliding_window_view(y, (5, 5), axis=(1, 2))
        y = np.einsum("nhwcij,ijco->nhwo", windows, held[name]["kernel"]) + held[name]["bias"]
        height, width = (side // 2 * 2 for side in y.shape[1:3])
        blocks = y[:, :height, :width].reshape(2, height // 2, 2, width // 2, 2, -1)
        y = np.maximum(blocks.max(axis=(2, 4)), 0)
    y = np.maximum(y.reshape(2, -1) @ held["Dense_0"]["kernel"] + held["Dense_0"]["bias"], 0)
    expected = y @ held["Dense_1"]["kernel"] + held["Dense_1"]["bias"]
    np.testing.assert_allclose(jax.jit(model.apply)(params, x), expected, atol=1e-5)


@pytest.mark.slow
def test_textcnn_equals_convolutions_and_a_maximum_over_time():
    model = textcnn(4, vocabulary=(50,))
    x = jnp.asarray(np.random.default_rng(0).integers(0, 50, (3, 12)))
    params = model.init(jax.random.key(0), x)
    held = {k: np.asarray(v) for k, v in params["params"].items() if not isinstance(v, dict)}
    embedded = np.asarray(params["params"]["Embed_0"]["embedding"])[np.asarray(x)]
    features = []
    for span in (3, 4, 5):
        windows = [embedded[:, t : t + span].reshape(3, -1) for t in range(12 - span + 1)]
        outputs = [
            np.maximum(w @ held[f"kernel_{span}"] + held[f"bias_{span}"], 0) for w in windows
        ]
        features.append(np.max(outputs, axis=0))
    dense = params["params"]["Dense_0"]
    expected = np.concatenate(features, axis=1) @ np.asarray(dense["kernel"]) + np.asarray(
        dense["bias"]
    )
    np.testing.assert_allclose(model.apply(params, x), expected, atol=1e-5)
    assert -0.1 <= embedded.min() < -0.09
    assert 0.09 < embedded.max() <= 0.1


def test_conv1d_equals_convolutions_in_scipy():
    model = conv1d(3, channels=(4, 5), span=4)
    x = np.random.default_rng(0).normal(size=(2, 11, 3)).astype(np.float32)
    params = jax.jit(model.init)(jax.random.key(0), x)
    held = jax.tree.map(np.asarray, params["params"])
    y = x
    for name in ("Dense_0", "Dense_1"):
        channels, width = y.shape[2], held[name]["bias"].size
        kernel = held[name]["kernel"].reshape(4, channels, width)
        sums = np.zeros((*y.shape[:2], width))
        for one, o, c in np.ndindex(2, width, channels):
            # A window of four steps begins one step before its own.
            sums[one, :, o] += correlate(np.pad(y[one, :, c], (1, 2)), kernel[:, c, o], "valid")
        sums = np.maximum(sums + held[name]["bias"], 0)
        even = sums.shape[1] // 2 * 2
        y = sums[:, :even].reshape(2, even // 2, 2, width).max(axis=2)
    expected = y.mean(axis=1) @ held["head"]["kernel"] + held["head"]["bias"]
    np.testing.assert_allclose(jax.jit(model.apply)(params, x), expected, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("vocabulary", [None, (7,)])
def test_lstm_equals_its_equations_in_numpy(vocabulary):
    model = lstm(3, vocabulary, width=2, hidden=4, layers=2)
    rng = np.random.default_rng(0)
    # The first text has three words, of which the second has the id 0 too.
    texts = np.array([[3, 0, 5, 0, 0], [1, 2, 6, 0, 4]])
    x = texts if vocabulary else rng.normal(size=(2, 5, 2)).astype(np.float32)
    params = jax.jit(model.init)(jax.random.key(0), x)
    held = jax.tree.map(np.asarray, params["params"])
    y = held["Embed_0"]["embedding"][x] if vocabulary else x
    sigmoid = lambda a: 1 / (1 + np.exp(-a))  # noqa: E731
    for layer in ("OptimizedLSTMCell_0", "OptimizedLSTMCell_1"):
        cell, h = np.zeros((2, 4)), np.zeros((2, 4))
        outputs = []
        for t in range(5):
            i, f, g, o = (
                y[:, t] @ held[layer][f"i{gate}"]["kernel"]
                + h @ held[layer][f"h{gate}"]["kernel"]
                + held[layer][f"h{gate}"]["bias"]
                for gate in "ifgo"
            )
            cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(cell)
            outputs.append(h)
        y = np.stack(outputs, axis=1)
    last = y[[0, 1], [2, 4]] if vocabulary else y[:, -1]
    expected = last @ held["head"]["kernel"] + held["head"]["bias"]
    np.testing.assert_allclose(jax.jit(model.apply)(params, x), expected, atol=1e-5)


def test_lstm_decomposes_one_matrix_at_a_time():
    """XLA can wait for ever for several at once (jaxlib 0.10, a CPU of two cores)."""
    keys = jax.random.split(jax.random.key(0), 2)
    program = str(jax.make_jaxpr(jax.vmap(lambda key: lstm(6).init(key, SERIES[None])))(keys))
    decompositions = re.findall(r"f32\[([\d,]+)\] = qr\[", program)
    assert decompositions
    assert not [shape for shape in decompositions if shape.count(",") > 1]


def test_lstm_refuses_pairs_of_users_and_items():
    with pytest.raises(InputError, match="ids of one kind, not of 2: choose model mf"):
        lstm(1, (943, 1682))


@pytest.mark.slow
def test_mf_learns_ratings_that_factorise():
    rng = np.random.default_rng(0)
    users = rng.normal(size=(20, 3))
    items = rng.normal(size=(30, 3))
    x = jnp.asarray(np.stack(np.meshgrid(np.arange(20), np.arange(30)), axis=-1).reshape(-1, 2))
    y = jnp.asarray((users[x[:, 0]] * items[x[:, 1]]).sum(axis=1) + 3.5)
    task = jaxfl.regression(mf(1, vocabulary=(20, 30)), x[0], scale=None)
    optimizer = optax.adam(0.03)

    @jax.jit
    def step(carry, _):
        params, opt_state = carry
        loss = lambda p: jnp.mean((task.problem.apply(p, x)[:, 0] - y) ** 2)  # noqa: E731
        value, grad = jax.value_and_grad(loss)(params)
        updates, opt_state = optimizer.update(grad, opt_state, params)
        return (optax.apply_updates(params, updates), opt_state), value

    params = task.problem.init(jax.random.key(0))
    _, losses = jax.lax.scan(step, (params, optimizer.init(params)), None, 400)
    assert losses[0] > 5
    assert losses[-1] < 0.05


@pytest.mark.parametrize(
    ("name", "example", "message"),
    [
        ("resnet8", jnp.zeros(5), "resnet8 takes images"),
        ("fedavg_cnn", jnp.zeros(5), "fedavg_cnn takes images"),
        ("fedavg_cnn", jnp.zeros((15, 28, 1)), "fedavg_cnn takes images of 16x16 or more"),
        ("textcnn", jnp.zeros(20), "textcnn takes integer ids"),
        ("textcnn", jnp.zeros(4, jnp.int32), "textcnn takes 5 words or more, not 4"),
        ("mf", jnp.zeros(3, jnp.int32), "mf takes integer pairs"),
        ("transformer", jnp.zeros(20), "transformer takes integer ids"),
        ("conv1d", jnp.zeros((8, 8, 1)), "conv1d takes series"),
        ("conv1d", jnp.zeros((3, 1)), "conv1d takes series of 4 steps or more, not 3"),
        ("lstm", jnp.zeros(5), "lstm takes series"),
    ],
)
def test_a_model_rejects_inputs_of_another_kind(name, example, message):
    with pytest.raises(InputError, match=message):
        params_of(MODELS[name](3), example)
