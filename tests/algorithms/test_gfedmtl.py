"""GFedMtl and GFed against plain NumPy written from the corrected equations (13) to (18)."""

import functools
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.extend.core import jaxprs_in_params
from sklearn.metrics import adjusted_rand_score
from toys import close, deployed, federation, linear, opposite_groups, quick_key, run

import jaxfl
from jaxfl.algorithms import fedavg, gfed, gfedmtl
from jaxfl.core import tree
from jaxfl.core.errors import InputError
from jaxfl.core.streams import stream
from jaxfl.core.types import Cohort, Dataset, Federation, Problem, Task
from jaxfl.kernels import coupling
from jaxfl.kernels.mixing import mix
from jaxfl.models import linear as linear_model
from jaxfl.models.cnn import CNN
from jaxfl.training.channel import Channel, faithful
from jaxfl.training.objectives import data_loss

# Servers, clusters, parameters, clients.
S = 3
Q = 2
D = 5
C = 12
RHO = 1.5
LAM = 0.1
TAU = 0.4
SERVER = np.arange(C) % S
# Server 1 has no client of cluster 1, and server 2 has none of cluster 0.
CLUSTER = np.array([0, 0, 1, 1, 0, 1, 0, 0, 1, 0, 0, 1])
PLACES = {"servers": S, "clusters": Q, "server_of": SERVER, "cluster_of": CLUSTER}
EDGES = np.array([[0, 1, 0], [1, 0, 1], [0, 1, 0]], np.float32)
TASK = jaxfl.regression(linear_model(bias=False), jnp.zeros(D), steps=1)


@functools.cache
def regressions(dtype=np.float32):
    """Linear regression for twelve clients, each with 2 to 6 training and 3 validation examples."""
    rng = np.random.default_rng(0)
    sizes = rng.integers(2, 7, size=C)

    def draw(counts):
        mask = np.arange(max(counts)) < np.asarray(counts)[:, None]
        x = rng.normal(size=(C, max(counts), D))
        y = (
            x @ rng.normal(size=D)
            + rng.normal(size=(C, max(counts)))
            + x[..., 0] * CLUSTER[:, None]
        )
        return Dataset(x.astype(dtype), y.astype(dtype), mask)

    return Federation(draw(sizes), draw([3] * C), draw([3] * C))


def own(data, client):
    mask = np.asarray(data.mask[client])
    return np.asarray(data.x[client], float)[mask], np.asarray(data.y[client], float)[mask]


