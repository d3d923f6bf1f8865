"""The order of examples is the same on all platforms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxfl.core import order, target
from jaxfl.training.batches import minibatches


@pytest.fixture
def on_tpu(monkeypatch):
    """A function that computes something as a program for a TPU does."""

    def call(function, *arguments, **named):
        with monkeypatch.context() as patch:
            patch.setattr(target, "platform", lambda: "tpu")
            return function(*arguments, **named)

    return call


def test_epochs_are_shuffled_alike_with_ties(on_tpu):
    rng = np.random.default_rng(0)
    epoch = jnp.asarray(np.sort(rng.integers(0, 4, 100)), jnp.int32)
    # Few different numbers, so that there are ties.
    bits = jnp.asarray(rng.integers(0, 9, 100), jnp.uint32)
    example = jnp.arange(100, dtype=jnp.int32)
    expected = sorted(range(100), key=lambda i: (int(epoch[i]), int(bits[i]), i))
    for shuffled in (
        order.shuffled(epoch, bits, example),
        on_tpu(order.shuffled, epoch, bits, example),
    ):
        assert shuffled.tolist() == expected
        assert shuffled.dtype == jnp.int32


@pytest.mark.long(every=4)
@pytest.mark.parametrize("mask", [[0, 1, 1, 0, 1], [1, 1], [0, 0, 0], [1, 0, 0]])
def test_real_examples_come_first(mask, on_tpu):
    mask = jnp.asarray(mask, bool)
    expected = [i for i, real in enumerate(mask) if real]
    expected += [i for i, real in enumerate(mask) if not real]
    for rows in (order.real_first(mask), on_tpu(order.real_first, mask)):
        assert rows.tolist() == expected


@pytest.mark.parametrize("real", [5, 0])
def test_a_client_has_the_same_batches(real, on_tpu):

    mask = jnp.arange(8) < real
    arguments = (jax.random.key(3), mask, 2)
    for mine, theirs in zip(
        minibatches(*arguments, steps=7), on_tpu(minibatches, *arguments, steps=7), strict=True
    ):
        assert mine.tolist() == theirs.tolist()
