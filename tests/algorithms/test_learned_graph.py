"""The learned graph: pFedGraph at the start, and gradients beside NumPy in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy.optimize import brentq
from toys import (
    SIZES,
    close,
    deployed,
    federation,
    half,
    linear,
    opposite_groups,
    quadratic,
    quick_key,
    run,
)

from jaxfl.algorithms import learned_graph, pfedgraph
from jaxfl.core.types import Dataset, Federation, Problem, State, Task
from jaxfl.experiment.privacy.audit import audit
from jaxfl.kernels.learned import project_smoothly
from jaxfl.simulation import mesh
from jaxfl.training.channel import Channel, faithful
from jaxfl.training.gradients import full_gradient, full_loss
from jaxfl.training.trainer import trainer


@pytest.mark.long
@pytest.mark.parametrize("guard", ["client", "none"])
def test_without_learning_it_is_pfedgraph(guard):
    data = opposite_groups(sizes=SIZES)
    expected, told, _ = run(pfedgraph(linear(), lam=0.5), data, 3, participation=half(6))
    algorithm = learned_graph(linear(), lam=0.5, rate=0.0, guard=guard)
    state, info, _ = run(algorithm, data, 3, participation=half(6))
    np.testing.assert_allclose(info.weights, told.weights, atol=1e-6)
    close(state.clients.memory, expected.clients.memory)


# The program and its derivative, in float64.


def smooth_row(v, width):
    """The smooth form of the projection of one row; nearly the projection for a small width."""

    def heights(t):
        return width * np.logaddexp(0, (v - t) / width)

    root = brentq(lambda t: heights(t).sum() - 1, v.min() - 2, v.max() + 50 * width, xtol=1e-14)
    return heights(root)


def rows_of(theta, found, sizes, alpha, width):
    """The rows for theta = [log_alpha, own, prior, similarities ...]."""
    prior = sizes ** theta[2]
    near = np.tensordot(theta[3:], found, axes=1) + theta[1] * np.eye(len(sizes))
    targets = prior / prior.sum() + near / (2 * alpha * np.exp(theta[0]))
    return np.stack([smooth_row(target, width) for target in targets])


def differences(function, at, step=1e-5):
    """The gradient of a function of a vector by central differences."""
    moves = step * np.eye(at.size)
    return np.array([(function(at + m) - function(at - m)) / (2 * step) for m in moves])


@pytest.mark.parametrize("width", [0.02, 0.3, 5.0])
def test_the_derivative_of_the_projection_is_that_of_its_smooth_form(width):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(4, 5)).astype(np.float32)
    rows[0, 2] = 9  # a vertex
    along = rng.normal(size=(4, 5)).astype(np.float32)
    given = (jnp.asarray(rows),), (jnp.asarray(along),)
    weights, moved = jax.jvp(lambda v: project_smoothly(v, width), *given)
    np.testing.assert_allclose(weights[0], np.eye(5)[2], atol=1e-6)
    for row, direction, found in zip(rows.astype(float), along.astype(float), moved, strict=True):
        above, below = (smooth_row(row + s * direction, width) for s in (1e-5, -1e-5))
        np.testing.assert_allclose(found, (above - below) / 2e-5, atol=2e-5)


CENTRES = np.array([[1.0, 0, 0], [0.7, 0.5, 0], [-2.0, 1, 0], [0, 0, 1.5], [-1.8, 1, 0.2]])
COUNTS = np.array([20, 30, 10, 4, 15])  # client 3 has no validation examples
LEARNS = np.array([True, True, True, False, True])
RATE = 0.1


def clients_with_one_training_example():
    """All training examples of a client are equal, so that no choice of batches matters."""
    rng = np.random.default_rng(1)
    xs = [np.tile(c, (n, 1)) for c, n in zip(CENTRES, COUNTS, strict=True)]
    goals = np.zeros((5, 3))
    for client in np.flatnonzero(LEARNS):
        own = xs[client][COUNTS[client] - COUNTS[client] // 5 :]
        own += rng.normal(size=own.shape)
        goals[client] = own.mean(axis=0)
    data = federation([x.astype(np.float32) for x in xs], [np.zeros(n, np.int32) for n in COUNTS])
    return data, goals


def cosines(models):
    unit = models / np.linalg.norm(models, axis=1, keepdims=True)
    return unit @ unit.T


def first_gradient(algorithm, data, start):
    """The gradient of theta in the first round, from Adam's mean, and that of lam."""
    state = algorithm.init(quick_key(0), data.train)
    memory = state.clients.memory._replace(model={"w": jnp.asarray(start, jnp.float32)})
    clients = state.clients._replace(memory=memory)
    initial = np.asarray(state.server.initial["w"], float)
    after, info, _ = run(algorithm, data, 1, state=State(clients, state.server))
    mean = after.server.opt_state[0].mu
    graph = np.concatenate([np.ravel(x) / 0.1 for x in mean.graph])
    return graph, float(mean.lam) / 0.1, initial, info