def paper(cohorts, tau=TAU, edges=EDGES, server=SERVER, cluster=CLUSTER, shape=(S, Q), kappa=None):
    """The method client by client and server by server, in float64.

    With `kappa` the servers have integrals, and the weights of neighbours are those of Metropolis.

    Returns:
      w_k after each round; for the last round u of (15), w after (18), and the weights of the
      uploads in each client's w [M, M].
    """
    servers, clusters = shape
    tau = np.broadcast_to(tau, (clusters, clusters))
    data = regressions().train
    w = np.zeros((C, D))
    phi = np.zeros((C, D))
    model = np.zeros((servers, clusters, D))
    integral = np.zeros((servers, clusters, D))
    # A unit vector goes with each client's message through all steps. The result is the weight of
    # each message.
    upload = np.eye(C)
    history = []
    for cohort in cohorts:
        for k in cohort:  # (13), in closed form
            x, y = own(data, k)
            members = sum((server == server[k]) & (cluster == cluster[k]))
            centre = (model + integral)[server[k], cluster[k]]
            hessian = 2 / len(y) * x.T @ x + (2 * LAM / members + RHO) * np.eye(D)
            w[k] = np.linalg.solve(hessian, 2 / len(y) * x.T @ y + phi[k] + RHO * centre)
        v, u, mean, new = (np.zeros((servers, clusters, D + C)) for _ in range(4))
        for s in range(servers):
            for q in range(clusters):  # (14)
                there = [k for k in cohort if server[k] == s and cluster[k] == q]
                sent = [np.concatenate([w[k] - phi[k] / RHO, upload[k]]) for k in there]
                if there:
                    v[s, q] = np.mean(sent, axis=0)
                else:
                    v[s, q] = np.concatenate([(model + integral)[s, q], np.zeros(C)])
        for s in range(servers):
            for q in range(clusters):  # (15)
                others = [r for r in range(clusters) if r != q]
                u[s, q] = v[s, q] + sum(tau[q, r] * v[s, r] for r in others)
                u[s, q] /= 1 + sum(tau[q, r] for r in others)
        for k in cohort:  # (16)
            phi[k] += RHO * (u[server[k], cluster[k], :D] - w[k])
        for s in range(servers):
            near = np.flatnonzero(edges[s])
            for q in range(clusters):  # (17), (18)
                others = [r for r in range(clusters) if r != q]
                mean[s, q] = (u[s, q] + sum(u[t, q] for t in near)) / (len(near) + 1)
                if kappa is not None:
                    shares = [1 / (1 + max(len(near), sum(edges[t]))) for t in near]
                    moves = [a * (u[t, q] - u[s, q]) for a, t in zip(shares, near, strict=True)]
                    mean[s, q] = u[s, q] + sum(moves)
                    integral[s, q] += kappa * sum(moves)[:D]
                new[s, q] = mean[s, q] + sum(tau[q, r] * u[t, r] for r in others for t in near)
                new[s, q] /= 1 + len(near) * sum(tau[q, r] for r in others)
        model = new[..., :D]
        history.append(w.copy())
    weights = new[server[cohort], cluster[cohort], D:][:, cohort]
    return np.array(history), u[..., :D], model, weights / weights.sum(axis=1, keepdims=True)


def exact(task=TASK, **options):
    return gfedmtl(
        task,
        **{"tau": TAU, "rho": RHO, "lam": LAM, "graph": EDGES, "primal": "exact"}
        | PLACES
        | options,
    )


FULL = [list(range(C))] * 3
# In each round some cells that have clients have none in the cohort.
PARTIAL = [[0, 1, 2, 4, 7], [3, 5, 8, 10, 11], [0, 2, 3, 6, 9]]


@pytest.mark.long
@pytest.mark.parametrize("cohorts", [FULL, PARTIAL])
@pytest.mark.parametrize("tau", [TAU, np.array([[9.0, 0.2], [1.1, 9.0]])])
def test_rounds_equal_numpy_written_from_the_paper(cohorts, tau):
    algorithm = exact(tau=jnp.asarray(tau, float))
    schedule = jaxfl.participation.schedule(cohorts)
    expected, _, models, weights = paper(cohorts, tau)
    for rounds in (1, 3):
        state, info, _ = run(algorithm, regressions(), rounds, participation=schedule)
        np.testing.assert_allclose(
            tree.ravel(state.clients.memory.model), expected[rounds - 1], atol=1e-5
        )
    np.testing.assert_allclose(info.weights[-1], weights, atol=1e-5)
    apart = np.sqrt(np.mean(np.sum((models - models.mean(axis=0)) ** 2, axis=-1)))
    np.testing.assert_allclose(info.metrics["disagreement"][-1], apart, rtol=1e-4)
    assert info.up.tolist() == [[D] * len(c) for c in cohorts]
    assert info.down.tolist() == [[2 * D] * len(c) for c in cohorts]


@pytest.mark.parametrize("cohorts", [FULL, PARTIAL])
def test_rounds_with_an_integral_equal_numpy(cohorts):
    algorithm = exact(agreement="integral", kappa=0.3)
    schedule = jaxfl.participation.schedule(cohorts)
    expected, _, models, weights = paper(cohorts, kappa=0.3)
    state, info, _ = run(algorithm, regressions(), 3, participation=schedule)
    np.testing.assert_allclose(tree.ravel(state.clients.memory.model), expected[-1], atol=1e-5)
    servers = np.asarray(jax.tree.leaves(state.server[0])[0]).reshape(S, Q, D)
    np.testing.assert_allclose(servers, models, atol=1e-5)
    np.testing.assert_allclose(info.weights[-1], weights, atol=1e-5)


