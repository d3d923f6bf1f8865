"""The transformer against its definition in NumPy, and what it and the LSTM give at positions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import softmax

import jaxfl
from jaxfl.core import tree
from jaxfl.core.errors import InputError
from jaxfl.models import lstm, transformer

VOCABULARY, LENGTH, WIDTH, HEADS = 11, 6, 8, 2
RNG = np.random.default_rng(0)
IDS = RNG.integers(0, VOCABULARY, (3, LENGTH))
SMALL = {"width": WIDTH, "depth": 2, "heads": HEADS}


def small(**options):
    """A model and random weights, none of them 0 or 1 as the first ones are."""
    model = transformer(VOCABULARY, (VOCABULARY,), **{"positions": True} | SMALL | options)
    shapes = jax.eval_shape(model.init, jax.random.key(0), IDS)
    params = jax.tree.map(
        lambda leaf: RNG.normal(size=leaf.shape, scale=0.5).astype(np.float32), shapes
    )
    return model, params


def dense(x, layer):
    return x @ layer["kernel"] + layer["bias"]


def normalised(x, layer):
    """Layer normalisation (Ba et al., 2016), a position at a time."""
    rows = [(row - row.mean()) / np.sqrt(row.var() + 1e-5) for row in x]
    return np.array(rows) * layer["scale"] + layer["bias"]


def gelu(x):
    """The approximation of Hendrycks and Gimpel (2016)."""
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def logits_of(ids, weights):
    """GPT-2 of one text [n, outputs], position by position and head by head."""
    x = np.array([weights["token"]["embedding"][id] for id in ids])
    x = x + weights["position"]["embedding"][: len(ids)]
    for number in range(2):
        block = weights[f"block{number}"]
        query, key, value = np.split(dense(normalised(x, block["norm1"]), block["qkv"]), 3, axis=1)
        mixed = np.zeros_like(x)
        for head in np.split(np.arange(WIDTH), HEADS):
            for here in range(len(ids)):
                similarity = [query[here, head] @ key[past, head] for past in range(here + 1)]
                share = softmax(np.array(similarity) / np.sqrt(len(head)))
                mixed[here, head] = share @ value[: here + 1, head]
        x = x + dense(mixed, block["out"])
        x = x + dense(gelu(dense(normalised(x, block["norm2"]), block["up"])), block["down"])
    x = normalised(x, weights["norm"])
    return dense(x, weights["head"]) if "head" in weights else x @ weights["token"]["embedding"].T


@pytest.mark.parametrize("options", [{}, {"tied": True}, {"length": 9}, {"remat": True}])
def test_the_transformer_equals_gpt_2_in_numpy(options):
    model, params = small(**options)
    weights = jax.tree.map(lambda leaf: leaf.astype(np.float64), params["params"])
    expected = [logits_of(ids, weights) for ids in IDS]
    logits = jax.jit(model.apply)(params, IDS)
    assert logits.shape == (3, LENGTH, VOCABULARY)
    np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-4)
    # For one label an example, they are those of the last position.
    last = transformer(VOCABULARY, (VOCABULARY,), **SMALL | options)
    np.testing.assert_array_equal(jax.jit(last.apply)(params, IDS), logits[:, -1])


@pytest.mark.slow
def test_a_later_id_changes_no_earlier_logit():
    model, params = small()
    apply = jax.jit(model.apply)
    before = apply(params, IDS)
    for place in range(LENGTH):
        changed = IDS.copy()
        changed[:, place] = (changed[:, place] + 1) % VOCABULARY
        after = apply(params, changed)
        np.testing.assert_array_equal(before[:, :place], after[:, :place])
        assert (before[:, place:] != after[:, place:]).any(axis=-1).all()


@pytest.mark.slow
def test_what_is_computed_again_has_the_same_gradients():
    model, params = small()
    again, _ = small(remat=True)

    def gradients(module):
        loss = lambda params: jnp.square(module.apply(params, IDS)).mean()  # noqa: E731
        return jax.make_jaxpr(jax.grad(loss))(params), jax.jit(jax.grad(loss))(params)

    (plain, expected), (program, found) = gradients(model), gradients(again)
    assert "remat" in str(program)
    assert "remat" not in str(plain)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), found, expected
    )


def test_the_smallest_gpt_2_has_its_number_of_parameters():
    model = transformer(
        50257, (50257,), True, width=768, depth=12, heads=12, length=1024, tied=True
    )
    shapes = jax.eval_shape(model.init, jax.random.key(0), jnp.zeros((1, 8), int))
    assert tree.size(shapes) == 124_439_808  # of the published weights
    assert sorted(shapes["params"])[-3:] == ["norm", "position", "token"]


@pytest.mark.slow
def test_the_first_weights_have_the_spread_of_gpt_2():
    model = transformer(VOCABULARY, (VOCABULARY,), depth=2, width=64)
    weights = jax.jit(model.init)(jax.random.key(0), IDS)["params"]
    for name, spread in {"qkv": 0.02, "up": 0.02, "out": 0.01, "down": 0.01}.items():
        assert weights["block1"][name]["kernel"].std() == pytest.approx(spread, rel=0.1)


@pytest.mark.slow
def test_a_tied_model_has_no_head_and_its_features_are_of_each_position():
    model, params = small()
    example = jnp.asarray(IDS[0])
    problem = jaxfl.classification(model, example, scale=None).problem
    assert problem.head == "head"
    features = problem.features(params, jnp.asarray(IDS))
    assert features.shape == (3, LENGTH, WIDTH)
    np.testing.assert_allclose(
        dense(np.asarray(features), params["params"]["head"]),
        jax.jit(model.apply)(params, IDS),
        atol=1e-4,
    )
    assert jaxfl.classification(small(tied=True)[0], example, scale=None).problem.head is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"vocabulary": (943, 1682)}, "ids of one kind, not of 2: choose model mf"),
        ({"heads": 3}, "heads is 3: expected a width that heads divides, such as 126"),
        ({"tied": True, "vocabulary": (7,)}, "an output for each of 7 ids, and the targets have 5"),
        ({"length": 4}, "positions for 4 ids, and an example has 6"),
    ],
)
def test_options_that_do_not_fit_are_one_line(options, message):
    with pytest.raises(InputError, match=message):
        transformer(5, **options).init(jax.random.key(0), IDS)


@pytest.mark.slow
@pytest.mark.parametrize("vocabulary", [None, (VOCABULARY,)])
def test_an_lstm_of_positions_gives_what_it_gives_of_each_beginning(vocabulary):
    x = 1 + IDS % (VOCABULARY - 1) if vocabulary else RNG.normal(size=(3, LENGTH, 2))
    model, last = (lstm(4, vocabulary, 3, 5, 2, positions=each) for each in (True, False))
    params = jax.jit(last.init)(jax.random.key(0), x)
    logits = jax.jit(model.apply)(params, x)
    assert logits.shape == (3, LENGTH, 4)
    for step in range(LENGTH):
        expected = jax.jit(last.apply)(params, x[:, : step + 1])
        np.testing.assert_allclose(logits[:, step], expected, atol=1e-6)
