"""pFedGraph: its graph, its regulariser, and rounds against NumPy written from the paper.

And two methods of its round: `general_graph` and `measured_graph`.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy.optimize import minimize
from toys import (
    close,
    deployed,
    differ,
    equal,
    federation,
    init_key,
    linear,
    opposite_groups,
    quick_key,
    run,
    shallow,
)

import jaxfl
from jaxfl.algorithms import general_graph, local, measured_graph, pfedgraph
from jaxfl.core import tree
from jaxfl.core.errors import InputError
from jaxfl.core.messages import Clients
from jaxfl.core.streams import client_keys, stream
from jaxfl.core.types import Cohort, State
from jaxfl.kernels.alignment import misalignment
from jaxfl.kernels.simplex import measured_rows
from jaxfl.training.batches import minibatches

STEPS = 6
BATCH = 8
RATE = 0.1


def simplex_program(p, s, alpha, form):
    """SciPy's solution of the quadratic program of the paper, (4), or of the authors' code."""

    def cost(x):
        if form == "paper":
            return x @ x - (2 * p + alpha * s) @ x
        return alpha * (x - p) @ (x - p) - s @ x

    def gradient(x):
        if form == "paper":
            return 2 * x - 2 * p - alpha * s
        return 2 * alpha * (x - p) - s

    return minimize(
        cost,
        p,
        jac=gradient,
        bounds=[(0, 1)] * p.size,
        constraints={"type": "eq", "fun": lambda x: x.sum() - 1},
        method="SLSQP",
        options={"ftol": 1e-15, "maxiter": 500},
    ).x


def softmax_gradient(theta, x, y):
    """Gradient of the mean cross-entropy of a linear softmax model, by hand."""
    logits = x @ theta["kernel"] + theta["bias"]
    prob = np.exp(logits - logits.max(axis=1, keepdims=True))
    prob /= prob.sum(axis=1, keepdims=True)
    prob[np.arange(len(y)), y] -= 1
    return {"kernel": x.T @ prob / len(y), "bias": prob.sum(axis=0) / len(y)}


def flat(theta):
    return np.concatenate([theta["bias"].ravel(), theta["kernel"].ravel()])


def paper_round(models, anchors, initial, data, batches, lam, alpha, form, anchor):
    """One round of Algorithm 1 for the given clients, for each client and pair, in float64."""
    trained = []
    for model, target, (x, y), order in zip(models, anchors, data, batches, strict=True):
        theta = {k: v.copy() for k, v in model.items()}
        for rows in order:
            gradient = softmax_gradient(theta, x[rows], y[rows])
            norm = np.linalg.norm(flat(theta))
            inner = sum((theta[k] * target[k]).sum() for k in theta)
            for k in theta:  # gradient of -(lam / 2) <theta / |theta|, anchor>
                pull = target[k] / norm - inner * theta[k] / norm**3
                theta[k] = theta[k] - RATE * (gradient[k] - lam / 2 * pull)
        trained.append(theta)
    sizes = np.array([len(y) for _, y in data], float)
    moved = [flat(t) - flat(initial) for t in trained]
    weights = []
    for m in moved:
        s = np.array([m @ other / np.linalg.norm(m) / np.linalg.norm(other) for other in moved])
        s[s > 0.9] = 1.0
        weights.append(simplex_program(sizes / sizes.sum(), s, alpha, form))

    def blend(row, of):
        return {k: sum(w * o[k] for w, o in zip(row, of, strict=True)) for k in initial}

    mixed = [blend(row, trained) for row in weights]
    if anchor == "cosine":
        unit = [{k: v / np.linalg.norm(flat(t)) for k, v in t.items()} for t in trained]
        aligned = [blend(row, unit) for row in weights]
    else:
        aligned = [{k: v / np.linalg.norm(flat(m)) for k, v in m.items()} for m in mixed]
    return np.array(weights), mixed, aligned


@pytest.mark.long
@pytest.mark.parametrize(
    ("form", "alpha", "meant", "anchor"),
    [
        ("code", 0.4, 0.4, "cosine"),
        ("code", None, 0.08 * 3, "approx"),
        ("paper", 1 / 1.3, 1.3, "approx"),
        ("paper", 1.25, 0.8, "cosine"),
    ],
)
def test_rounds_equal_numpy_written_from_the_paper(form, alpha, meant, anchor):
    """Three rounds of three of five clients of different sizes: some return, some come late."""
    cohorts = np.array([[0, 1, 2], [1, 3, 4], [0, 1, 4]])
    task = linear(steps=STEPS, batch_size=BATCH, optimizer=optax.sgd(RATE))
    data = opposite_groups(clients=5, sizes=[40, 25, 30, 10, 20])
    algorithm = pfedgraph(task, alpha=alpha, lam=0.5, anchor=anchor)
    key = quick_key(3)
    start = algorithm.init(quick_key(9), data.train)
    schedule = jaxfl.participation.schedule(cohorts)
    state, info, _ = run(algorithm, data, 3, key=key, state=start, participation=schedule)

    x = np.asarray(data.test.x, np.float64)
    y = np.asarray(data.test.y)
    # The test set holds the training examples and then the validation examples.
    own = [(x[i][m], y[i][m]) for i, m in enumerate(np.asarray(data.test.mask))]
    bias, kernel = (np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(start.server))
    initial = {"bias": bias, "kernel": kernel}
    models = [initial] * 5
    anchors = [{k: np.zeros_like(v) for k, v in initial.items()}] * 5
    for number, ids in enumerate(cohorts):
        _, round_key = jax.random.split(jax.random.fold_in(key, number))
        fit_keys = client_keys(stream(round_key, "fit"), jnp.asarray(ids))
        batches = []
        for i, fit_key in zip(ids, fit_keys, strict=True):
            order_key, _ = jax.random.split(fit_key)
            rows, counts = minibatches(order_key, data.train.mask[i], BATCH, steps=STEPS)
            batches.append(
                [np.asarray(r)[np.asarray(c)] for r, c in zip(rows, counts, strict=True)]
            )
        chosen = ([full[i] for i in ids] for full in (models, anchors))
        clients = [own[i] for i in ids]
        weights, mixed, aligned = paper_round(
            *chosen, initial, clients, batches, 0.5, meant, form, anchor
        )
        np.testing.assert_allclose(info.weights[number], weights, atol=1e-5)
        for i, model, target in zip(ids, mixed, aligned, strict=True):
            models[i] = model
            anchors[i] = target
    expected = np.stack([flat(m) for m in models])
    np.testing.assert_allclose(tree.ravel(deployed(algorithm, state, 5)), expected, atol=1e-5)


def last_weights(data, task=None, rounds=3, method=pfedgraph, **hyper):
    algorithm = method(task or linear(steps=20), **hyper)
    return np.asarray(run(algorithm, data, rounds)[1].weights[-1])


def test_the_graph_of_two_opposite_groups_has_two_blocks():
    weights = last_weights(opposite_groups())
    group = np.arange(6) % 2
    same = group[:, None] == group[None]
    assert weights[~same].max() == 0
    np.testing.assert_allclose(weights[same], 1 / 3, atol=1e-3)


def test_a_malicious_client_gets_no_weight():
    def turned(key, before, after, ids):
        return jax.tree.map(
            lambda x: jnp.where((ids == 1).reshape(-1, *[1] * (x.ndim - 1)), -x, x), after
        )

    same_task = opposite_groups(clients=1, examples=240)
    xs = np.split(np.asarray(same_task.test.x[0]), 6)
    ys = np.split(np.asarray(same_task.test.y[0]), 6)
    weights = last_weights(federation(xs, ys), linear(steps=20, uplink=turned))
    benign = [0, 2, 3, 4, 5]
    assert weights[benign, 1].max() == 0


def test_snapping_gives_clients_with_similar_models_equal_weights():
    """Cosines above .9 count as 1; without snapping each client prefers its own model."""
    data = opposite_groups()
    snapped = last_weights(data, snap=0.9)
    raw = last_weights(data, snap=None)
    assert np.ptp(snapped[0, ::2]) < 1e-3
    assert raw[0, 0] > raw[0, 2] + 1e-3


@pytest.mark.slow
def test_layers_choose_what_is_compared():
    data = opposite_groups()
    whole = last_weights(data, rounds=1, snap=None)
    kernel = last_weights(data, rounds=1, snap=None, layers="kernel")
    chosen = last_weights(data, rounds=1, snap=None, layers=lambda path: path.endswith("kernel"))
    assert np.abs(whole - kernel).max() > 1e-4
    np.testing.assert_array_equal(kernel, chosen)
    with pytest.raises(InputError, match=r"no layer matches 'nowhere'.*params/Dense_0/bias"):
        last_weights(data, rounds=1, layers="nowhere")


def test_raw_similarity_compares_the_models_themselves():
    data = opposite_groups()
    algorithm = pfedgraph(linear(), similarity="raw", snap=None, alpha=1.0, lam=0.0)
    state = algorithm.init(quick_key(0), data.train)
    assert state.server == ()
    _, info, _ = run(algorithm, data, 1, state=state)
    trained, _, _ = run(
        jaxfl.algorithms.local(linear()),
        data,
        1,
        state=state._replace(clients=Clients(state.clients.memory.model)),
    )
    theta = np.asarray(tree.ravel(trained.clients.memory), np.float64)
    unit = theta / np.linalg.norm(theta, axis=1, keepdims=True)
    p = np.full(6, 1 / 6)
    expected = [simplex_program(p, s, 1.0, "code") for s in unit @ unit.T]
    np.testing.assert_allclose(info.weights[0], expected, atol=1e-5)


@pytest.mark.slow
def test_no_weight_is_above_its_cap():
    data = opposite_groups()
    assert last_weights(data, method=general_graph, cap=0.2).max() <= 0.2 + 1e-6


@pytest.mark.long
def test_the_general_graph_without_its_own_options_is_pfedgraph():
    data = opposite_groups(sizes=[40, 30, 20, 40, 10, 20])
    options = {"alpha": 0.4, "similarity": "raw", "prior": "equal", "snap": None, "lam": 0.5}
    for anchor in ("cosine", "approx"):
        general, plain = (
            run(method(linear(), anchor=anchor, **options), data, 2)
            for method in (general_graph, pfedgraph)
        )
        equal(general, plain)


def test_caps_of_edges_stay_with_their_clients():
    """The weight of client 4's model for client 2 stays small, at any position in the cohort."""
    caps = np.ones((6, 6), np.float32)
    caps[2, 4] = 0.05
    algorithm = general_graph(linear(steps=20), cap=jnp.asarray(caps))
    cohorts = jaxfl.participation.schedule(np.array([[0, 2, 4, 5], [1, 2, 3, 4]]))
    _, info, ids = run(algorithm, opposite_groups(), 2, participation=cohorts)
    for weights, members in zip(np.asarray(info.weights), ids.tolist(), strict=True):
        capped = weights[members.index(2), members.index(4)]
        assert capped <= 0.05 + 1e-6
        assert weights[members.index(4), members.index(2)] > 0.1