@pytest.mark.slow(seconds=4)
def test_with_an_integral_servers_with_different_clients_agree_and_without_they_do_not():
    """Each server has clients of one of three targets; with tau 0 only (17) brings them together.

    With the integral all servers come to the least squares of all clients' examples.
    """
    rng = np.random.default_rng(1)
    clients = 6
    x = rng.normal(size=(clients, 8, D))
    y = np.einsum("knd,kd->kn", x, rng.normal(size=(S, D))[np.arange(clients) % S])
    part = Dataset(x.astype(np.float32), y.astype(np.float32), np.ones((clients, 8), bool))
    data = Federation(part, part, part)
    # Each client's mean squared error has the same weight.
    pooled = np.linalg.lstsq(x.reshape(-1, D), y.reshape(-1), rcond=None)[0]
    places = {"clusters": 1, "server_of": None, "cluster_of": np.zeros(clients, int)}
    far = {}
    for agreement in ("mean", "integral"):
        algorithm = exact(agreement=agreement, tau=0.0, lam=0.0, **places)
        start = algorithm.init(quick_key(0), data.train)
        rounds = jaxfl.make_rounds(algorithm, jaxfl.participation.full(clients))
        state, _ = rounds(quick_key(0), data, start, 0, 300)
        servers = np.asarray(jax.tree.leaves(state.server[0])[0]).reshape(S, D)
        far[agreement] = np.abs(servers - pooled).max()
    assert far["integral"] < 1e-3
    assert far["mean"] > 0.05


def one_cluster(cohorts):
    return paper(cohorts, 0.0, cluster=np.zeros(C, int), shape=(S, 1))


@pytest.mark.parametrize("cohorts", [FULL, PARTIAL])
def test_gfed_by_admm_is_one_cluster(cohorts):
    algorithm = gfed(TASK, form="admm", rho=RHO, lam=LAM, graph=EDGES, primal="exact")
    state, info, _ = run(
        algorithm, regressions(), 3, participation=jaxfl.participation.schedule(cohorts)
    )
    expected, _, models, weights = one_cluster(cohorts)
    np.testing.assert_allclose(tree.ravel(deployed(algorithm, state, C)), expected[-1], atol=1e-5)
    np.testing.assert_allclose(tree.ravel(state.server), models[:, 0], atol=1e-5)
    np.testing.assert_allclose(info.weights[-1], weights, atol=1e-5)
    assert info.up.tolist() == [[D] * len(c) for c in cohorts]
    assert info.down.tolist() == [[2 * D] * len(c) for c in cohorts]


def test_training_comes_near_the_exact_primal():
    """Many small steps from the client's own model solve (13) as one Newton step does."""
    task = jaxfl.regression(
        linear_model(bias=False), jnp.zeros(D), batch_size=6, steps=300, optimizer=optax.sgd(0.05)
    )
    fit, _, _ = run(exact(task, primal="fit", dual_step=1.0), regressions(), 3)
    assert fit.clients.memory.inverse == ()
    np.testing.assert_allclose(tree.ravel(fit.clients.memory.model), paper(FULL)[0][-1], atol=1e-3)
    one, _, _ = run(
        gfed(task, form="admm", rho=RHO, lam=LAM, graph=EDGES, dual_step=1.0), regressions(), 3
    )
    np.testing.assert_allclose(
        tree.ravel(one.clients.memory.model), one_cluster(FULL)[0][-1], atol=1e-3
    )


def double_task():
    """Linear regression with a float64 model."""

    def apply(params, x):
        return x @ params["w"]

    def error(prediction, y):
        return jnp.square(prediction - y)

    def no_fit(key, params, anchor, cohort):  # (13) is solved exactly
        raise AssertionError

    def no_gradient(key, params, data, ids):
        raise AssertionError

    def init(key):
        return {"w": jnp.zeros(D)}

    problem = Problem(init, apply, error, error)
    return Task(
        problem,
        lambda objective: no_fit,
        lambda objective: no_gradient,
        lambda objective: no_gradient,
        Channel(faithful),
    )