@pytest.mark.long
@pytest.mark.parametrize(("alpha", "soft"), [(3.0, 0.01), (0.15, 1.0)])
@pytest.mark.parametrize("through", [0, 3])
def test_the_gradient_through_mixing_and_local_steps_equals_differences(alpha, soft, through):
    """With a large alpha all weights are positive, and it is the derivative of the loss itself.

    With a small one some are 0, and it is that of the smooth form of the program.
    """
    data, goals = clients_with_one_training_example()
    start = np.random.default_rng(2).normal(size=(5, 3))
    algorithm = learned_graph(
        quadratic(steps=4, learning_rate=RATE),
        alpha=alpha,
        soft=soft,
        through=through,
        lam=0.7,
        snap=None,
        guard="none",
    )
    found, of_lam, initial, info = first_gradient(algorithm, data, start)
    # The anchor of the first round is 0: training goes to the client's own centre.
    trained = CENTRES + (1 - RATE) ** 4 * (start - CENTRES)
    whole = cosines(trained - initial)
    near = np.stack([whole, whole, cosines(trained - start)])
    theta = np.array([0.0, 0, 1, 1, 0, 0])
    exact = rows_of(theta, near, COUNTS.astype(float), alpha, 1e-4)
    np.testing.assert_allclose(info.weights[0], exact, atol=1e-3)
    assert (exact.min() > 0.05) == (alpha == 3.0)
    anchor = exact @ (trained / np.linalg.norm(trained, axis=1, keepdims=True))

    def losses(models, lam):
        for _ in range(through):
            norm = np.linalg.norm(models, axis=1, keepdims=True)
            inner = (models * anchor).sum(axis=1, keepdims=True)
            pull = anchor / norm - inner * models / norm**3
            models = models - RATE * (models - CENTRES - lam / 2 * pull)
        return (((models - goals) ** 2).sum(axis=1) / 2)[LEARNS].mean()

    def of_theta(values):
        rows = rows_of(values, near, COUNTS.astype(float), alpha, soft / 5)
        if alpha == 3.0:
            return losses(rows @ trained, 0.7)
        return (by_mixture * (rows @ trained)).sum()

    at = (exact @ trained).ravel()
    by_mixture = differences(lambda x: losses(x.reshape(5, 3), 0.7), at).reshape(5, 3)
    np.testing.assert_allclose(found, differences(of_theta, theta), atol=2e-4)
    assert np.abs(found).min() > 1e-4
    expected = differences(lambda lam: losses(exact @ trained, lam[0]), np.array([0.7]))[0]
    np.testing.assert_allclose(of_lam, expected, atol=1e-4)
    assert (abs(of_lam) > 1e-4) == (through > 0)
    batches = 4 + (np.ceil(COUNTS // 5 / 4) + 3 * through)
    np.testing.assert_array_equal(info.batches[0], batches)
    assert info.up.tolist() == [[6 + (through > 0)] * 5]


def hidden_groups(clients=8):
    """Two groups by a small part of the model; a large part that no validation example depends on.

    The model is a [20] and b [2]. Training lowers |b - x_b|^2 / 2 + <a, x_a>, so a moves away from
    where the client's training examples are; in validation examples x_a is 0.
    """
    rng = np.random.default_rng(3)
    centres = np.where(np.arange(clients)[:, None] % 2, 1.0, -1.0) * np.array([1.0, 0.5])

    def draw(n, nuisance):
        b = centres[:, None] + rng.normal(size=(clients, n, 2))
        a = np.broadcast_to(nuisance[:, None], (clients, n, 20))
        x = jnp.asarray(np.concatenate([a, b], axis=-1), jnp.float32)
        return Dataset(x, jnp.zeros((clients, n), jnp.int32), jnp.ones((clients, n), bool))

    data = Federation(
        draw(4, 5 * rng.normal(size=(clients, 20))),
        draw(30, np.zeros((clients, 20))),
        draw(1, np.zeros((clients, 20))),
    )

    def apply(params, x):
        gaps = params["b"][None] - x[:, 20:]
        along = (x[:, :20] * params["a"][None]).sum(axis=1, keepdims=True)
        return jnp.concatenate([along, gaps], axis=1)

    def error(prediction, y):
        return prediction[:, 0] + 0.5 * jnp.sum(prediction[:, 1:] ** 2, axis=1)

    problem = Problem(
        lambda key: {"a": jnp.zeros(20), "b": 0.1 * jax.random.normal(key, (2,))},
        apply,
        error,
        lambda prediction, y: -error(prediction, y),
    )
    task = Task(
        problem,
        lambda objective, **changes: trainer(
            objective, **({"optimizer": optax.sgd(0.2), "batch_size": 4, "steps": 10} | changes)
        ),
        lambda objective: full_gradient(objective, batch_size=32),
        lambda objective: full_loss(objective, batch_size=32),
        Channel(faithful),
    )
    return task, data, centres


@pytest.mark.slow
def test_it_finds_groups_that_the_cosine_of_whole_models_misses():
    task, data, centres = hidden_groups()
    same = centres[:, None, 0] == centres[None, :, 0]
    errors, shares = {}, {}
    for rate in (0.0, 0.1):
        algorithm = learned_graph(task, rate=rate)
        state, info, _ = run(algorithm, data, 30)
        models = np.asarray(deployed(algorithm, state, 8)["b"])
        errors[rate] = ((models - centres) ** 2).sum(axis=1).mean()
        shares[rate] = (info.weights[-1] * same).sum(axis=1).mean()
    assert shares[0.0] < 0.7
    assert shares[0.1] > 0.95
    assert errors[0.1] < 0.5 * errors[0.0]


def validation_losses(task, data, models):
    def loss(model, own):
        return task.problem.error(task.problem.apply(model, own.x), own.y).mean()

    return np.asarray(jax.vmap(loss)(models, data.val))


@pytest.mark.long
@pytest.mark.parametrize("guard", ["client", "server"])
def test_the_guard_keeps_validation_losses_below_those_of_the_first_graph(guard):
    """Theta is turned so that clients give their own model no weight, and others as they differ."""
    task, data, _ = hidden_groups()
    state = learned_graph(task).init(quick_key(0), data.train)
    graph = state.server.learned.graph
    free = learned_graph(task, guard="none", rate=0.0)
    guarding = learned_graph(task, guard=guard, rate=0.0)
    wrong = graph._replace(own=graph.own - 3.0, similarity=-jnp.ones_like(graph.similarity))

    def losses(chosen, graph):
        server = state.server._replace(learned=state.server.learned._replace(graph=graph))
        method = {"none": free, guard: guarding}[chosen]
        after, info, _ = run(method, data, 1, state=State(state.clients, server))
        return validation_losses(task, data, after.clients.memory.model), info

    first, _ = losses("none", graph)
    unguarded, _ = losses("none", wrong)
    guarded, info = losses(guard, wrong)
    assert unguarded.mean() > first.mean() + 0.1
    if guard == "client":
        np.testing.assert_allclose(guarded, np.minimum(first, unguarded), rtol=1e-3)
        assert (guarded <= first + 1e-3).all()
    else:
        np.testing.assert_allclose(guarded, first, rtol=1e-3)
        assert info.metrics["chosen"] == 0


@pytest.mark.slow
def test_only_every_kth_round_learns_and_pays():
    data = opposite_groups()
    algorithm = learned_graph(linear(), every=2, guard="none")
    state, info, _ = run(algorithm, data, 1)
    later, told, _ = run(algorithm, data, 1, state=state, start=1)
    third, again, _ = run(algorithm, data, 1, state=later, start=2)
    close(state.server.learned, later.server.learned, 0.0)
    assert not np.array_equal(
        later.server.learned.graph.similarity, third.server.learned.graph.similarity
    )
    assert [x.up[0, 0].item() for x in (info, told, again)] == [36, 18, 36]
    assert [x.batches[0, 0].item() for x in (info, told, again)] == [6, 5, 6]
    assert info.down[0, 0] == 36


@pytest.mark.slow
def test_the_floats_of_the_guard_are_counted():
    _, info, _ = run(learned_graph(linear()), opposite_groups(), 1)
    assert (info.up[0, 0], info.down[0, 0]) == (37, 54)


@pytest.mark.slow
def test_lam_is_learned_through_local_steps_on_one_device_or_four():
    data = opposite_groups()
    algorithm = learned_graph(linear(), through=2)
    state, info, _ = run(algorithm, data, 2)
    assert float(state.server.learned.lam) != np.float32(0.01)
    assert np.isfinite(info.metrics["gain"]).all()
    with jax.set_mesh(mesh.make_mesh(4)):
        close((state, info), run(algorithm, mesh.place(data), 2)[:2])


@pytest.mark.slow
def test_noise_on_updates_can_be_followed_into_the_steps_of_the_gradient():
    """The audit of privacy traces them, and finds that the method is not sealed."""
    found = audit(learned_graph, linear(), {"through": 2}, opposite_groups(clients=3))
    assert not found.sealed
    assert len(found.round.uploads) == 2
