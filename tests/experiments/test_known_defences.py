"""The attacks of `experiments.known_defences`, and the cells of its tables."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxfl
from experiments import known_defences
from jaxfl.core import tree
from jaxfl.data import Source

MALICIOUS = np.array([False, True, False, False, True, False])
CLASSES = 4


def uploads(attack):
    """The honest updates and those that are sent, of clients with 5 inputs [6, 24]."""
    rng = np.random.default_rng(0)
    before = {
        "bias": rng.normal(size=(6, CLASSES)).astype("f"),
        "kernel": rng.normal(size=(6, 5, CLASSES)).astype("f"),
    }
    after = jax.tree.map(lambda x: x + rng.normal(size=x.shape).astype("f"), before)
    uplink = known_defences.attack_uplink(attack, jnp.asarray(MALICIOUS))
    received = uplink(jax.random.key(0), before, after, jnp.arange(6))
    return [np.asarray(tree.ravel(x) - tree.ravel(before)) for x in (after, received)]


def cosine(a, b):
    return a @ b / np.linalg.norm(a) / np.linalg.norm(b)


def has_usual_length(honest, sent):
    lengths = np.linalg.norm(honest[~MALICIOUS], axis=1)
    np.testing.assert_allclose(
        np.linalg.norm(sent[MALICIOUS], axis=1), np.median(lengths), rtol=1e-4
    )
    np.testing.assert_allclose(sent[~MALICIOUS], honest[~MALICIOUS], atol=1e-5)


def test_the_crowd_opposes_the_benign_mean_without_copies():
    honest, sent = uploads(known_defences.crowd)
    has_usual_length(honest, sent)
    first, second = sent[MALICIOUS]
    mean = honest[~MALICIOUS].mean(axis=0)
    assert cosine(first, -mean) > 0.99
    assert 0.99 < cosine(first, second) < 0.999


def test_copycats_have_victims_of_their_own():
    honest, sent = uploads(known_defences.copycats)
    np.testing.assert_allclose(sent[[1, 4]], honest[[0, 2]], atol=1e-5)
    np.testing.assert_allclose(sent[~MALICIOUS], honest[~MALICIOUS], atol=1e-5)


def test_one_class_is_pushed_down():
    honest, sent = uploads(known_defences.pushed_down(CLASSES))
    has_usual_length(honest, sent)
    # The columns are the bias and the rows of the kernel, one after the other.
    down = np.tile(np.arange(CLASSES) == known_defences.LOWERED, 6) * -1.0
    for client in (1, 4):
        expected = honest[client] / np.linalg.norm(honest[client]) + down / np.linalg.norm(down)
        assert cosine(sent[client], expected) > 0.99


@pytest.mark.slow(seconds=5)
def test_a_model_with_the_backdoor_takes_the_corner_for_the_target():
    rng = np.random.default_rng(1)
    # The class is the bright row below the corner.
    y = np.arange(60) % 3
    x = rng.uniform(0, 0.1, (60, 5, 5, 1)).astype("f")
    x[np.arange(60), 2 + y] = 1.0
    source = Source(x, y, x, y, classes=3)
    model = jaxfl.models.linear(3)
    task = jaxfl.classification(model, x[0])
    before = tree.broadcast(task.problem.init(jax.random.key(0)), 2)
    malicious = jnp.array([False, True])
    benign = jnp.ones((2, 1)) * jnp.sqrt(100.0 / tree.size(before))
    updates = jnp.broadcast_to(benign, (2, tree.ravel(before).shape[1]))
    attack = known_defences.backdoor(task, source, noise=0.0)
    sent = attack(jax.random.key(1), before, updates, malicious)
    length = np.linalg.norm(np.asarray(updates[0]))
    np.testing.assert_allclose(np.linalg.norm(np.asarray(sent[1])), length, rtol=1e-4)
    step = tree.unravel(sent, jax.tree.map(lambda leaf: leaf[0], before))
    poisoned = jax.tree.map(lambda b, s: (b + s)[1], before, step)

    def predictions(images):
        return np.asarray(task.problem.apply(poisoned, jnp.asarray(images)).argmax(axis=1))

    assert (predictions(x) == y).mean() > 0.9
    assert (predictions(known_defences.corner(x, source.white)) == 0).mean() > 0.9


def test_a_table_has_a_column_for_each_threat():
    rows = {
        name: np.array([[0.4, 0.6], [0.3, 0.2], [0, i / 50]])
        for i, name in enumerate(known_defences.THREATS)
    }
    cells = known_defences.cells({"plain": rows}, "weight")
    assert cells == [["plain", "0.0", "1.0", "2.0", "3.0", "4.0", "5.0", "6.0"]]
    text = known_defences.markdown({"iid": {"plain": rows}})
    assert "| plain | 30 / 20 | 30 / 20 | 30 / 20 | 30 / 20 |" in text
    assert "iid: accuracy of the benign clients, %" in text