def run_double(rounds, **options):
    with jax.enable_x64(True):
        data = jax.tree.map(jnp.asarray, regressions(np.float64))
        return run(exact(double_task(), **options), data, rounds)[0]


def test_without_edges_and_coupling_each_cell_is_a_consensus_problem_of_its_own():
    """With tau = 0 and no edges, each cell runs consensus ADMM with its own clients alone."""
    state = run_double(7, tau=0.0, graph="alone")
    for cell in set(zip(SERVER, CLUSTER, strict=True)):
        members = [k for k in range(C) if (SERVER[k], CLUSTER[k]) == cell]
        z = np.zeros(D)
        phi = np.zeros((len(members), D))
        w = np.zeros((len(members), D))
        for _ in range(7):
            for i, k in enumerate(members):
                x, y = own(regressions().train, k)
                hessian = 2 * x.T @ x / len(y) + (2 * LAM / len(members) + RHO) * np.eye(D)
                w[i] = np.linalg.solve(hessian, 2 * x.T @ y / len(y) + phi[i] + RHO * z)
            z = (w - phi / RHO).mean(axis=0)
            phi = phi + RHO * (z - w)
        np.testing.assert_allclose(state.clients.memory.model["w"][np.array(members)], w, atol=1e-6)
        np.testing.assert_allclose(state.server[0]["w"][cell], z, atol=1e-6)
    # A cell without clients keeps its initial model.
    assert not state.server[0]["w"][1, 1].any()


def test_one_server_reaches_the_pooled_optimum():
    one = {"servers": 1, "clusters": 2, "server_of": np.zeros(C, int), "cluster_of": CLUSTER}
    state = run_double(400, tau=0.0, graph="ring", **one)
    for q in range(2):
        hessian = 2 * LAM * np.eye(D)
        right = np.zeros(D)
        for k in np.flatnonzero(q == CLUSTER):
            x, y = own(regressions().train, k)
            hessian = hessian + 2 * x.T @ x / len(y)
            right = right + 2 * x.T @ y / len(y)
        best = np.linalg.solve(hessian, right)
        np.testing.assert_allclose(state.server[0]["w"][0, q], best, atol=1e-6)
        np.testing.assert_allclose(
            state.clients.memory.model["w"][q == CLUSTER],
            np.tile(best, (sum(q == CLUSTER), 1)),
            atol=1e-6,
        )


@pytest.mark.slow
def test_a_sweep_of_tau_factorises_once():
    def final(tau):
        return run(exact(tau=tau), regressions(), 3)[0].clients

    taus = jnp.linspace(0, 2, 5)
    swept = jax.jit(jax.vmap(final, out_axes=0))(taus)
    for i in (0, 3):
        close(jax.tree.map(lambda x, i=i: x[i], swept), final(taus[i]))
    program = jax.make_jaxpr(jax.vmap(final))(taus)
    factors = [
        v.aval.shape
        for e in subequations(program.jaxpr)
        if e.primitive.name == "cholesky"
        for v in e.outvars
    ]
    # One factorisation in all, not one for each tau or each round.
    assert factors == [(C, D, D)]


def subequations(jaxpr):
    for equation in jaxpr.eqns:
        yield equation
        for inner in jaxprs_in_params(equation.params):
            yield from subequations(inner)