@pytest.mark.slow
def test_the_regulariser_aligns_a_client_with_its_aggregate():
    """With a stronger regulariser the angle of trained models to the aggregates is smaller."""
    data = opposite_groups(clients=4)
    start, _, _ = run(pfedgraph(linear(steps=20)), data, 1)

    def angle(lam):
        sent = {}

        def spy(key, before, after, ids):
            sent["cos"] = jax.vmap(
                lambda a, b: tree.dot(a, b) / jnp.sqrt(tree.dot(a, a) * tree.dot(b, b))
            )(before, after)
            return after

        algorithm = pfedgraph(linear(steps=20, uplink=spy), lam=lam)
        cohort = jaxfl.types.Cohort(jnp.arange(4), data.train, data.val)
        algorithm.round(quick_key(0), start, cohort)
        return float(sent["cos"].mean())

    assert angle(20.0) > angle(0.0) > angle(-20.0)


@pytest.mark.slow
def test_twice_the_download_for_the_normalised_aggregate():
    data = opposite_groups()
    for anchor, models in (("cosine", 2), ("approx", 1)):
        _, info, _ = run(pfedgraph(linear(), anchor=anchor), data, 1)
        assert info.up.tolist() == [[18] * 6]
        assert info.down.tolist() == [[18 * models] * 6]


