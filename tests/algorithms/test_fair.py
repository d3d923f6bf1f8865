"""q-FFL, AFL and TERM on least squares, beside NumPy written from the papers."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from toys import equal, federation, full, half, quick_key, run

import jaxfl
from jaxfl.algorithms import afl, fedavg, qffl, term
from jaxfl.core import tree
from jaxfl.core.messages import ServerState, Uploads
from jaxfl.models.mlp import mlp

RATE = 0.05
# Of the training examples; another fifth is for validation.
SIZES = (4, 8, 16)
rng = np.random.default_rng(0)
X = [rng.normal(size=(n * 5 // 4, 2)).astype(np.float32) for n in SIZES]
Y = [(x @ np.array([1, -1]) + 3 * k).astype(np.float32)[:, None] for k, x in enumerate(X)]
DATA = federation(X, Y)
P = np.array([len(x) for x in X]) / sum(len(x) for x in X)
# The methods with options under which the largest loss counts much.
METHODS = {qffl: {"q": 2.0}, afl: {"rate": 0.02}, term: {"tilt": 0.3}}


def task(steps=1):
    """Linear regression by whole gradients: no client has more examples than a batch."""
    return jaxfl.regression(
        mlp(1, hidden=()), np.zeros(2), batch_size=16, steps=steps, optimizer=optax.sgd(RATE)
    )


def flat(model):
    """The bias and the two weights [..., 3]."""
    return np.asarray(tree.ravel(tree.broadcast(model, 1))[0], np.float64)


def clients(w, steps=1):
    """Of each client the loss at w, and the model after its gradient steps, by NumPy."""
    losses, models = [], []
    for x, y, n in zip(X, Y, SIZES, strict=True):
        a = np.c_[np.ones(n), x[:n]].astype(np.float64)
        losses.append(np.mean((a @ w - y[:n, 0]) ** 2))
        model = w
        for _ in range(steps):
            model = model - RATE * 2 * a.T @ (a @ model - y[:n, 0]) / n
        models.append(model)
    return np.array(losses), np.array(models)


def qffl_of(w, losses, models, q, lipschitz):
    """Algorithm 2 of Li et al., 2020, for clients that count by their sizes."""
    deltas = losses[:, None] ** q * lipschitz * (w - models)
    lengths = np.sum((lipschitz * (w - models)) ** 2, axis=1)
    h = q * losses ** (q - 1) * lengths + lipschitz * losses**q
    return w - P @ deltas / (P @ h)


def nearest(point):
    """The nearest point of the simplex, by its condition: max(point - shift, 0) sums to 1."""
    low, high = point.min() - 1, point.max()
    for _ in range(100):
        shift = (low + high) / 2
        low, high = (shift, high) if np.maximum(point - shift, 0).sum() > 1 else (low, shift)
    return np.maximum(point - shift, 0)


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("q", [0.5, 3.0])
def test_qffl_is_the_papers_update(q, steps):
    algorithm = qffl(task(steps), q=q)
    state = algorithm.init(quick_key(0), DATA.train)
    for number in range(3):
        w = flat(state.server)
        expected = qffl_of(w, *clients(w, steps), q, 1 / (RATE * steps))
        state, _, _ = run(algorithm, DATA, 1, state=state, start=number)
        np.testing.assert_allclose(flat(state.server), expected, rtol=1e-4, atol=1e-5)


def test_term_moves_along_the_gradient_of_the_tilted_loss():
    """The gradient is that of the paper's objective by finite differences, not of its weights."""
    tilt, epsilon = 0.3, 1e-6
    algorithm = term(task(), tilt=tilt)
    state = algorithm.init(quick_key(0), DATA.train)

    def objective(w):
        return np.log(P @ np.exp(tilt * clients(w)[0])) / tilt

    for number in range(3):
        w = flat(state.server)
        moves = epsilon * np.eye(3)
        slope = [(objective(w + e) - objective(w - e)) / (2 * epsilon) for e in moves]
        state, _, _ = run(algorithm, DATA, 1, state=state, start=number)
        expected = w - RATE * np.array(slope)
        np.testing.assert_allclose(flat(state.server), expected, rtol=1e-4, atol=1e-5)