@pytest.mark.slow
@pytest.mark.parametrize("pairs", [False, True])
def test_the_learned_tau_follows_the_validation_loss(pairs):
    """After a round Adam's first moment is a tenth of the gradient by finite differences."""
    kind = "learned_pairs" if pairs else "learned"
    algorithm = exact(tau=kind, rate=0.05)
    state, info, _ = run(algorithm, regressions(), 1)
    start = coupling.init(kind, Q)
    np.testing.assert_allclose(info.metrics["tau"], [0.5], rtol=1e-5)
    assert info.up.tolist() == info.down.tolist() == [[2 * D] * C]

    def validation(theta):
        u = paper(FULL[:1], np.log1p(np.exp(theta)))[1]
        parts = [own(regressions().val, k) for k in range(C)]
        return sum(
            np.mean((x @ u[SERVER[k], CLUSTER[k]] - y) ** 2) for k, (x, y) in enumerate(parts)
        )

    theta = np.asarray(start.theta, float)
    gradient = np.zeros(start.theta.shape)
    for place in np.ndindex(theta.shape):
        up = theta.copy()
        down = theta.copy()
        up[place] += 1e-4
        down[place] -= 1e-4
        gradient[place] = (validation(up) - validation(down)) / 2e-4
    learner = state.server[1]
    np.testing.assert_allclose(10 * learner.opt_state[0].mu, gradient, rtol=1e-3, atol=1e-4)
    moved = learner.theta - start.theta
    np.testing.assert_allclose(moved, -0.05 * np.sign(gradient), atol=1e-4)


@pytest.mark.slow
def test_the_gradients_that_move_tau_go_through_the_uplink():
    """An uplink that turns the sign of gradients, but not of models, turns the gradient of tau."""

    def contrary(key, before, after, ids):
        model = sum(jnp.abs(x).sum() for x in jax.tree.leaves(before)) > 0
        return jax.tree.map(lambda x: jnp.where(model, x, -x), after)

    def gradient_of_tau(task):
        algorithm = gfedmtl(task, tau="learned", servers=1, cluster_of=np.arange(6) % 2)
        state, _, _ = run(algorithm, opposite_groups(), 1)
        return float(state.server[1].opt_state[0].mu)

    usual = gradient_of_tau(linear())
    assert abs(usual) > 1e-4
    assert gradient_of_tau(linear(uplink=contrary)) == pytest.approx(-usual, rel=1e-4)


@pytest.mark.slow
def test_gradient_form_is_a_mean_of_clients_then_of_neighbours():
    """Two rounds of half the clients, from the models that the task's own training gives."""
    # In round 0 no client of server 2 takes part.
    cohorts = np.array([[0, 1, 3, 4, 6, 9], [1, 2, 4, 5, 8, 10]])
    algorithm = gfed(TASK, servers=S, graph=EDGES)
    schedule = jaxfl.participation.schedule(cohorts)
    key = quick_key(3)
    state, info, _ = run(algorithm, regressions(), 2, participation=schedule, key=key)
    models = np.zeros((S, D))
    for number, cohort in enumerate(cohorts):
        _, round_key = jax.random.split(jax.random.fold_in(key, number))
        ids = jnp.asarray(cohort)
        members = Cohort(ids, *(tree.take(part, ids) for part in regressions()[:2]))
        kernel = jnp.asarray(models[SERVER[cohort]], jnp.float32)[..., None]
        start = {"params": {"Dense_0": {"kernel": kernel}}}
        fit = TASK.trainer(data_loss(TASK.problem))
        trained = tree.ravel(fit(stream(round_key, "fit"), start, None, members).params)
        psi = models.copy()
        for s in set(SERVER[cohort]):
            psi[s] = trained[SERVER[cohort] == s].mean(axis=0)
        closed = EDGES + np.eye(S)
        models = closed / closed.sum(axis=1, keepdims=True) @ psi
    np.testing.assert_allclose(tree.ravel(state.server), models, atol=1e-5)
    np.testing.assert_allclose(tree.ravel(deployed(algorithm, state, C)), models[SERVER], atol=1e-5)
    assert info.up.tolist() == info.down.tolist() == [[D] * 6] * 2
    apart = np.sqrt(np.mean(np.sum((models - models.mean(axis=0)) ** 2, axis=1)))
    np.testing.assert_allclose(info.metrics["disagreement"][-1], apart, rtol=1e-4)


