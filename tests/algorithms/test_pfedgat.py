"""pFedGAT: its weights, the clients' answers, and rounds against NumPy written from the paper."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy.special import logsumexp
from toys import (
    close,
    deployed,
    federation,
    linear,
    made,
    opposite_groups,
    quadratic,
    quick_key,
    run,
)

import jaxfl
from jaxfl.algorithms import local, pfedgat
from jaxfl.core import tree
from jaxfl.core.errors import InputError
from jaxfl.core.messages import Clients
from jaxfl.core.streams import client_keys, stream
from jaxfl.core.types import Cohort, State
from jaxfl.kernels.attention import attention_weights, layer_norm
from jaxfl.kernels.mixing import mix
from jaxfl.training.batches import minibatches
from jaxfl.training.objectives import data_loss

STEPS = 6
BATCH = 8
RATE = 0.1
HEADS = 3
WIDTH = 4
ETA = 0.3


def stirred(state, seed=0):
    """The state with random numbers added to W and a, which otherwise start partly at zero."""
    rng = np.random.default_rng(seed)
    learned, initial = state.server
    learned = jax.tree.map(lambda x: x + jnp.asarray(rng.normal(0, 0.5, x.shape), x.dtype), learned)
    return State(state.clients, (learned, initial))


def softmax_gradient(theta, x, y):
    """Gradient of a linear model's mean cross-entropy on 8 features; theta = (bias, kernel)."""
    logits = x @ theta[2:].reshape(8, 2) + theta[:2]
    prob = np.exp(logits - logits.max(axis=1, keepdims=True))
    prob /= prob.sum(axis=1, keepdims=True)
    prob[np.arange(len(y)), y] -= 1
    return np.concatenate([prob.sum(axis=0), (x.T @ prob).ravel()]) / len(y)


class Paper:
    """Algorithm 1 in float64: the server's W and a, for each client, pair and head by itself."""

    def __init__(self, attention, normalised, slope=0.2):
        leaves = [
            np.asarray(x, np.float64).reshape(HEADS, WIDTH, -1)
            for x in jax.tree.leaves(attention.receiver)
        ]
        self.w = np.concatenate(leaves, axis=2)
        self.a = np.asarray(attention.vector, np.float64).reshape(HEADS, 2 * WIDTH)
        self.normalised = normalised
        self.slope = slope

    def features(self, x):
        h = (x - x.mean()) / x.std()  # (3)
        return h / np.sqrt(h.size) if self.normalised else h

    def forward(self, h):
        """(4) to (7): R, and for each head z, the scores before the LeakyReLU, the coefficients."""
        n = len(h)
        heads = []
        for w, a in zip(self.w, self.a, strict=True):
            z = [w @ x for x in h]
            raw = np.array([[a @ np.concatenate([z[i], z[j]]) for j in range(n)] for i in range(n)])
            e = np.where(raw > 0, raw, self.slope * raw)
            heads.append((z, raw, np.exp(e) / np.exp(e).sum(axis=1, keepdims=True)))
        return sum(c for _, _, c in heads) / HEADS, heads

    def step(self, h, heads, derivatives):
        """(10), by the chain rule from dL/dR."""
        for m, (z, raw, c) in enumerate(heads):
            d_w = np.zeros_like(self.w[m])
            d_a = np.zeros_like(self.a[m])
            for i in range(len(h)):
                up = derivatives[i] / HEADS
                d_e = c[i] * (up - c[i] @ up)
                for j in range(len(h)):
                    d = d_e[j] * (1.0 if raw[i, j] > 0 else self.slope)
                    d_a += d * np.concatenate([z[i], z[j]])
                    d_w += d * np.outer(self.a[m][:WIDTH], h[i]) + d * np.outer(
                        self.a[m][WIDTH:], h[j]
                    )
            self.w[m] = self.w[m] - ETA * d_w
            self.a[m] = self.a[m] - ETA * d_a


