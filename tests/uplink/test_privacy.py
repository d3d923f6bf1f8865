import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import equal, quick_key

from jaxfl.core import tree
from jaxfl.core.errors import InputError
from jaxfl.training.channel import Channel
from jaxfl.uplink import attack, chain, gaussian

RNG = np.random.default_rng(0)
BEFORE = {"kernel": RNG.normal(size=(3, 40, 5)), "bias": RNG.normal(size=(3, 5))}
BEFORE = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), BEFORE)
UPDATE = jax.tree.map(lambda x: jnp.asarray(RNG.normal(size=x.shape), jnp.float32), BEFORE)
UPDATE = tree.scale(UPDATE, jnp.array([1.0, 1e-3, 1e6]))  # too long, short enough, far too long
AFTER = jax.tree.map(jnp.add, BEFORE, UPDATE)
IDS = jnp.array([4, 0, 7])


def sent(uplink, before=BEFORE, after=AFTER, ids=IDS, key=0):
    """The received models less those that the clients started from [M, D]."""
    received = uplink(quick_key(key), before, after, ids)
    return np.asarray(tree.ravel(received)) - np.asarray(tree.ravel(before))


def test_an_update_is_cut_to_the_norm_over_all_leaves():
    updates = np.asarray(tree.ravel(AFTER), np.float64) - np.asarray(tree.ravel(BEFORE), np.float64)
    for update, found in zip(updates, sent(gaussian(2.0, 0.0)), strict=True):
        length = np.sqrt((update**2).sum())
        np.testing.assert_allclose(found, update * min(1, 2 / length), atol=1e-5)
        assert np.linalg.norm(found) <= 2 + 1e-5


def test_an_update_in_bfloat16_is_cut_and_noised_in_float32():
    still = jnp.zeros((3, 1000), jnp.bfloat16)
    after = jnp.asarray(RNG.normal(size=(3, 1000)), jnp.bfloat16)
    received = gaussian(1.0, 0.0)(quick_key(0), still, after, IDS)
    assert received.dtype == jnp.bfloat16
    lengths = np.linalg.norm(np.asarray(after, np.float64), axis=1, keepdims=True)
    expected = jnp.asarray(np.asarray(after, np.float64) / lengths, jnp.bfloat16)
    equal(received, expected)
    # What is rounded is the sum, so that the noise has all digits of float32.
    noised = gaussian(1.0, 1.0)(quick_key(1), still, still, IDS)
    wide = jnp.zeros((3, 1000))
    equal(noised, gaussian(1.0, 1.0)(quick_key(1), wide, wide, IDS).astype(jnp.bfloat16))


def test_an_update_longer_than_the_largest_float_is_cut_too():
    found = sent(
        gaussian(1.0, 0.0), {"w": jnp.zeros((1, 2))}, {"w": jnp.full((1, 2), 1e30)}, IDS[:1]
    )
    assert np.linalg.norm(found) <= 1


def test_the_noise_is_normal_independent_and_has_the_stated_deviation():
    still = {"w": jnp.ones((3, 4000)), "b": jnp.ones((3, 1000))}
    found = sent(gaussian(4.0, 0.25), still, still)  # deviation 1
    np.testing.assert_allclose(found.mean(axis=1), 0, atol=5 / np.sqrt(5000))
    np.testing.assert_allclose(found.std(axis=1), 1, atol=5 / np.sqrt(2 * 5000))
    np.testing.assert_allclose((found**4).mean(), 3, atol=0.3)
    correlations = np.corrcoef([*found, found[0][::-1]])
    assert np.abs(correlations - np.eye(4)).max() < 5 / np.sqrt(5000)


def test_noise_belongs_to_the_key_and_the_client():
    still = jax.tree.map(jnp.ones_like, BEFORE)
    uplink = gaussian(1.0, 1.0)
    first = sent(uplink, still, still)
    np.testing.assert_array_equal(first, sent(uplink, still, still))
    moved = sent(uplink, still, still, ids=IDS[::-1])
    np.testing.assert_array_equal(first, moved[::-1])
    assert (first != sent(uplink, still, still, key=1)).all(axis=1).all()


def test_clipping_does_not_make_an_update_with_nan_or_inf_finite():
    broken = AFTER | {"bias": AFTER["bias"].at[1, 2].set(jnp.nan).at[2, 0].set(jnp.inf)}
    received, reported = Channel(gaussian(1.0, 1.0))(quick_key(0), BEFORE, broken, IDS)
    assert reported.tolist() == [True, False, False]
    equal(tree.take(received, jnp.array([1, 2])), tree.take(BEFORE, jnp.array([1, 2])))


def test_a_chain_goes_in_order():
    """The model of a malicious client is clipped if the attack comes first, and not if last."""
    poison = attack("same_value", np.ones(8, bool))
    assert np.linalg.norm(sent(chain(poison, gaussian(0.5, 0.0))), axis=1) == pytest.approx(0.5)
    assert np.linalg.norm(sent(chain(gaussian(0.5, 0.0), poison)), axis=1).min() > 5


def test_links_of_a_chain_draw_independent_numbers_and_the_first_as_it_would_alone():
    still = {"w": jnp.zeros((3, 5000))}
    link = gaussian(1.0, 1.0)
    alone = sent(link, still, still)
    twice = sent(chain(link, gaussian(1e6, 1e-6)), still, still)  # the second link clips nothing
    np.testing.assert_array_equal(sent(chain(link), still, still), alone)
    second = twice - alone
    np.testing.assert_allclose(second.std(axis=1), 1, atol=5 / np.sqrt(2 * 5000))
    every = np.abs(np.corrcoef([*alone, *second]) - np.eye(6))
    assert every.max() < 5 / np.sqrt(5000)
    np.testing.assert_array_equal(sent(chain()), sent(lambda key, before, after, ids: after))


@pytest.mark.parametrize(
    ("clip", "noise", "named"), [(0.0, 1.0, "clip is 0.0"), (1.0, -1.0, "noise is -1.0")]
)
def test_bad_numbers(clip, noise, named):
    with pytest.raises(InputError, match=named):
        gaussian(clip, noise)