def test_gfed_with_one_server_and_equal_sizes_is_fedavg():
    data = opposite_groups()
    one, _, _ = run(gfed(linear(), servers=1), data, 2)
    mean, _, _ = run(fedavg(linear()), data, 2)
    close(jax.tree.map(lambda x: x[0], one.server), mean.server)


def test_clusters_are_found_from_the_data():
    state = jax.jit(gfedmtl(linear(), servers=1).init)(quick_key(0), opposite_groups().train)
    found = np.asarray(state.clients.record.cell)
    assert len({*found[::2]}) == len({*found[1::2]}) == 1
    assert found[0] != found[1]
    np.testing.assert_array_equal(state.clients.memory.peers, 3)


@pytest.mark.slow
def test_the_search_for_clusters_counts_in_a_clients_first_round():
    """Client 5 comes in round 1; a model has 18 floats, and a training takes 5 batches."""
    who = jaxfl.participation.schedule([[0, 1, 2, 3, 4], [0, 1, 2, 3, 5]])
    _, info, _ = run(gfedmtl(linear(), servers=1), opposite_groups(), 2, participation=who)
    assert info.up.tolist() == [[36] * 5, [18] * 4 + [36]]
    assert info.batches.tolist() == [[10] * 5, [5] * 4 + [10]]
    given = gfedmtl(linear(), servers=1, cluster_of=np.arange(6) % 2)
    _, info, _ = run(given, opposite_groups(), 2, participation=who)
    assert info.up.tolist() == [[18] * 5] * 2
    assert info.batches.tolist() == [[5] * 5] * 2


def test_clusters_are_found_in_what_the_server_receives():
    def halves(key, before, after, ids):
        return jax.tree.map(
            lambda b: b + jnp.where(ids < 3, 1.0, -1.0).reshape(-1, *[1] * (b.ndim - 1)), before
        )

    state = jax.jit(gfedmtl(linear(uplink=halves), servers=1).init)(
        quick_key(0), opposite_groups().train
    )
    found = state.clients.record.cell.tolist()
    assert found in ([0, 0, 0, 1, 1, 1], [1, 1, 1, 0, 0, 0])


@pytest.mark.slow
def test_it_trains_a_network_on_images():
    """Images with a bright upper or lower half, which two clusters label in opposite ways."""
    rng = np.random.default_rng(0)
    xs = []
    ys = []
    for client in range(4):
        y = rng.integers(2, size=30).astype(np.int32)
        x = 0.3 * rng.normal(size=(30, 6, 6, 1)).astype(np.float32)
        x[y == 0, :3] += 1
        x[y == 1, 3:] += 1
        xs.append(x)
        ys.append(y if client % 2 else 1 - y)
    data = federation(xs, ys)
    task = jaxfl.classification(
        CNN(2, channels=(4, 4), hidden=8),
        jnp.zeros((6, 6, 1)),
        steps=30,
        batch_size=8,
        optimizer=jaxfl.sgd(0.05),
    )
    algorithm = gfedmtl(task, servers=2, tau="learned")
    state, info, _ = run(algorithm, data, 6)
    logits = jax.vmap(algorithm.apply)(deployed(algorithm, state, 4), data.test.x)
    assert float((logits.argmax(axis=-1) == data.test.y).mean(axis=1).min()) > 0.9
    # The clusters contradict each other.
    assert info.metrics["tau"][-1] < 0.5


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (gfedmtl, {"graph": np.ones((3, 3))}, "zero diagonal"),
        (gfedmtl, {"graph": np.triu(np.ones((3, 3)), 1)}, "symmetric"),
        (
            gfed,
            {"graph": np.zeros((2, 2))},
            r"shape \(2, 2\): expected a symmetric matrix \(3, 3\)",
        ),
        (gfedmtl, {"tau": "learned", "clusters": 1}, "clusters=2 or more"),
        (gfedmtl, {"tau": -0.5}, "tau of gfedmtl is -0.5: expected a non-negative number"),
        (gfedmtl, {"rho": 0.0}, "rho of gfedmtl is 0.0: expected a positive number"),
        (gfed, {"rho": 1.0}, "choose form=admm"),
    ],
)
def test_bad_options_are_refused(make, options, message):
    with pytest.raises(InputError, match=message):
        make(TASK, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"server_of": np.zeros(4, int), "cluster_of": np.zeros(4, int)},
            r"server_of has shape \(4,\): expected \(12,\)",
        ),
        ({"cluster_of": np.arange(C)}, "cluster_of holds 0 to 11: expected numbers from 0 to 1"),
    ],
)
def test_groups_must_fit_the_clients(options, message):
    with pytest.raises(InputError, match=message):
        exact(**options).init(quick_key(0), regressions().train)