@pytest.mark.long
@pytest.mark.parametrize(
    ("feature", "normalised", "slope"),
    [("weights", False, 0.2), ("update", True, 0.05), ("round", False, 0.2)],
)
def test_rounds_equal_numpy_written_from_the_paper(feature, normalised, slope):
    """Three of five clients a round: some return, some come late, one has no validation data."""
    cohorts = np.array([[0, 1, 2], [1, 3, 4], [0, 1, 4]])
    task = linear(steps=STEPS, batch_size=BATCH, optimizer=optax.sgd(RATE))
    data = opposite_groups(clients=5, sizes=[40, 25, 30, 10, 4])
    options = {"feature": feature, "normalised": normalised, "slope": slope}
    algorithm = pfedgat(task, heads=HEADS, width=WIDTH, eta=ETA, **options)
    key = quick_key(3)
    start = stirred(algorithm.init(quick_key(9), data.train))
    schedule = jaxfl.participation.schedule(cohorts)
    state, info, _ = run(algorithm, data, 3, key=key, state=start, participation=schedule)

    def real(part, i):
        mask = np.asarray(part.mask[i])
        return np.asarray(part.x[i], np.float64)[mask], np.asarray(part.y[i])[mask]

    initial = np.asarray(tree.ravel(start.clients.memory), np.float64)[0]
    models = [initial] * 5
    paper = Paper(start.server[0], normalised, slope)
    for number, ids in enumerate(cohorts):
        _, round_key = jax.random.split(jax.random.fold_in(key, number))
        fit_keys = client_keys(stream(round_key, "fit"), jnp.asarray(ids))
        trained = []
        for i, fit_key in zip(ids, fit_keys, strict=True):
            x, y = real(data.train, i)
            theta = models[i]
            order_key, _ = jax.random.split(fit_key)
            rows, counts = minibatches(order_key, data.train.mask[i], BATCH, steps=STEPS)
            for row, count in zip(np.asarray(rows), np.asarray(counts), strict=True):
                theta = theta - RATE * softmax_gradient(theta, x[row[count]], y[row[count]])
            trained.append(theta)
        bases = {"weights": [0] * 3, "update": [initial] * 3, "round": [models[i] for i in ids]}
        h = [paper.features(t - b) for t, b in zip(trained, bases[feature], strict=True)]
        weights, heads = paper.forward(h)
        np.testing.assert_allclose(info.weights[number], weights, atol=1e-5)
        derivatives = np.zeros((3, 3))
        losses = []
        for r, i in enumerate(ids):
            models[i] = sum(weights[r, s] * trained[s] for s in range(3))  # (8)
            x, y = real(data.val, i)
            if len(y):
                gradient = softmax_gradient(models[i], x, y)
                derivatives[r] = [gradient @ t for t in trained]
                logits = x @ models[i][2:].reshape(8, 2) + models[i][:2]
                losses.append(np.mean(logsumexp(logits, axis=1) - logits[np.arange(len(y)), y]))
        # A client without validation data has no part in the mean of the losses.
        assert len(losses) == 3 - (4 in ids)
        np.testing.assert_allclose(info.metrics["feedback"][number], np.mean(losses), rtol=1e-4)
        assert (np.abs(derivatives).max(axis=1) > 0).tolist() == [i != 4 for i in ids]
        paper.step(h, heads, derivatives)  # (9) and (10)
    np.testing.assert_allclose(
        tree.ravel(deployed(algorithm, state, 5)), np.stack(models), atol=1e-5
    )
    found = Paper(state.server[0], normalised)
    before = Paper(start.server[0], normalised)
    for name in ("w", "a"):
        assert np.abs(getattr(paper, name) - getattr(before, name)).max() > 1e-3
        np.testing.assert_allclose(getattr(found, name), getattr(paper, name), atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("feature", ["weights", "round"])
def test_rounds_that_learn_from_updates_equal_numpy(feature):
    """A client's last upload may be of another round than that of the others."""
    cohorts = np.array([[0, 1, 2], [1, 3, 4], [0, 1, 4]])
    task = linear(steps=STEPS, batch_size=BATCH, optimizer=optax.sgd(RATE))
    data = opposite_groups(clients=5, sizes=[40, 25, 30, 10, 20])
    algorithm = pfedgat(task, heads=HEADS, width=WIDTH, eta=ETA, feature=feature, wire="update")
    assert not algorithm.validates
    key = quick_key(3)
    state = stirred(algorithm.init(quick_key(9), data.train))
    paper = Paper(state.server[0], normalised=False)
    start = Paper(state.server[0], normalised=False)
    models = np.asarray(tree.ravel(state.clients.memory), np.float64)
    last = {}
    for number, ids in enumerate(cohorts):
        schedule = jaxfl.participation.schedule(ids[None])
        stacked = tree.unravel(
            jnp.asarray(models, jnp.float32), jax.tree.map(lambda x: x[0], state.clients.memory)
        )
        of_local, _, _ = run(
            made(local, optimizer=optax.sgd(RATE), steps=STEPS, batch_size=BATCH),
            data,
            1,
            key=key,
            state=State(Clients(stacked), ()),
            start=number,
            participation=schedule,
        )
        trained = np.asarray(tree.ravel(of_local.clients.memory), np.float64)[ids]
        state, info, _ = run(
            algorithm, data, 1, key=key, state=state, start=number, participation=schedule
        )
        # The server learns from the clients that it knows.
        rows = [r for r, i in enumerate(ids) if i in last]
        if rows:
            h = [last[ids[r]][1] for r in rows]
            _, heads = paper.forward(h)
            derivatives = np.array(
                [
                    [(models[ids[r]] - trained[r]) @ last[ids[other]][0] for other in rows]
                    for r in rows
                ]
            )
            paper.step(h, heads, derivatives)
        h = [
            paper.features(t - (models[i] if feature == "round" else 0))
            for t, i in zip(trained, ids, strict=True)
        ]
        weights, _ = paper.forward(h)
        np.testing.assert_allclose(info.weights[0], weights, atol=1e-5)
        for r, i in enumerate(ids):
            last[i] = (trained[r], h[r])
        models[ids] = weights @ trained
    np.testing.assert_allclose(tree.ravel(deployed(algorithm, state, 5)), models, atol=1e-5)
    found = Paper(state.server[0], normalised=False)
    for name in ("w", "a"):
        assert np.abs(getattr(paper, name) - getattr(start, name)).max() > 1e-3
        np.testing.assert_allclose(getattr(found, name), getattr(paper, name), atol=1e-5)


@pytest.mark.long
@pytest.mark.parametrize("attention", ["gat", "gatv2", "dot", "free"])
def test_the_step_is_the_gradient_of_the_losses_through_the_mixture(attention):
    """The step on W and a equals `jax.grad` of the sum of the losses at the mixtures."""
    data = opposite_groups(sizes=[40, 25, 31, 40, 12, 9])
    key = quick_key(1)
    clients = 6
    task = linear()
    algorithm = pfedgat(task, attention=attention, heads=HEADS, width=WIDTH, eta=1.0)
    start = algorithm.init(quick_key(2), data.train)
    if attention == "free":
        logits = jnp.asarray(np.random.default_rng(0).normal(size=(clients, clients)), jnp.float32)
        start = State(
            start.clients._replace(record=start.clients.record._replace(logits=logits)),
            start.server,
        )
    start = stirred(start)
    state, info, _ = run(algorithm, data, 1, key=key, state=start)
    received = run(made(local), data, 1, key=key, state=State(Clients(start.clients.memory), ()))[
        0
    ].clients.memory

    def total(learned):
        if attention == "free":
            weights = jax.nn.softmax(learned)
        else:
            weights = attention_weights(learned, layer_norm(received), attention, 0.2)
        losses, _ = jax.vmap(data_loss(task.problem), (0, 0, None, None))(
            mix(weights, received), data.val, None, key
        )
        return losses.sum()

    before, after = (
        s.clients.record.logits if attention == "free" else s.server[0] for s in (start, state)
    )
    step = jax.tree.map(jnp.subtract, before, after)
    expected = jax.jit(jax.grad(total))(before)
    assert all(float(jnp.abs(x).max()) > 1e-3 for x in jax.tree.leaves(expected))
    close(step, expected)
    np.testing.assert_allclose(info.metrics["feedback"][0], total(before) / clients, rtol=1e-5)


def quadratic_federation(clients=4):
    rng = np.random.default_rng(4)
    xs = [
        (rng.normal(size=(20, 3)) + rng.normal(size=3)).astype(np.float32) for _ in range(clients)
    ]
    return federation(xs, [np.zeros(20, np.int32)] * clients)


@pytest.mark.parametrize(("attention", "radius"), [("gat", 0.1), ("free", 0.4)])
@pytest.mark.slow
def test_two_losses_a_client_give_the_gradient_on_average(attention, radius):
    """Without training, rounds differ only in the disturbance; a quadratic loss has no bias."""
    data = quadratic_federation()
    task = quadratic(steps=1, learning_rate=0.0)
    options = {"attention": attention, "heads": 2, "width": 2, "eta": 1.0}
    exact, scalars = (
        pfedgat(task, **options, radius=radius, wire=wire) for wire in ("gradient", "scalars")
    )
    start = stirred(exact.init(quick_key(0), data.train))
    models = jax.tree.map(
        lambda x: x + jax.random.normal(quick_key(1), x.shape), start.clients.memory
    )
    start = State(start.clients._replace(memory=models), start.server)
    cohort = Cohort(jnp.arange(4), data.train, data.val)

    def step(algorithm, key):
        state, info = algorithm.round(key, start, cohort)
        moved = jax.tree.map(
            jnp.subtract,
            (start.clients.record.logits, start.server[0]),
            (state.clients.record.logits, state.server[0]),
        )
        return jnp.concatenate([x.reshape(-1) for x in jax.tree.leaves(moved)]), info.metrics[
            "feedback"
        ]

    expected, feedback = step(exact, quick_key(0))
    expected = np.asarray(expected, np.float64)
    keys = jax.random.split(quick_key(5), 4000)
    draws, disturbed = jax.jit(jax.vmap(lambda k: step(scalars, k)))(keys)
    draws = np.asarray(draws, np.float64)
    error = draws.std(axis=0) / np.sqrt(len(draws))
    assert np.abs(expected).max() > 10 * error.max()
    assert (np.abs(draws.mean(axis=0) - expected) < 5 * error + 1e-3 * np.abs(expected).max()).all()
    # The mean of |w - x|^2 / 2 at two points on both sides of w is larger than at w by half their
    # squared distance from w. Its average over the signs of all disturbances is
    # (radius / M)^2 sum_j |w_j - mean w|^2 / 2.
    w = np.asarray(models["w"], np.float64)
    larger = (radius / 4) ** 2 * np.sum((w - w.mean(axis=0)) ** 2) / 2
    np.testing.assert_allclose(disturbed.mean() - feedback, larger, rtol=0.05)


@pytest.mark.slow
def test_the_floats_that_are_sent_are_counted():
    """A model has 18 floats, and four clients take part."""
    data = opposite_groups(clients=4)
    cohort = Cohort(jnp.arange(4), data.train, data.val)
    sent = {
        "gradient": (2 * 18, 18),
        "inner": (18 + 4, 4 * 18 + 4),
        "scalars": (18 + 2, 3 * 18),
        "update": (18, 18),
    }
    for wire, (up, down) in sent.items():
        algorithm = pfedgat(linear(), wire=wire, heads=1)
        state = algorithm.init(quick_key(0), cohort.train)
        info = jax.jit(lambda *given, of=algorithm: of.round(*given)[1][2:4])(
            quick_key(0), state, cohort
        )
        assert [x.tolist() for x in info] == [[up] * 4, [down] * 4]


@pytest.mark.slow
def test_gradients_go_through_the_uplink_as_models_do():
    """An uplink that turns the sign of gradients, but not of models, turns the step on W and a."""

    def contrary(key, before, after, ids):
        model = sum(jnp.abs(x).sum() for x in jax.tree.leaves(before)) > 0
        return jax.tree.map(lambda x: jnp.where(model, x, -x), after)

    data = opposite_groups()
    start = stirred(pfedgat(linear(), heads=HEADS, width=WIDTH).init(quick_key(0), data.train))
    steps = []
    for task in (linear(), linear(uplink=contrary)):
        state, _, _ = run(pfedgat(task, heads=HEADS, width=WIDTH), data, 1, state=start)
        steps.append(jax.tree.map(jnp.subtract, state.server[0], start.server[0]))
    assert all(float(jnp.abs(x).max()) > 1e-4 for x in jax.tree.leaves(steps[0]))
    close(steps[1], jax.tree.map(jnp.negative, steps[0]), 1e-6)


@pytest.mark.slow
def test_clients_that_join_late_need_no_new_attention():
    """Four of six clients, then all: new clients have the initial model, and W and a serve all."""
    data = opposite_groups()
    task = linear(steps=20)
    key = quick_key(0)
    algorithm = pfedgat(task, attention="gatv2", feature="round", eta=0.1)
    start = algorithm.init(quick_key(1), data.train)
    early = jaxfl.participation.schedule([[0, 1, 2, 3]])
    state, info, _ = run(algorithm, data, 5, key=key, state=start, participation=early)
    assert info.weights.shape == (5, 4, 4)
    late = jnp.array([4, 5])
    close(
        tree.take(deployed(algorithm, state, 6), late),
        tree.take(deployed(algorithm, start, 6), late),
        0.0,
    )
    after, info, _ = run(algorithm, data, 1, key=key, state=state, start=5)
    trained = run(
        local(task), data, 1, key=key, state=State(Clients(state.clients.memory), ()), start=5
    )[0].clients.memory
    features = layer_norm(jax.tree.map(jnp.subtract, trained, state.clients.memory))
    weights = attention_weights(state.server[0], features, "gatv2")
    np.testing.assert_allclose(info.weights[0], weights, atol=1e-5)
    assert np.ptp(weights[4]) > 1e-3
    close(deployed(algorithm, after, 6), mix(weights, trained))


def test_weights_learned_directly_stay_with_their_clients():
    """Each client has a row of logits by client id; logits of absent clients do not change."""
    data = opposite_groups()
    algorithm = pfedgat(linear(steps=20), attention="free", eta=1.0)
    cohorts = jaxfl.participation.schedule([[0, 2, 5]])
    state, info, _ = run(algorithm, data, 2, participation=cohorts)
    logits = np.asarray(state.clients.record.logits)
    present = np.isin(np.arange(6), [0, 2, 5])
    np.testing.assert_allclose(info.weights[0], 1 / 3, atol=1e-6)
    assert (logits[np.ix_(present, present)] != 0).all()
    assert not logits[~present].any()
    assert not logits[:, ~present].any()
    assert logits[0, 2] > 0 > logits[0, 5]


@pytest.mark.slow
def test_dynamic_attention_separates_groups_and_static_attention_does_not():
    """Three groups with different tasks; static attention ranks the senders equally for all."""
    rng = np.random.default_rng(0)
    planes = np.linalg.qr(rng.normal(size=(8, 3)))[0].T
    xs = []
    ys = []
    for client in range(6):
        x = rng.normal(size=(60, 8)).astype(np.float32)
        xs.append(x)
        ys.append((x @ planes[client % 3] > 0).astype(np.int32))
    data = federation(xs, ys)
    group = np.arange(6) % 3
    same = group[:, None] == group[None]
    own = {}
    for attention in ("gat", "gatv2"):
        algorithm = pfedgat(linear(steps=20), attention=attention, feature="round", eta=0.3)
        _, info, _ = run(algorithm, data, 30)
        weights = np.asarray(info.weights[-1])
        own[attention] = float((weights * same).sum(axis=1).mean())
    assert 1 / 3 < own["gat"] < 0.5 < 0.6 < own["gatv2"]


def test_clients_with_equal_data_get_equal_weights():
    x = np.random.default_rng(1).normal(size=(240, 8)).astype(np.float32)
    y = (x[:, 0] > 0).astype(np.int32)
    data = federation(np.split(x, 6), np.split(y, 6))
    _, info, _ = run(made(pfedgat), data, 10)
    np.testing.assert_allclose(info.weights[-1], 1 / 6, atol=0.02)
    np.testing.assert_allclose(info.metrics["entropy"], np.log(6), atol=0.01)


def test_bad_input():
    with pytest.raises(InputError, match="heads of pfedgat is 0: expected a whole number from 1"):
        pfedgat(linear(), heads=0)
