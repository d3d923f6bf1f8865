import dataclasses
from statistics import NormalDist

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import linear, opposite_groups, quick_key, run

from jaxfl.algorithms import fedavg
from jaxfl.core import tree
from jaxfl.core.errors import InputError
from jaxfl.experiment import Setting, gather, resolve
from jaxfl.uplink import ATTACKS, attack, malicious_clients

BEFORE = {"kernel": jnp.arange(24.0).reshape(4, 3, 2), "bias": -jnp.ones((4, 3))}
AFTER = jax.tree.map(lambda x: x + 1.5 + 0.1 * x**2, BEFORE)
MALICIOUS = np.array([False, True, False, False, True, True])


def received(name, ids, key=0):
    return attack(name, MALICIOUS)(quick_key(key), BEFORE, AFTER, jnp.asarray(ids))


@pytest.mark.long(every=13)
@pytest.mark.parametrize("name", sorted({*ATTACKS} - {"label_flip"}))
def test_malicious_clients_attack_and_benign_ones_do_not(name):
    found = received(name, [0, 1, 3, 4])
    for x, sent in zip(jax.tree.leaves(AFTER), jax.tree.leaves(found), strict=True):
        assert (sent.shape, sent.dtype) == (x.shape, x.dtype)
        np.testing.assert_array_equal(sent[np.array([0, 2])], x[np.array([0, 2])])
    malicious = np.array([1, 3])
    changed = np.asarray(tree.ravel(found)) != np.asarray(tree.ravel(AFTER))
    assert changed[malicious].any(axis=1).all()


def test_each_attack_sends_what_the_paper_says():
    before, after = (np.asarray(tree.ravel(x))[1] for x in (BEFORE, AFTER))
    sent = {name: np.asarray(tree.ravel(received(name, [0, 1, 3, 4])))[1] for name in ATTACKS}
    np.testing.assert_array_equal(sent["same_value"], np.ones(9))
    np.testing.assert_array_equal(sent["sign_flip"], -after)
    np.testing.assert_array_equal(sent["reverse"], 2 * before - after)
    np.testing.assert_array_equal(np.sort(sent["shuffle"]), np.sort(after))
    np.testing.assert_array_equal(sent["label_flip"], after)
    np.testing.assert_allclose(sent["replacement"], before + 4 / 2 * (after - before))
    three = attack("replacement", MALICIOUS, 3.0)(
        quick_key(0), BEFORE, AFTER, jnp.array([0, 1, 3, 4])
    )
    np.testing.assert_allclose(tree.ravel(three)[1], before + 3 * (after - before))
    large = attack("gauss", np.array([True]))(
        quick_key(0),
        {"w": jnp.zeros((1, 5000))},
        {"w": jnp.full((1, 5000), 9.0)},
        jnp.array([0]),
    )["w"]
    assert abs(float(large.mean())) < 0.05
    assert abs(float(large.std()) - 1) < 0.05


def test_a_little_is_the_largest_deviation_that_a_majority_exceeds():
    rng = np.random.default_rng(0)
    after = rng.normal(size=(10, 6)).astype(np.float32)
    malicious = np.arange(10) < 3
    found = attack("little", malicious)(
        quick_key(0), {"w": after * 0}, {"w": jnp.asarray(after)}, jnp.arange(10)
    )
    z = NormalDist().inv_cdf((7 - (10 // 2 + 1 - 3)) / 7)
    own = after[malicious].astype(np.float64)
    np.testing.assert_allclose(
        found["w"][:3], np.tile(own.mean(0) - z * own.std(0), (3, 1)), atol=1e-5
    )
    np.testing.assert_array_equal(found["w"][3:], after[3:])
    further = attack("little", malicious, 2.5)(
        quick_key(0), {"w": after * 0}, {"w": jnp.asarray(after)}, jnp.arange(10)
    )
    np.testing.assert_allclose(further["w"][0], own.mean(0) - 2.5 * own.std(0), atol=1e-5)
    most = attack("little", np.arange(10) < 8)
    most = most(quick_key(0), {"w": after}, {"w": jnp.asarray(after)}, jnp.arange(10))
    assert np.isfinite(most["w"]).all()


@pytest.mark.slow
def test_labels_of_malicious_clients_are_flipped():
    setting = Setting(
        clients=5, partition="iid", attack="label_flip", attack_ratio=0.4, attack_seed=1
    )
    without = Setting(clients=5, partition="iid")
    flipped, clean = (gather(resolve(s)).federation for s in (setting, without))
    malicious = malicious_clients(5, 0.4, 1)
    assert (malicious != malicious_clients(5, 0.4, 0)).any()
    for part in ("train", "val"):
        a, b = (np.asarray(getattr(f, part).y) for f in (flipped, clean))
        np.testing.assert_array_equal(a[malicious], 9 - b[malicious])
        np.testing.assert_array_equal(a[~malicious], b[~malicious])
    several = gather(resolve(dataclasses.replace(setting, seeds=2))).federation
    np.testing.assert_array_equal(
        np.asarray(several.train.y)[0, malicious, :50], np.asarray(flipped.train.y)[malicious, :50]
    )


def test_malicious_clients_may_be_named():
    named = Setting(clients=5, partition="iid", attack="label_flip", malicious=(3, 1))
    flipped, clean = (
        gather(resolve(s)).federation for s in (named, Setting(clients=5, partition="iid"))
    )
    changed = (np.asarray(flipped.train.y) != np.asarray(clean.train.y)).any(axis=1)
    assert np.flatnonzero(changed).tolist() == [1, 3]


@pytest.mark.parametrize("name", ["shuffle", "gauss"])
def test_random_numbers_belong_to_the_client(name):
    """They do not depend on its place in the cohort; other clients and keys have others."""
    one, two = (tree.ravel(received(name, ids)) for ids in ([1, 0, 4, 2], [4, 0, 1, 2]))
    if name == "gauss":  # the models in those places differ, their noise does not
        np.testing.assert_array_equal(one[0], two[2])
    assert (one[0] != one[2]).any()
    assert (one[0] != tree.ravel(received(name, [1, 0, 4, 2], key=1))[0]).any()


def test_the_choice_of_malicious_clients():
    chosen = malicious_clients(10, 0.4)
    assert chosen.sum() == 4
    assert not malicious_clients(10, 0.0).any()
    np.testing.assert_array_equal(chosen, malicious_clients(10, 0.4))
    with pytest.raises(InputError, match=r"ratio of 1.0: expected a fraction in \[0, 1\)"):
        malicious_clients(10, 1.0)
    with pytest.raises(InputError, match=r"unknown attack 'sign-flip': did you mean sign_flip"):
        attack("sign-flip", chosen)
    with pytest.raises(InputError, match="attack shuffle has no strength"):
        attack("shuffle", chosen, 2.0)
    with pytest.raises(InputError, match=r"scale is 0\.0: expected a positive number"):
        attack("mimic", chosen, 0.0)


@pytest.mark.slow
def test_an_attack_reaches_the_aggregate():
    data = opposite_groups()
    task = linear(uplink=attack("same_value", np.ones(6, bool)))
    state, _, _ = run(fedavg(task), data, 1)
    for leaf in jax.tree.leaves(state.server):
        np.testing.assert_allclose(leaf, 1.0, rtol=1e-6)