def test_afl_is_the_papers_algorithm():
    """Until a client has lost its whole weight, which no scaling by the sum would do."""
    rate, mixture = 0.02, np.ones(3) / 3
    algorithm = afl(task(), rate=rate)
    state = algorithm.init(quick_key(0), DATA.train)
    for number in range(4):
        losses, models = clients(flat(state.server))
        state, info, _ = run(algorithm, DATA, 1, state=state, start=number)
        np.testing.assert_allclose(info.weights[0, 0], mixture, atol=1e-5)
        np.testing.assert_allclose(flat(state.server), mixture @ models, rtol=1e-4, atol=1e-5)
        mixture = nearest(mixture + rate * losses)
        np.testing.assert_allclose(state.clients.record, mixture, atol=1e-5)
    assert mixture.min() == 0


@pytest.mark.parametrize(("method", "option"), [(qffl, "q"), (term, "tilt")])
def test_without_fairness_it_is_fedavg(method, option):
    """To the bit, also in cohorts of two clients."""
    given = {"participation": half(3)}
    state, info, _ = run(method(task(3), **{option: 0.0}), DATA, 2, **given)
    expected, info_of_fedavg, _ = run(fedavg(task(3)), DATA, 2, **given)
    equal(info.weights, info_of_fedavg.weights)
    equal(state.server, expected.server)
    told = {qffl: 2, term: 1}[method]
    assert (info.up == info_of_fedavg.up + told).all()


def test_afl_without_ascent_counts_clients_equally():
    state, info, _ = run(afl(task(), rate=0.0), DATA, 2, participation=half(3))
    np.testing.assert_allclose(info.weights, 0.5, rtol=1e-6)
    np.testing.assert_allclose(state.clients.record, 1 / 3, rtol=1e-6)


OBJECTIVES = {
    qffl: lambda losses: np.mean(losses**3) / 3,
    afl: np.max,
    term: lambda losses: np.log(np.mean(np.exp(0.3 * losses))) / 0.3,
}


@pytest.mark.slow(seconds=15)
@pytest.mark.parametrize("method", METHODS)
def test_clients_that_contradict_each_other_end_at_the_minimum_of_the_objective(method):
    """Three clients want 0 and one wants 4: the mean is 1, the least loss of the worst is at 2."""
    wanted = np.array([0.0, 0.0, 0.0, 4.0])
    x = [np.zeros((5, 2), np.float32)] * 4
    data = federation(x, [np.full((5, 1), y, np.float32) for y in wanted])
    places = np.linspace(0, 4, 4001)
    best = places[np.argmin([OBJECTIVES[method]((w - wanted) ** 2) for w in places])]
    algorithm = method(task(), **METHODS[method])
    rounds = jaxfl.make_rounds(algorithm, full(4))
    key = quick_key(0)
    state, _ = rounds(key, data, algorithm.init(key, data.train), 0, 400)
    assert best > 1.3
    np.testing.assert_allclose(flat(state.server)[0], best, atol=0.02)


def answer(method, losses, sizes, reported, record=None):
    """What the server makes of four models 1, 2, 3 and 4, all trained from 0."""
    algorithm = method(task(), **METHODS[method])
    received = jnp.where(jnp.asarray(reported), jnp.arange(1.0, 5), 0.0)[:, None]
    told = jnp.asarray(losses, jnp.float32)
    plain = (told, jnp.full(4, RATE)) if method is qffl else told
    uploads = Uploads(
        jnp.arange(4), jnp.asarray(sizes), jnp.asarray(reported), received, received * 0, plain
    )
    state = ServerState(jnp.zeros(1), () if record is None else jnp.asarray(record))
    return algorithm.wire.exchanges[0].server(quick_key(0), state, uploads)


