from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from toys import federation, run

import jaxfl
from jaxfl.algorithms import local
from jaxfl.core.errors import InputError
from jaxfl.models import MODELS, cedar3, cedar6
from jaxfl.models.norm import GroupNorm


def by_hand(stages, hidden, shape, classes=10, normalised=True):
    """Parameters of each layer: 3x3 kernels, biases, scale and shift of normalised channels."""
    height, width, channels = shape
    count = 0
    for stage in stages:
        for number, wide in enumerate(stage):
            count += 9 * channels * wide + wide + (2 * wide if number == 0 and normalised else 0)
            channels = wide
        height //= 2
        width //= 2
    return count + (height * width * channels + 1) * hidden + (hidden + 1) * classes


THREE = [[16], [32], [64]]
SIX = [[32, 64], [128, 128], [256, 256]]


@pytest.mark.parametrize(
    ("model", "shape", "stages", "hidden", "total"),
    [
        (cedar3, (28, 28, 1), THREE, 128, 98_666),
        (cedar3, (32, 32, 3), THREE, 128, 156_298),
        (cedar6, (32, 32, 3), SIX, 512, 3_229_706),
    ],
)
def test_parameters(model, shape, stages, hidden, total):
    def count(**options):
        params = jax.eval_shape(
            model(10, **options).init, jax.random.key(0), jnp.zeros((1, *shape))
        )
        return sum(x.size for x in jax.tree.leaves(params))

    assert count() == by_hand(stages, hidden, shape) == total
    assert count(groups=None) == by_hand(stages, hidden, shape, normalised=False)


class Plain(nn.Module):
    """FedCedar's network layer by layer: flax's convolutions and normalisation, pooling last."""

    stages: list[list[int]]
    hidden: int
    groups: int | None

    @nn.compact
    def __call__(self, x):
        for stage in self.stages:
            for number, wide in enumerate(stage):
                x = nn.Conv(wide, (3, 3))(x)
                if number == 0 and self.groups:
                    x = nn.GroupNorm(self.groups)(x)
                x = nn.relu(x)
            x = nn.max_pool(x, (2, 2), (2, 2))
        x = nn.relu(nn.Dense(self.hidden)(x.reshape(x.shape[0], -1)))
        return nn.Dense(10)(x)


@pytest.mark.slow(seconds=4)
@pytest.mark.parametrize("groups", [8, None])
@pytest.mark.parametrize(("model", "stages", "hidden"), [(cedar3, THREE, 128), (cedar6, SIX, 512)])
def test_a_network_equals_flaxs_layers_forward_and_backward(model, stages, hidden, groups):
    x = jax.random.normal(jax.random.key(0), (3, 10, 8, 3))
    ours, theirs = model(10, groups), Plain(stages, hidden, groups)
    params = jax.jit(theirs.init)(jax.random.key(1), x)["params"]
    # With scales that are not 1, and biases and shifts that are not 0.
    params = jax.tree.map(
        lambda p: p + 0.1 * jnp.sin(jnp.arange(1.0 * len(p))) if p.ndim == 1 else p, params
    )
    expected = jax.eval_shape(ours.init, jax.random.key(1), x)["params"]
    assert jax.tree.map(jnp.shape, params) == jax.tree.map(jnp.shape, dict(expected))

    def loss(network, params):
        return jnp.mean(jnp.sin(network.apply({"params": params}, x)))

    found, reference = (
        jax.jit(jax.value_and_grad(partial(loss, network)))(params) for network in (ours, theirs)
    )
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(reference), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", ["cedar3", "cedar6"])
def test_other_inputs_are_refused(name):
    for shape, message in (((4,), "choose mlp"), ((7, 9, 1), "8x8 or more, not 7x9x1")):
        with pytest.raises(InputError, match=message):
            jax.eval_shape(MODELS[name](10).init, jax.random.key(0), jnp.zeros((1, *shape)))


@pytest.mark.slow
def test_group_norm_equals_flaxs_forward_and_backward():
    x = 3 + jax.random.normal(jax.random.key(0), (2, 5, 4, 6))
    ours = GroupNorm(3)
    theirs = nn.GroupNorm(3)
    params = ours.init(jax.random.key(1), x)
    assert jax.tree.map(jnp.shape, params) == jax.tree.map(
        jnp.shape, theirs.init(jax.random.key(1), x)
    )
    params = jax.tree.map(lambda p: p + jnp.arange(6.0), params)

    def loss(norm, params, x):
        return jnp.sum(jnp.sin(norm.apply(params, x)))

    found, expected = (
        jax.value_and_grad(partial(loss, norm), (0, 1))(params, x) for norm in (ours, theirs)
    )
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
    with pytest.raises(InputError, match="4 groups do not divide 6 channels"):
        GroupNorm(4).init(jax.random.key(0), x)


@pytest.mark.slow(seconds=4)
def test_training_learns():
    """Colour images with one bright half; clients have different sizes, so rows are padded."""
    rng = np.random.default_rng(0)
    ys = [rng.integers(0, 2, n).astype(np.int32) for n in (40, 21, 33)]
    xs = [rng.normal(size=(len(y), 8, 8, 3)).astype(np.float32) for y in ys]
    for x, y in zip(xs, ys, strict=True):
        x[:, :4] += np.where(y, 1, -1)[:, None, None, None]
    task = jaxfl.classification(
        cedar3(2), jnp.zeros((8, 8, 3)), batch_size=16, epochs=3, optimizer=jaxfl.sgd(0.05)
    )
    _, info, _ = run(local(task), federation(xs, ys), 3)
    assert float(info.loss[0].min()) > 0.3 > 0.2 > float(info.loss[2].max())
