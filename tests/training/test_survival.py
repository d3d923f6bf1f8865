"""Losses of times to an event beside lifelines and loops over the examples."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from lifelines import CoxPHFitter
from lifelines.datasets import load_rossi

import jaxfl
from jaxfl.core.errors import InputError
from jaxfl.core.types import Dataset
from jaxfl.training.objectives import data_loss
from jaxfl.training.survival import Hazards, cox, ends_of_bins


def by_hand(risk, y, weight, ties):
    """The errors from their definition, in float64."""
    time, event = np.asarray(y, float).T
    errors = np.zeros(len(time))
    for i in np.flatnonzero((event > 0) & (weight > 0)):
        at_risk = (weight * np.exp(risk))[(time >= time[i]) & (weight > 0)].sum()
        tied = (time == time[i]) & (event > 0) & (weight > 0)
        both = (weight * np.exp(risk))[tied].sum()
        shares = np.arange(tied.sum()) / tied.sum() if ties == "efron" else [0.0]
        errors[i] = np.mean([np.log(at_risk - share * both) for share in shares]) - risk[i]
    return errors


def drawn(seed, n=40):
    rng = np.random.default_rng(seed)
    y = np.stack([rng.integers(0, 9, n), rng.integers(0, 2, n)], axis=1).astype(np.float32)
    weight = (rng.integers(0, 3, n) / 2).astype(np.float32)
    return rng.normal(size=n).astype(np.float32), y, weight


@pytest.mark.parametrize("ties", ["efron", "breslow"])
@pytest.mark.parametrize("seed", range(4))
def test_errors_are_those_of_the_definition_whatever_padding_holds(ties, seed):
    risk, y, weight = drawn(seed)
    spoilt = np.where(weight[:, None] > 0, y, np.nan)
    risk_or_rubbish = np.where(weight > 0, risk, np.nan)[:, None]
    found = jax.jit(cox(ties))(risk_or_rubbish, spoilt, weight)
    np.testing.assert_allclose(found, by_hand(risk, y, weight, ties), atol=1e-5)


@pytest.mark.parametrize("ties", ["efron", "breslow"])
def test_derivatives_are_finite_at_any_scale(ties):
    risk, y, weight = drawn(0)
    gradient = jax.jit(jax.grad(lambda risk: jnp.sum(cox(ties)(risk[:, None], y, weight))))
    for scale in (0.0, 1.0, 1e2, 1e4, 1e8):
        assert np.isfinite(gradient(scale * risk)).all(), scale
    # Beside central differences of the definition.
    step = 1e-4
    for place in range(0, len(risk), 7):
        moved = [
            by_hand(risk + sign * step * (np.arange(len(risk)) == place), y, weight, ties).sum()
            for sign in (1, -1)
        ]
        slope = (moved[0] - moved[1]) / (2 * step)
        assert gradient(risk)[place] == pytest.approx(slope, abs=1e-3)


def test_the_minimum_is_that_of_lifelines():
    frame = load_rossi()
    fitted = CoxPHFitter().fit(frame, "week", "arrest")
    x = frame.drop(columns=["week", "arrest"]).to_numpy(np.float32)
    y = frame[["week", "arrest"]].to_numpy(np.float32)
    weight = jnp.ones(len(x))
    scale = x.std(axis=0)

    def loss(slope):
        return jnp.sum(cox()((x / scale) @ slope[:, None], y, weight))

    def newton(slope, _):
        return slope - jnp.linalg.solve(jax.hessian(loss)(slope), jax.grad(loss)(slope)), None

    slope, _ = jax.lax.scan(newton, jnp.zeros(x.shape[1]), length=8)
    np.testing.assert_allclose(slope / scale, fitted.params_, rtol=1e-3, atol=1e-4)
    assert -loss(slope) == pytest.approx(fitted.log_likelihood_, rel=1e-5)


def test_hazards_are_the_likelihood_of_each_example():
    rng = np.random.default_rng(0)
    ends = (1.0, 2.5, 4.0)
    y = np.array([[0.5, 1], [1, 1], [1, 0], [2.6, 1], [2.6, 0], [4, 0], [9, 1], [0, 0]], np.float32)
    logits = rng.normal(size=(len(y), 3)).astype(np.float32)
    hazard = 1 / (1 + np.exp(-logits.astype(float)))
    likelihoods = [
        hazard[0, 0],
        hazard[1, 0],
        1 - hazard[2, 0],
        (1 - hazard[3, 0]) * (1 - hazard[3, 1]) * hazard[3, 2],
        (1 - hazard[4, 0]) * (1 - hazard[4, 1]),
        np.prod(1 - hazard[5]),
        (1 - hazard[6, 0]) * (1 - hazard[6, 1]) * hazard[6, 2],
        1.0,
    ]
    np.testing.assert_allclose(Hazards(ends)(logits, y), -np.log(likelihoods), atol=1e-5)
    assert np.isfinite(jax.grad(lambda z: Hazards(ends)(z, y).sum())(1e4 * logits)).all()


def test_bins_hold_equally_many_events():
    rng = np.random.default_rng(0)
    pairs = np.stack([rng.exponential(10, 400), rng.random(400) < 0.5], axis=1)
    ends = ends_of_bins(pairs, 5)
    times = pairs[pairs[:, 1] > 0, 0]
    counts = np.histogram(times, [0, *ends])[0]
    assert counts.sum() == len(times)
    assert np.ptp(counts) <= 1
    assert ends[-1] == pairs[:, 0].max()


def test_an_error_that_depends_on_the_batch_is_not_taken_apart():
    model, example = jaxfl.models.linear(), np.zeros(3)
    with pytest.raises(InputError, match="depends on the others of its batch"):
        jaxfl.survival(model, example, example_clip=1.0)
    rng = np.random.default_rng(0)
    _, y, _ = drawn(1, 32)
    data = Dataset(
        jnp.asarray(rng.normal(size=(1, 32, 3)), jnp.float32),
        jnp.asarray(y)[None],
        jnp.ones((1, 32), bool),
    )
    task = jaxfl.survival(model, example, micro=8, batch_size=32)
    params = jax.tree.map(lambda leaf: leaf[None], task.problem.init(jax.random.key(0)))
    loss = data_loss(task.problem)
    found = task.gradient(loss)(jax.random.key(1), params, data, jnp.arange(1))
    of_all = jax.tree.map(lambda leaf: leaf[0], (params, data))
    expected = jax.grad(lambda w: loss(w, of_all[1], None, jax.random.key(1))[0])(of_all[0])
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a[0], b, atol=1e-6), found.grads, expected)


def test_other_targets_are_refused():
    for y in (np.zeros(4), np.zeros((4, 3))):
        with pytest.raises(InputError, match=r"expected pairs \(time, event\)"):
            cox()(jnp.zeros((4, 1)), jnp.asarray(y), jnp.ones(4))
        with pytest.raises(InputError, match=r"expected pairs\s+\(time, event\)"):
            Hazards((1.0, 2.0))(jnp.zeros((4, 2)), jnp.asarray(y))
    with pytest.raises(InputError, match="expected growing times above 0"):
        Hazards((2.0, 1.0))
    with pytest.raises(InputError, match="no event is seen after time 0"):
        ends_of_bins(np.array([[0.0, 1.0], [2.0, 0.0]]), 3)