@pytest.mark.slow
def test_a_dual_that_integrates_faster_than_training_follows_is_damped():
    """Few steps with momentum: with the whole of rho the models leave every bound."""
    data = opposite_groups()
    task = linear(steps=3, optimizer=jaxfl.sgd(0.2, 0.9))
    options = {"rho": 2.0, "servers": 1, "cluster_of": np.arange(6) % 2}
    largest = {}
    for step in (None, 1.0):
        state, _, _ = run(gfedmtl(task, dual_step=step, **options), data, 60)
        largest[step] = float(jnp.abs(tree.ravel(state.clients.memory.model)).max())
    assert largest[None] < 2
    assert largest[1.0] > 1e3 or not np.isfinite(largest[1.0])


@pytest.mark.slow
@pytest.mark.parametrize("method", [gfedmtl, gfed])
def test_a_client_without_examples_leaves_the_consensus_of_the_others(method):
    """The servers' models after training by steps are those of the exact solution."""
    task = jaxfl.regression(
        linear_model(bias=False), jnp.zeros(D), batch_size=6, steps=300, optimizer=optax.sgd(0.05)
    )
    data = regressions()
    empty = data.train._replace(mask=jnp.asarray(data.train.mask).at[4].set(False))
    options = {"rho": RHO, "lam": LAM, "graph": EDGES, "dual_step": 1.0}
    options |= PLACES | {"tau": TAU} if method is gfedmtl else {"form": "admm"}
    found = []
    for primal in ("fit", "exact"):
        algorithm = method(task, primal=primal, **options)
        state, _, _ = run(algorithm, data._replace(train=empty), 20)
        models = state.server[0] if method is gfedmtl else state.server
        found.append(np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(models)]))
    np.testing.assert_allclose(found[0], found[1], atol=1e-2)


@pytest.mark.slow
def test_clusters_are_found_by_the_directions_of_the_first_updates():
    """Five planted directions whose members have cosines of about .2 with each other."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(5, 400))
    planted = np.arange(30) % 5
    directions = centres[planted] + 2.0 * rng.normal(size=(30, 400))
    directions *= rng.uniform(0.5, 2, size=(30, 1))  # lengths do not count

    def known(key, before, after, ids):
        return jax.tree.map(lambda x: x + jnp.asarray(directions, x.dtype)[..., None], before)

    task = jaxfl.regression(linear_model(bias=False), jnp.zeros(400), steps=1, uplink=known)
    data = federation([np.ones((3, 400), np.float32)] * 30, [np.ones(3, np.float32)] * 30)
    state = gfedmtl(task, servers=1, clusters=5).init(quick_key(0), data.train)
    assert adjusted_rand_score(planted, state.clients.record.cell) == 1


@pytest.mark.slow
def test_the_servers_mix_a_model_for_each_cell_and_not_for_each_client(monkeypatch):
    module = sys.modules["jaxfl.algorithms.gfedmtl"]
    shapes = set()

    def recorded(weights, stacked):
        shapes.add(weights.shape)
        return mix(weights, stacked)

    monkeypatch.setattr(module, "mix", recorded)
    run(gfedmtl(linear(), servers=1, cluster_of=np.arange(6) % 2), opposite_groups(), 1)
    assert shapes == {(2, 8)}