@pytest.mark.parametrize("kind", ["cosine", "approx", "inner", "l2", "l1"])
def test_the_regularisers_equal_numpy(kind):
    rng = np.random.default_rng(0)
    model, sent = ({"a": rng.normal(size=(2, 3)), "b": rng.normal(size=4)} for _ in range(2))
    theta, target = (np.concatenate([v.ravel() for v in part.values()]) for part in (model, sent))
    expected = {
        "cosine": -theta @ target / np.linalg.norm(theta),
        "approx": -theta @ target / np.linalg.norm(theta),
        "inner": -theta @ target,
        "l2": ((theta - target) ** 2).sum(),
        "l1": np.abs(theta - target).sum(),
    }
    found = misalignment(
        jax.tree.map(jnp.float32, model), jax.tree.map(jnp.float32, sent), jnp.float32(0.7), kind
    )
    np.testing.assert_allclose(found, 0.7 * expected[kind], rtol=1e-5)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["approx", "inner", "l2", "l1"])
def test_a_regulariser_is_off_in_the_first_round_and_on_in_the_second(kind):
    data = opposite_groups(clients=4)
    states = [run(pfedgraph(linear(), anchor=kind, lam=lam), data, 1)[0] for lam in (0.0, 5.0)]
    equal(states[0].clients.memory.model, states[1].clients.memory.model)
    later = [
        run(pfedgraph(linear(), anchor=kind, lam=lam), data, 1, state=states[0], start=1)[0]
        for lam in (0.0, 5.0)
    ]
    assert differ(later[0].clients.memory.model, later[1].clients.memory.model)


