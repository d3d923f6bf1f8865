import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import quick_key

from jaxfl.core import tree
from jaxfl.core.errors import InputError
from jaxfl.training.channel import Channel
from jaxfl.uplink import quantise, top_k

RNG = np.random.default_rng(0)
UPDATE = {"kernel": 3 * RNG.normal(size=(2, 6, 5)), "bias": 0.1 * RNG.normal(size=(2, 7))}
UPDATE = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), UPDATE)
BEFORE = jax.tree.map(lambda x: jnp.full_like(x, 0.5), UPDATE)
AFTER = jax.tree.map(jnp.add, BEFORE, UPDATE)
IDS = jnp.array([3, 1])
MODEL = {"kernel": jnp.zeros((6, 5)), "bias": jnp.zeros(7)}


def read(uplink, before=BEFORE, after=AFTER, ids=IDS, key=0):
    """The update as the server decodes it."""
    received = uplink(jax.random.key(key), before, after, ids)
    return jax.tree.map(lambda r, b: np.asarray(r) - np.asarray(b), received, before)


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_a_leaf_is_whole_numbers_times_its_own_scale(bits):
    found = read(quantise(bits))
    levels = 2 ** (bits - 1) - 1
    for name, leaf in UPDATE.items():
        for u, q in zip(np.asarray(leaf), found[name], strict=True):  # client by client
            scale = np.abs(u).max() / levels
            np.testing.assert_allclose(q / scale, np.round(q / scale), atol=1e-3 * levels)
            assert (np.abs(q - u) < scale * 1.001).all()
            assert np.abs(q).max() == pytest.approx(np.abs(u).max(), rel=1e-5)


def test_rounding_is_unbiased():
    update = {"w": UPDATE["kernel"][0]}
    times = 4000
    compressor = quantise(3)
    drawn = jax.vmap(lambda key: compressor.read(key, update)["w"])(
        jax.random.split(jax.random.key(0), times)
    )
    scale = np.abs(update["w"]).max() / 3
    np.testing.assert_allclose(drawn.mean(axis=0), update["w"], atol=5 * scale / 2 / np.sqrt(times))
    assert (np.asarray(drawn).std(axis=0) > 0).mean() > 0.9  # not to the nearest


def test_the_largest_entries_of_all_leaves_are_kept():
    found = read(top_k(0.2))
    for i in range(2):
        flat, kept = (np.concatenate([np.ravel(x[name][i]) for name in x]) for x in (UPDATE, found))
        expected = np.zeros_like(flat)
        places = np.argsort(-np.abs(flat))[: round(0.2 * 37)]
        expected[places] = flat[places]
        np.testing.assert_allclose(kept, expected, atol=1e-6)
    for name, leaf in read(top_k(1.0)).items():
        np.testing.assert_allclose(leaf, UPDATE[name], atol=1e-6)


def test_bytes_of_one_client():
    assert quantise(8).bytes(MODEL) == 37 + 2 * 4
    assert quantise(4).bytes(MODEL) == 19 + 2 * 4  # 18.5 bytes are 19
    assert top_k(0.2).bytes(MODEL) == 7 * (4 + 4)
    assert top_k(1e-6).bytes(MODEL) == 8  # at least one
    nothing = {"kernel": None}
    assert (quantise().bytes(nothing), top_k(0.5).bytes(nothing)) == (0, 0)


@pytest.mark.parametrize("uplink", [quantise(), top_k(0.5)], ids=["int8", "topk"])
def test_a_zero_update_is_decoded_as_zero(uplink):
    for leaf in jax.tree.leaves(read(uplink, after=BEFORE)):
        assert not leaf.any()


@pytest.mark.parametrize("uplink", [quantise(), top_k(0.5)], ids=["int8", "topk"])
def test_a_model_with_nan_does_not_become_finite(uplink):
    broken = AFTER | {"bias": AFTER["bias"].at[0, 2].set(jnp.nan)}
    assert Channel(uplink)(jax.random.key(0), BEFORE, broken, IDS)[1].tolist() == [
        False,
        True,
    ]


def test_rounding_belongs_to_the_client_and_the_leaf():
    same = jax.tree.map(lambda x: jnp.broadcast_to(x[0], x.shape), (BEFORE, AFTER))
    one = read(quantise(), *same)
    other = read(quantise(), *same, ids=IDS[::-1])
    for name in one:
        np.testing.assert_array_equal(one[name][0], other[name][1])
        assert (one[name][0] != one[name][1]).any()
    twins = {"a": UPDATE["kernel"][0], "b": UPDATE["kernel"][0]}
    drawn = quantise().read(jax.random.key(0), twins)
    assert (drawn["a"] != drawn["b"]).any()


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: quantise(1), "1 bits: expected 2 to 16"),
        (lambda: top_k(0.0), r"fraction of 0.0: expected a fraction in \(0, 1\]"),
        (lambda: top_k(1.5), "fraction of 1.5"),
    ],
)
def test_bad_numbers(make, named):
    with pytest.raises(InputError, match=named):
        make()


def test_statistics_are_sent_whole_beside_the_largest_parameters():
    before = {"params": jnp.zeros((1, 4)), "batch_stats": jnp.zeros((1, 2))}
    after = {"params": jnp.array([[3.0, -1.0, 0.5, -2.0]]), "batch_stats": jnp.full((1, 2), 500.0)}
    uplink = top_k(0.5)
    sent = uplink(quick_key(0), before, after, jnp.arange(1))
    assert sent["params"].tolist() == [[3.0, 0.0, 0.0, -2.0]]
    assert sent["batch_stats"].tolist() == [[500.0, 500.0]]
    assert uplink.bytes(tree.at(after, 0)) == 8 * 2 + 4 * 2
