"""FedCedar: three rounds against NumPy written from the paper, the ablations, and its state."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import softmax
from sklearn.cluster import KMeans
from toys import deployed, full, init_key, linear, opposite_groups, quick_key, run, run_key

import jaxfl
from jaxfl.algorithms import fedcedar, local
from jaxfl.core import tree
from jaxfl.core.errors import InputError
from jaxfl.core.messages import Clients
from jaxfl.core.types import State

CLIENTS = 6
SIZES = [40, 25, 30, 10, 20, 35]
# Clients 0 and 5 return, 1 and 3 miss a round, 4 is new in round 1.
COHORTS = np.array([[0, 1, 2, 3], [0, 2, 4, 5], [0, 1, 3, 5]])
SCHEDULE = jaxfl.participation.schedule(COHORTS)
TASK = linear(steps=2)
LOCAL = local(TASK)
VARIANTS = [
    {"clusters": 2, "feature": "weights"},
    {"clusters": 7, "hops": 1},  # more clusters than clients: some are empty
    {"clusters": 2, "feature": "update"},
    {"clusters": 3, "graph": "softmax", "temperature": 0.5, "hops": 3},
    {"clusters": 4},  # AS-1: one cluster for each client of the cohort
    {"clusters": 2, "hops": 0},  # AS-2
    {"clusters": 2, "personal": False},  # AS-3
]


@functools.cache
def variant(**options):
    """FedCedar with these options, compiled once for all tests."""
    return fedcedar(TASK, **options)


def paper_server(
    models,
    initial,
    clusters=5,
    hops=2,
    feature="weights",
    graph="sum",
    temperature=0.1,
    personal=True,
):
    """Sections 3.2 to 3.5 for the models of a round [M, D], node by node, in float64.

    Returns:
      The model of each participant, the model of all other clients, the weights of the models in
      the former, and the largest distance between the weights of two nodes.
    """
    count = min(clusters, len(models))
    labels = KMeans(count, n_init=10, random_state=0).fit(models).labels_
    # The weights of the models in each node.
    collect = [(labels == k) / (labels == k).sum() for k in range(count)]
    centres = [weights @ models for weights in collect]
    compared = [c - initial for c in centres] if feature == "update" else centres
    cosines = np.array(
        [[a @ b / np.linalg.norm(a) / np.linalg.norm(b) for b in compared] for a in compared]
    )
    rows = softmax(cosines / temperature, axis=1) if graph == "softmax" else np.maximum(cosines, 0)
    rows = rows / rows.sum(axis=1, keepdims=True)
    power = np.linalg.matrix_power(rows, hops)
    far = max(np.abs(one - other).sum() / 2 for one in power for other in power)
    for _ in range(hops):
        centres = [sum(rows[k, i] * centres[i] for i in range(count)) for k in range(count)]
        collect = [sum(rows[k, i] * collect[i] for i in range(count)) for k in range(count)]
    mean = sum(centres) / count
    mean_weights = sum(collect) / count
    own = [centres[k] if personal else mean for k in labels]
    own_weights = [collect[k] if personal else mean_weights for k in labels]
    return np.array(own), mean, np.array(own_weights), far


@pytest.mark.long
@pytest.mark.parametrize("options", VARIANTS, ids=str)
def test_rounds_equal_numpy_written_from_the_paper(options):
    data = opposite_groups(clients=CLIENTS, sizes=SIZES)
    key = quick_key(3)
    algorithm = variant(**options)
    start = algorithm.init(quick_key(9), data.train)
    state, info, _ = run(algorithm, data, 3, key=key, state=start, participation=SCHEDULE)

    initial = deployed(algorithm, start, CLIENTS)
    like = jax.tree.map(lambda x: x[0], initial)
    initial = np.asarray(tree.ravel(initial)[0], np.float64)
    # The model from which each client would start.
    held = np.stack([initial] * CLIENTS)
    for number, ids in enumerate(COHORTS):
        stacked = tree.unravel(jnp.asarray(held, jnp.float32), like)
        trained, _, _ = run(
            LOCAL,
            data,
            1,
            key=key,
            state=State(Clients(stacked), ()),
            start=number,
            participation=SCHEDULE,
        )
        models = np.asarray(tree.ravel(trained.clients.memory), np.float64)[ids]
        own, mean, weights, far = paper_server(models, initial, **options)
        held = np.stack([mean] * CLIENTS)
        held[ids] = own
        np.testing.assert_allclose(info.weights[number], weights, atol=1e-5)
        np.testing.assert_allclose(info.metrics["contraction"][number], far, atol=1e-5)
    # Each client sends one model and gets one.
    assert info.up.tolist() == info.down.tolist() == [[18] * 4] * 3
    np.testing.assert_allclose(tree.ravel(deployed(algorithm, state, CLIENTS)), held, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"clusters": 2}, {"clusters": 3, "feature": "update"}])
def test_rounds_with_nodes_that_keep_their_identity_equal_numpy(options):
    """Client 3 is away in round 1, client 4 in rounds 0 and 2; both deploy their last node."""
    data = opposite_groups(clients=CLIENTS, sizes=SIZES)
    key = quick_key(3)
    algorithm = variant(identity="kept", hops=1, **options)
    start = algorithm.init(quick_key(9), data.train)
    state, _, _ = run(algorithm, data, 3, key=key, state=start, participation=SCHEDULE)

    initial = deployed(algorithm, start, CLIENTS, data)
    like = jax.tree.map(lambda x: x[0], initial)
    initial = np.asarray(tree.ravel(initial)[0], np.float64)
    count = options["clusters"]
    node_of = {}
    nodes = np.stack([initial] * count)
    centres = nodes.copy()
    taken = set()
    for number, ids in enumerate(COHORTS):
        held = [nodes[node_of[i]] if i in node_of else nodes.mean(axis=0) for i in range(CLIENTS)]
        stacked = tree.unravel(jnp.asarray(np.stack(held), jnp.float32), like)
        trained, _, _ = run(
            LOCAL,
            data,
            1,
            key=key,
            state=State(Clients(stacked), ()),
            start=number,
            participation=SCHEDULE,
        )
        models = np.asarray(tree.ravel(trained.clients.memory), np.float64)[ids]
        labels = KMeans(count, n_init=10, random_state=0).fit(models).labels_
        found = np.stack([models[labels == k].mean(axis=0) for k in range(count)])
        # A cluster continues the node of most of its members, or a free one, or the nearest one.
        free = sorted(set(range(count)) - set(node_of.values()) - taken)
        before = dict(node_of)
        apart = ((found[:, None] - centres[None]) ** 2).sum(axis=-1)
        for k in range(count):
            members = ids[labels == k]
            votes = [sum(before.get(i) == n for i in members) for n in range(count)]
            if max(votes):
                node = max(range(count), key=lambda n: (votes[n], -apart[k, n]))
            else:
                node = free.pop(0) if free else int(apart[k].argmin())
            taken.add(node)
            node_of |= dict.fromkeys(members.tolist(), node)
        for n in range(count):
            rows = [r for r, i in enumerate(ids.tolist()) if node_of[i] == n]
            if rows:
                centres[n] = models[rows].mean(axis=0)
        # Sections 3.3 and 3.4, for the nodes with members.
        present = sorted({node_of[i] for i in ids.tolist()})
        compared = centres[present] - (initial if options.get("feature") == "update" else 0)
        units = compared / np.linalg.norm(compared, axis=1, keepdims=True)
        edges = np.maximum(units @ units.T, 0)
        moved = edges / edges.sum(axis=1, keepdims=True) @ centres[present]
        nodes[present] = moved
        nodes[sorted(set(range(count)) - taken)] = moved.mean(axis=0)
    expected = [nodes[node_of[i]] for i in range(CLIENTS)]
    np.testing.assert_allclose(
        tree.ravel(deployed(algorithm, state, CLIENTS, data)), expected, atol=1e-5
    )


@pytest.mark.slow
def test_a_node_without_members_keeps_its_model_for_those_who_return():
    """Three nodes, two clients a round: round 1 has client 0 again and a new one, and not client 1.

    The new client takes the node that nobody was in, so that of client 1 has no members.
    """
    cohorts = jaxfl.participation.schedule([[0, 1], [0, 2]])
    data = opposite_groups(clients=3)
    found = {}
    for identity in ("round", "kept"):
        algorithm = variant(clusters=3, hops=0, identity=identity)
        before, _, _ = run(algorithm, data, 1, participation=cohorts)
        after, _, _ = run(algorithm, data, 2, participation=cohorts)
        found[identity] = [
            np.asarray(tree.ravel(deployed(algorithm, state, 3, data)))[1]
            for state in (before, after)
        ]
    np.testing.assert_array_equal(*found["kept"])
    assert np.abs(np.subtract(*found["round"])).max() > 0.05


@pytest.mark.slow
def test_each_client_takes_the_node_or_the_mean_by_its_training_loss():
    data = opposite_groups(clients=CLIENTS, sizes=SIZES)
    kept, chosen = (variant(clusters=2, hops=0, identity=name) for name in ("kept", "chosen"))
    state, _, _ = run(kept, data, 3, participation=SCHEDULE)
    # Clients 1 and 2 have changed places: each has the other group's node.
    swapped = state.clients.record.cluster.at[jnp.array([1, 2])].set(
        state.clients.record.cluster[jnp.array([2, 1])]
    )
    state = State(Clients(record=state.clients.record._replace(cluster=swapped)), state.server)
    nodes = np.asarray(tree.ravel(deployed(kept, state, CLIENTS, data)))
    mean = np.asarray(tree.ravel(state.server.models)).mean(axis=0)
    models = np.asarray(tree.ravel(deployed(chosen, state, CLIENTS, data)))

    def loss(model, client):
        mask = np.asarray(data.train.mask[client])
        x = np.asarray(data.train.x[client])[mask]
        y = np.asarray(data.train.y[client])[mask]
        logits = x @ model[2:].reshape(8, 2) + model[:2]
        return np.mean(np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(len(y)), y])

    takes_mean = [loss(mean, i) < loss(nodes[i], i) for i in range(CLIENTS)]
    assert takes_mean[1]
    assert takes_mean[2]
    assert not all(takes_mean)
    expected = np.where(np.array(takes_mean)[:, None], mean, nodes)
    np.testing.assert_allclose(models, expected, atol=1e-6)


def test_a_node_for_each_client_stands_also_for_clients_with_equal_models():
    """AS-1 with three equal uploads of five: the row of a client is that of R = cos / row sum."""
    models = np.random.default_rng(1).normal(size=(5, 18)) + 0.5
    models[1] = models[2] = models[0]

    def sent(key, before, after, ids):
        return tree.unravel(jnp.float32(models), jax.tree.map(lambda x: x[0], after))

    data = opposite_groups(clients=5)
    algorithm = fedcedar(linear(uplink=sent), clusters=5, hops=1)
    _, info, _ = run(algorithm, data, 1)
    units = models / np.linalg.norm(models, axis=1, keepdims=True)
    cosines = np.maximum(units @ units.T, 0)
    np.testing.assert_allclose(
        info.weights[0], cosines / cosines.sum(axis=1, keepdims=True), atol=1e-5
    )


def test_a_measure_of_ones_own_makes_edges_between_the_nodes_that_have_members():
    """Seven nodes of six clients: the zeros in the place of the seventh have no edge."""

    def near(stacked):
        return jnp.exp(minus_squares(tree.ravel(stacked)))

    def minus_squares(rows):
        return -jnp.sum((rows[:, None] - rows[None]) ** 2, axis=-1)

    data = opposite_groups()
    state, _, _ = run(LOCAL, data, 1)
    rows = np.exp(minus_squares(np.asarray(tree.ravel(deployed(LOCAL, state, 6)))))
    _, info, _ = run(fedcedar(TASK, clusters=7, hops=1, measure=near), data, 1)
    expected = rows / rows.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(info.weights[0], expected, atol=1e-5)


def test_the_first_round_starts_from_the_initial_model():
    task = linear()
    data = opposite_groups()
    algorithm = fedcedar(task)
    state = algorithm.init(quick_key(0), data.train)
    models = tree.ravel(deployed(algorithm, state, 6))
    np.testing.assert_array_equal(
        models, tree.ravel(tree.broadcast(task.problem.init(quick_key(0)), 6))
    )


def test_the_state_is_two_integers_for_each_client_and_k_models_of_the_server():
    algorithm = fedcedar(linear(), clusters=4)
    data = opposite_groups(clients=6)
    schedule = jaxfl.participation.schedule([[0, 2, 4], [1, 2, 3]])
    state, _, _ = run(algorithm, data, 2, participation=schedule)
    assert [(x.shape, x.dtype) for x in jax.tree.leaves(state.clients)] == [((6,), jnp.int32)] * 2
    assert state.clients.record.seen.tolist() == [0, 1, 1, 1, 0, -1]
    assert {x.shape[0] for x in jax.tree.leaves(state.server.models)} == {4}
    assert state.server.initial == ()
    assert int(state.server.round) == 2


def test_two_opposite_groups_are_the_two_clusters():
    state, info, _ = run(fedcedar(linear(steps=20), clusters=2, hops=0), opposite_groups(), 2)
    assert state.clients.record.cluster.tolist() == [0, 1, 0, 1, 0, 1]
    same = np.equal.outer(np.arange(6) % 2, np.arange(6) % 2)
    np.testing.assert_allclose(info.weights[-1], same / 3, atol=1e-6)
    # Without a graph the clusters keep their distance.
    assert info.metrics["contraction"].tolist() == [1, 1]


def test_near_a_common_start_models_are_similar_and_updates_are_not():
    """Therefore one propagation makes all models nearly equal, unless updates are compared."""
    data = opposite_groups(clients=CLIENTS, sizes=SIZES)
    found = {}
    for feature in ("weights", "update"):
        algorithm = variant(clusters=2, feature=feature)
        _, info, _ = run(algorithm, data, 1, participation=SCHEDULE)
        found[feature] = float(info.metrics["contraction"][0])
    assert found["weights"] < 0.01
    assert found["update"] > 0.5


@pytest.mark.slow(seconds=4)
def test_a_sweep_of_temperatures():
    def last(temperature):
        algorithm = fedcedar(TASK, clusters=2, graph="softmax", temperature=temperature)
        data = opposite_groups()
        start = algorithm.init(init_key(), data.train)
        # Both rounds in one scan, so that the program of a round is compiled once.
        _, (info, _) = jaxfl.make_rounds(algorithm, full(6))(run_key(), data, start, 0, 2)
        return info.metrics["contraction"][-1]

    swept = jax.jit(jax.vmap(last))(jnp.array([0.03, 0.3, 3.0]))
    assert swept[0] > swept[1] > swept[2]
    assert float(swept[1]) == pytest.approx(float(jax.jit(last)(0.3)), abs=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"clusters": 0}, "clusters of fedcedar is 0"),
        ({"hops": -1}, "hops of fedcedar is -1"),
        ({"personal": False, "identity": "kept"}, "identity=kept is of nodes"),
        ({"temperature": 0.5}, "graph=softmax"),
        ({"measure": "l2"}, "measure=l2 is 0 for a node with itself"),
        (
            {"temperature": 0.0, "graph": "softmax"},
            "temperature of fedcedar is 0.0: expected a positive number",
        ),
    ],
)
def test_bad_input(options, message):
    with pytest.raises(InputError, match=message):
        fedcedar(linear(), **options)