QUARTERS = np.full(4, 0.25, np.float32)


@pytest.mark.parametrize("method", METHODS)
def test_a_loss_that_is_not_known_has_no_weight(method):
    """A loss of NaN, one of a client without examples, and one that was lost with its upload."""
    record = QUARTERS if method is afl else None
    outcome = answer(method, [2.0, np.nan, 9.0, 1e9], [4, 4, 0, 4], [1, 1, 1, 0], record)
    np.testing.assert_array_equal(outcome.weights[0], [1, 0, 0, 0])
    # q-FFL goes a part of the way: 1 / (1 + q L |w_i|^2 / F_i).
    expected = 1 / (1 + 2 / RATE / 2) if method is qffl else 1
    np.testing.assert_allclose(outcome.state.server, [expected], rtol=1e-5)
    if method is afl:
        np.testing.assert_array_equal(outcome.state.record, QUARTERS)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("losses", [[1e14, 1.0, 2.0, 0.0], [-3.0, 0.0, 0.0, -1.0], [0.0] * 4])
def test_losses_of_any_size_leave_everything_finite(method, losses):
    """Powers and exponentials of 1e14 overflow, and 0 to a negative power does."""
    outcome = answer(method, losses, [4, 8, 4, 4], [1, 1, 1, 1], QUARTERS)
    for leaf in jax.tree.leaves((outcome.state, outcome.weights)):
        assert np.isfinite(leaf).all()
    np.testing.assert_allclose(outcome.weights.sum(axis=1), 1, rtol=1e-6)
    if losses[0] > 1 and method is not afl:
        np.testing.assert_allclose(outcome.weights[0], [1, 0, 0, 0], atol=1e-6)
    if losses[0] > 1 and method is afl:
        np.testing.assert_allclose(outcome.state.record, [1, 0, 0, 0], atol=1e-6)


def test_a_cohort_of_afl_shares_what_its_clients_have():
    """Absent clients keep their weights, and clients without any count equally among themselves."""
    record = np.array([0.1, 0.3, 0.6, 0.0], np.float32)
    after = answer(afl, [30.0, 10.0, 5.0, 5.0], [4] * 4, [1, 1, 0, 0], record)
    shares = nearest(np.array([0.25, 0.75]) + 0.02 * np.array([30.0, 10.0]))
    np.testing.assert_allclose(after.weights[0], [0.25, 0.75, 0, 0], rtol=1e-6)
    np.testing.assert_allclose(after.state.record, [*(0.4 * shares), 0.6, 0.0], rtol=1e-5)
    nothing = np.array([0.0, 0.0, 1.0, 0.0], np.float32)
    after = answer(afl, [30.0, 10.0, 5.0, 5.0], [4] * 4, [1, 1, 0, 0], nothing)
    np.testing.assert_allclose(after.weights[0], [0.5, 0.5, 0, 0])
    np.testing.assert_array_equal(after.state.record, nothing)


@pytest.mark.slow(seconds=15)
@pytest.mark.parametrize("method", METHODS)
def test_reverse_mode_gives_the_slope_by_the_option(method):
    """Two rounds, in which one client of three has lost its upload."""
    ((option, value),) = METHODS[method].items()

    def last(value):
        algorithm = method(task(3), **{option: value})
        rounds = jaxfl.make_rounds(algorithm, full(3), lost=lambda key, ids, work: ids == 1)
        key = quick_key(0)
        state, _ = rounds(key, DATA, algorithm.init(key, DATA.train), 0, 2)
        return sum(jnp.sum(x**2) for x in jax.tree.leaves(state.server))

    step = 0.01 * value
    points = jnp.array([value - step, value, value + step])
    (low, _, high), slopes = jax.jit(jax.vmap(jax.value_and_grad(last)))(points)
    np.testing.assert_allclose(slopes[1], (high - low) / (2 * step), rtol=0.02)