@pytest.mark.slow
def test_if_all_similarities_are_equal_the_weights_are_the_prior():
    sizes = np.array([60, 20, 20, 20, 20, 20])
    data = opposite_groups(sizes=sizes.tolist())
    for prior, row in (("size", sizes / sizes.sum()), ("equal", np.full(6, 1 / 6))):
        weights = last_weights(data, linear(), rounds=1, snap=-1.0, prior=prior)
        np.testing.assert_allclose(weights, np.tile(row, (6, 1)), atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("measure", ["inner", "l2", "l1"])
def test_other_measures_make_other_graphs(measure):
    data = opposite_groups()
    assert (
        np.abs(last_weights(data, rounds=1, measure=measure) - last_weights(data, rounds=1)).max()
        > 1e-3
    )


def own_cosine(stacked):
    """Cosines of whole models, written without the library's kernels."""
    rows = jnp.concatenate([x.reshape(len(x), -1) for x in jax.tree.leaves(stacked)], axis=1)
    norms = jnp.sqrt(jnp.sum(rows**2, axis=1))
    return jnp.matmul(rows, rows.T, precision="highest") / norms[:, None] / norms[None]


def lose_two(key, before, after, ids):
    """Clients 1 and 4 send NaN."""
    gone = (ids == 1) | (ids == 4)
    return jax.tree.map(
        lambda x: jnp.where(gone.reshape(-1, *[1] * (x.ndim - 1)), jnp.nan, x), after
    )


@pytest.mark.long
@pytest.mark.parametrize(
    "task",
    [
        {},
        {"uplink": lose_two},
        {"acceptance": "validated"},
        {"top_edges": 2},
    ],
    ids=["plain", "lost", "accept", "top-edges"],
)
def test_a_measure_of_ones_own_has_all_that_the_method_has_around_it(task):
    data = opposite_groups(sizes=[40, 30, 20, 40, 10, 20])
    own, known = (
        run(pfedgraph(linear(**task), measure=measure, snap=None, lam=0.5), data, 3)
        for measure in (own_cosine, "cosine")
    )
    close(own, known)


def test_a_measure_sees_what_layers_and_similarity_choose_and_any_finite_range_will_do():
    """The first row is the server's view: differences from the initial model, of the bias alone."""
    shapes = []

    def mine(stacked):
        shapes.append([x.shape for x in jax.tree.leaves(stacked)])
        models = jax.tree.leaves(stacked)[0].shape[0]
        # Receiver 0 prefers sender 5, and the values are all negative.
        return jnp.full((models, models), -100.0).at[0, 5].set(-7.0)

    weights = last_weights(opposite_groups(), rounds=1, measure=mine, layers="bias")
    assert set(map(str, shapes)) == {"[(6, 2)]"}
    np.testing.assert_allclose(weights[0], np.eye(6)[5], atol=1e-6)
    np.testing.assert_allclose(weights[1:], 1 / 6, atol=1e-6)


def test_a_measure_of_ones_own_is_refused_where_sketches_are_compared():
    with pytest.raises(InputError, match="measure"):
        general_graph(linear(), measure=own_cosine, sketch=8)


@pytest.mark.slow
def test_weights_are_those_of_the_program_of_the_clients_that_reported():
    """Two of six clients send NaN: the others' rows are (4) without these two.

    In the second round, the models that stand in their place are similar to those of their groups.
    """
    data = opposite_groups(sizes=[40, 30, 20, 40, 10, 20])

    there = np.array([0, 2, 3, 5])
    key = quick_key(0)
    algorithm = pfedgraph(linear(), alpha=0.08 * 6)  # the default for six clients
    first, _, _ = run(algorithm, data, 1, key=key)
    _, info, _ = run(pfedgraph(linear(uplink=lose_two)), data, 1, key=key, state=first, start=1)
    few = jax.tree.map(lambda x: x[there], data)
    start = State(jax.tree.map(lambda x: x[there], first.clients), first.server)
    round_key = jax.random.split(jax.random.fold_in(key, 1))[1]
    _, alone = algorithm.round(round_key, start, Cohort(jnp.asarray(there), few.train, few.val))
    np.testing.assert_allclose(info.weights[0][np.ix_(there, there)], alone.weights, atol=1e-5)
    np.testing.assert_array_equal(info.weights[0][1], np.eye(6)[1])


@pytest.mark.slow
def test_a_small_group_is_left_alone_if_its_size_is_given():
    """Two of forty clients label examples in the opposite way."""
    data = jax.tree.map(
        lambda x: x[(np.arange(40) >= 38).astype(int)], opposite_groups(examples=20)
    )
    shares = []
    for group in (None, 2):
        weights = last_weights(data, linear(), rounds=1, method=general_graph, group=group)
        shares.append(weights[38:, 38:].sum(axis=1))
    assert (shares[0] < 0.5).all()
    np.testing.assert_allclose(shares[1], 1, atol=1e-6)


@pytest.mark.slow
def test_measured_weights_are_those_of_two_trainings_on_halves():
    """Each half by itself: a client that holds it alone, in FedAvg's local training."""
    data = opposite_groups(sizes=[40, 25, 31, 40, 12, 9])
    task = linear(steps=4, batch_size=40)  # all examples in each batch: the order does not matter
    algorithm = measured_graph(task, lam=0.0)
    state, info, _ = run(algorithm, data, 1)
    assert info.up.tolist() == [[2 * 18] * 6]
    assert info.batches.tolist() == [[2 * 4] * 6]
    models = []
    start = algorithm.init(init_key(), data.train)
    for parity in (0, 1):
        mask = np.asarray(data.train.mask)
        counts = mask & (np.cumsum(mask, axis=1) % 2 == (1 - parity))
        half = data._replace(train=data.train._replace(mask=jnp.asarray(counts)))
        one = run(local(task), half, 1, state=State(Clients(start.clients.memory.model), ()))[
            0
        ].clients.memory
        models.append(one)
    weights = np.asarray(measured_rows(*models, jnp.ones(6, bool)))
    np.testing.assert_allclose(info.weights[0], weights, atol=1e-4)
    mean = jax.tree.map(lambda a, c: (a + c) / 2, *models)
    expected = np.asarray(weights @ np.asarray(tree.ravel(mean)))
    np.testing.assert_allclose(tree.ravel(deployed(algorithm, state, 6)), expected, atol=1e-4)


@pytest.mark.slow
def test_sketches_of_all_parameters_give_the_weights_of_the_models():
    """The kernel has 16 parameters in one leaf: its sketch of 16 numbers is a rotation of it."""
    data = opposite_groups()
    exact = last_weights(data, rounds=2, snap=None, layers="kernel")
    options = {"rounds": 2, "snap": None, "layers": "kernel"}
    sketched = last_weights(data, method=general_graph, sketch=16, **options)
    np.testing.assert_allclose(sketched, exact, atol=1e-5)


def test_weights_of_short_sketches_are_other_ones_in_each_round_and_find_the_groups():
    options = {"snap": None, "alpha": 0.2, "sketch": 8}
    weights = last_weights(opposite_groups(), method=general_graph, **options)
    same = np.equal.outer(np.arange(6) % 2, np.arange(6) % 2)
    assert weights[same].min() > weights[~same].max()


def test_sketches_are_refused_where_they_have_no_meaning():
    with pytest.raises(InputError, match="no l1 distances"):
        general_graph(linear(), sketch=8, measure="l1")


def test_alpha_is_given_in_one_way():
    with pytest.raises(InputError, match="group sets alpha"):
        general_graph(linear(), group=2, alpha=0.4)


@pytest.mark.slow
def test_with_parts_each_layer_has_the_program_of_its_own_cosines():
    """SciPy solves the program of the updates of each layer, and the layer is mixed by it."""
    data = opposite_groups(sizes=[40, 25, 30, 10, 20, 15])
    sizes = np.asarray(data.train.mask.sum(axis=1), float)
    task = shallow(steps=STEPS)
    algorithm = general_graph(task, parts=True, alpha=0.4, snap=None, lam=0.0)
    start = algorithm.init(init_key(), data.train)
    state, info, _ = run(algorithm, data, 1, state=start)
    # Clients alone train the same in the first round, and keep it.
    alone = local(task)
    kept, _, _ = run(alone, data, 1, state=alone.init(init_key(), data.train))
    trained = jax.tree.map(np.float64, deployed(alone, kept, 6))
    assert sorted(info.weights) == ["Dense_0", "Dense_1"]
    for layer, weights in info.weights.items():
        models, initial, mixed = (
            np.concatenate(
                [np.asarray(tree["params"][layer][k]).reshape(n, -1) for k in ("bias", "kernel")],
                axis=1,
            )
            for tree, n in ((trained, 6), (start.server, 1), (state.clients.memory.model, 6))
        )
        moved = models - initial
        unit = moved / np.linalg.norm(moved, axis=1, keepdims=True)
        rows = [simplex_program(sizes / sizes.sum(), s, 0.4, "code") for s in unit @ unit.T]
        np.testing.assert_allclose(weights[0], rows, atol=1e-4)
        np.testing.assert_allclose(mixed, rows @ models, atol=1e-4)
    assert not np.allclose(info.weights["Dense_0"], info.weights["Dense_1"], atol=1e-2)


def test_layers_to_compare_and_a_graph_for_each_layer_exclude_each_other():
    with pytest.raises(InputError, match=r"give layers=\.\.\., or parts, not both"):
        general_graph(linear(), parts=True, layers="kernel")
