"""Measures of mixing weights, against other libraries, and where a run shows them."""

import itertools
import json

import numpy as np
import pytest
import scipy.linalg
import scipy.stats
from finished_runs import evaluated_run

from jaxfl import measure_graph
from jaxfl.cli import main
from jaxfl.experiment.pictures.curves import graph_measures
from jaxfl.experiment.store.records import RunRecord
from jaxfl.experiment.tables.pooling import pool_seeds
from jaxfl.experiment.tables.scores import most_mixed
from jaxfl.graphs import measures
from jaxfl.graphs.measures import (
    edge_precision_recall,
    effective_collaborators,
    group_agreement,
    second_singular_value,
    spectral_gap,
)
from jaxfl.graphs.networks import NETWORKS
from jaxfl.graphs.pairs import matrix_of

SHORT = ["--clients", "10", "--rounds", "2", "--local-steps", "2", "--score-after", "none"]


def stochastic(seed, clients=7):
    weights = np.random.default_rng(seed).gamma(0.3, size=(clients, clients))
    weights[0, 1:] = 0.0
    return weights / weights.sum(axis=1, keepdims=True)


def test_the_number_of_collaborators_is_the_exponential_of_scipys_entropy():
    weights = stochastic(0)
    found = effective_collaborators(weights)
    np.testing.assert_allclose(found, np.exp(scipy.stats.entropy(weights, axis=1)), rtol=1e-12)
    assert found[0] == 1.0


def test_the_second_singular_value_is_the_root_of_an_eigenvalue():
    weights = stochastic(1)
    eigenvalues = scipy.linalg.eigvals(weights @ weights.T)
    expected = np.sort(np.sqrt(np.abs(eigenvalues)))[-2]
    assert second_singular_value(weights) == pytest.approx(expected, abs=1e-6)
    assert second_singular_value(np.ones((1, 1))) == 0.0
    # Of two directed stars, and no larger for any weights.
    assert second_singular_value(np.eye(6)[[0, 0, 0, 3, 3, 3]]) == pytest.approx(np.sqrt(3))
    rows = np.random.default_rng(0).dirichlet(np.full(6, 0.02), (50, 6))
    assert 1 < max(map(second_singular_value, rows)) <= np.sqrt(3)


def large_weights(clients=640):
    """Weights of more clients than are measured exactly, by name."""
    rng = np.random.default_rng(0)
    blocks = np.kron(np.eye(4), np.full((clients // 4, clients // 4), 4 / clients))
    place = np.arange(clients)
    ring = (np.abs((place[:, None] - place + 1) % clients - 1) <= 1) / 3
    softmax = np.exp(rng.normal(size=(clients, clients)))
    softmax /= softmax.sum(axis=1, keepdims=True)
    return {
        "random": softmax,
        "few senders": rng.dirichlet(np.full(clients, 0.02), clients),
        "equal rows": np.tile(softmax[:1], (clients, 1)),
        "identity": np.eye(clients),
        "blocks": blocks,
        "nearly equal blocks": 0.999 * blocks + 0.001 * softmax,
        "nearly degenerate": 0.5 * np.eye(clients) + 0.5 * blocks + 1e-5 * softmax,
        "ring": ring,
        "half of its own": 0.5 * np.eye(clients) + 0.5 * softmax,
        "own of each": (softmax + np.diag(rng.random(clients))) / (1 + rng.random((clients, 1))),
        "two stars": np.eye(clients)[np.where(place < clients // 2, 0, clients // 2)],
        "zero": np.zeros((clients, clients)),
    }


@pytest.mark.long
@pytest.mark.parametrize("name", large_weights())
def test_of_many_clients_the_second_singular_value_has_the_error_that_is_stated(name):
    weights = large_weights()[name].astype(np.float32)
    expected = np.linalg.svd(weights.astype(float), compute_uv=False)[1]
    found = second_singular_value(weights.astype(float))
    # From below, up to the last digits of float32.
    assert expected - measures.ERROR <= found <= expected + 1e-5 * max(1, expected)
    # The bound is far from the error: these are the digits that a table would show.
    assert found == pytest.approx(expected, abs=2e-4)


def test_up_to_512_clients_the_second_singular_value_is_exact():
    weights = stochastic(2, clients=512)
    expected = np.linalg.svd(weights, compute_uv=False)[1]
    assert second_singular_value(weights) == round(float(expected), 6)


@pytest.mark.slow
def test_few_products_of_many_clients_are_enough(monkeypatch):
    """The cost of one singular value is far below that of all, which grows as the cube."""
    counts = []
    eigh = np.linalg.eigh
    monkeypatch.setattr(np.linalg, "eigh", lambda x: counts.append(len(x)) or eigh(x))
    for name in ("random", "few senders", "blocks", "identity", "equal rows"):
        counts.clear()
        second_singular_value(large_weights()[name])
        assert counts[-1] <= 16 * measures.BLOCK, name


NETWORK_NAMES = [*NETWORKS, "directed circle", "blocks", "hears nobody", "random"]


def network_weights(name, clients):
    """Weights on a graph by name, whose rows sum to one."""
    rng = np.random.default_rng(0)
    if name == "directed circle":
        return (np.eye(clients) + np.roll(np.eye(clients), 1, axis=1)) / 2
    if name == "blocks":
        return np.kron(np.eye(2), np.full((clients // 2, clients // 2), 2 / clients))
    if name == "hears nobody":
        weights = np.full((clients, clients), 1 / clients)
        weights[0] = np.eye(clients)[0]
        return weights
    if name == "random":
        return rng.dirichlet(np.full(clients, 0.05), clients)
    edges = matrix_of(NETWORKS[name](clients, 4, 0)[0], clients)
    degrees = np.maximum(edges.sum(axis=1)[:, None], edges.sum(axis=0))
    weights = edges / (1 + degrees)
    return weights + np.diag(1 - weights.sum(axis=1))


@pytest.mark.long
@pytest.mark.parametrize("name", NETWORK_NAMES)
def test_of_many_clients_the_spectral_gap_has_the_error_that_is_stated(name):
    weights = network_weights(name, 300)
    second = np.sort(np.abs(np.linalg.eigvals(weights)))[-2]
    assert spectral_gap(weights.astype(np.float32)) == pytest.approx(1 - second, abs=1e-3)


@pytest.mark.parametrize("clients", [16, 256, 640])
def test_the_spectral_gap_of_graphs_whose_eigenvalues_have_a_formula(clients):
    angle = 2 * np.pi / clients
    gaps = {
        "ring": 1 - (1 + 2 * np.cos(angle)) / 3,
        "directed circle": 1 - np.cos(angle / 2),  # |1 + exp(i angle)| / 2
        "complete": 1,
        "blocks": 0,
        "hears nobody": 1 / clients,
    }
    for name, gap in gaps.items():
        assert spectral_gap(network_weights(name, clients)) == pytest.approx(gap, abs=1e-3), name


def test_the_spectral_gap_at_its_limits():
    assert spectral_gap(np.ones((1, 1))) == 1
    assert spectral_gap(np.kron(np.eye(2), np.full((3, 3), 1 / 3))) == 0
    # On a directed path all clients but the first have the eigenvalue 1 / 2.
    path = np.eye(9) / 2 + np.eye(9, k=-1) / 2
    path[0, 0] = 1
    assert spectral_gap(path) == 0.5
    assert np.isnan(spectral_gap(np.full((3, 3), np.nan)))


@pytest.mark.slow
def test_evaluations_of_gossip_tell_the_gap_of_the_last_rounds_weights(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = [*SHORT, "--hyper", "graph=ring", "--eval-every", "2", "--out", "x"]
    assert main(["run", "gossip", *words]) == 0
    (line,) = map(json.loads, (tmp_path / "x/metrics.jsonl").read_text().splitlines())
    # Metropolis weights of a ring of ten: a third each.
    assert line["metrics"]["spectral_gap"] == pytest.approx(
        1 - (1 + 2 * np.cos(2 * np.pi / 10)) / 3, abs=1e-3
    )


def pair_counting_rand_index(one, other):
    """Hubert and Arabie's index, from the pairs that are together in both, one or the other."""
    pairs = list(itertools.combinations(range(len(one)), 2))
    same = np.array([[one[i] == one[j], other[i] == other[j]] for i, j in pairs])
    both = np.sum(same.all(axis=1))
    expected = same[:, 0].sum() * same[:, 1].sum() / len(pairs)
    highest = same.sum() / 2
    return (both - expected) / (highest - expected)


def test_the_agreement_counts_pairs_of_clients_in_the_same_block():
    # The blocks of these weights are {0, 1, 2} and {3, 4, 5}.
    weights = np.kron(np.eye(2), np.full((3, 3), 0.3)) + np.full((6, 6), 0.1 / 6)
    for groups in ([0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 1, 1], [0, 1, 0, 1, 0, 1]):
        expected = pair_counting_rand_index([0, 0, 0, 1, 1, 1], groups)
        assert group_agreement(weights, np.array(groups)) == pytest.approx(expected)


@pytest.mark.parametrize("weights", [np.full((4, 4), 0.25), np.eye(4)])
def test_weights_without_structure_have_no_edges_and_find_no_groups(weights):
    found = measure_graph(weights, groups=np.array([0, 0, 1, 1]))
    assert found["group_agreement"] == 0.0
    assert found["edge_precision"] is None
    assert found["edge_recall"] == 0.0


def test_precision_and_recall_of_edges_are_counted_one_by_one():
    weights = np.random.default_rng(2).random((8, 8))
    groups = np.array([0, 1, 2, 0, 1, 0, 2, 0])
    hits = edges = pairs = 0
    for i in range(8):
        others = [j for j in range(8) if j != i]
        mean = sum(weights[i, j] for j in others) / 7
        for j in others:
            edges += weights[i, j] > mean
            pairs += groups[i] == groups[j]
            hits += weights[i, j] > mean and groups[i] == groups[j]
    assert edge_precision_recall(weights, groups) == (hits / edges, hits / pairs)


def test_malicious_clients_count_as_senders_of_the_weight_given_to_them_alone():
    weights = np.array([[0.5, 0.3, 0.2], [0.4, 0.4, 0.2], [0.0, 0.0, 1.0]])
    malicious = np.array([False, False, True])
    found = measure_graph(weights, groups=np.array([0, 1, 1]), malicious=malicious)
    assert found["malicious_weight"] == pytest.approx(0.2)
    assert found["self_weight"] == pytest.approx(0.45)
    assert found["edge_recall"] is None


def test_a_client_whose_weights_are_not_finite_leaves_nothing_to_measure():
    assert measure_graph(np.full((2, 2), np.nan)) == {}


@pytest.mark.slow
def test_a_run_writes_the_measures_of_its_weights(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = [*SHORT, "--partition", "pathological", "--out", "x"]
    assert main(["run", "pfedgraph", *options]) == 0
    line = json.loads((tmp_path / "x/metrics.jsonl").read_text().splitlines()[-1])
    arrays = np.load("x/graph.npz")
    # Ten clients with two labels each are those of five groups.
    groups = np.arange(10) % 5
    assert line["graph"] == measure_graph(arrays["weights"][-1], groups)
    assert json.loads((tmp_path / "x/summary.json").read_text())["graph"] == line["graph"]


def test_of_several_parts_the_most_mixed_one_is_shown():
    head = {"collaborators": 1.0, "self_weight": 1.0}
    body = {"collaborators": 4.0, "self_weight": 0.25}
    assert most_mixed({"head": head, "body": body}) == body
    assert most_mixed(body) == body
    assert most_mixed({}) == {}


def test_measures_that_are_not_defined_are_gaps_in_the_curve():
    lines = [{"graph": {"collaborators": 2.0, "edge_precision": p}} for p in (None, 0.5)]
    np.testing.assert_array_equal(graph_measures(lines)["edge_precision"], [np.nan, 0.5])
    assert graph_measures([{"round": 1}]) == {}


def test_the_measures_of_pooled_runs_are_means_over_all_seeds():
    from jaxfl.experiment import Config

    runs = {}
    for name, first, count, numbers in (("a", 0, 1, (1.0, None)), ("b", 1, 2, (4.0, 0.5))):
        one = evaluated_run("local", 0.5, seeds=(0.5,) * count)
        graph = {"body": {"collaborators": numbers[0], "edge_precision": numbers[1]}}
        final = one.summary["final"]
        summary = one.summary | {"graph": graph, "selected_on_val": final, "seconds": 1}
        lines = [line | {"graph": graph} for line in one.lines]
        config = Config(algorithm="local", seed=first, seeds=count)
        runs[name] = RunRecord(summary, lines, config)
    (pooled,) = pool_seeds(runs).values()
    assert pooled.summary["graph"]["body"] == {"collaborators": 3.0, "edge_precision": 0.5}
    assert pooled.lines[0]["graph"] == pooled.summary["graph"]


@pytest.mark.parametrize(("own", "share"), [(0.9, 0.05), (0.9, 0.1), (0.5, 0.02)])
def test_a_value_a_little_above_many_equal_ones_is_found(own, share):
    """Clients with a weight of their own in two groups: the values are 1, a + (1 - a) g and a."""
    clients = 600
    signs = np.where(np.arange(clients) < clients // 2, 1.0, -1.0)
    mean = np.full((clients, clients), 1 / clients)
    rest = mean + share * np.outer(signs, signs) / clients
    weights = own * np.eye(clients) + (1 - own) * rest
    exact = own + (1 - own) * share
    assert second_singular_value(weights) == pytest.approx(exact, abs=1e-3)


def test_equal_rows_have_no_second_value_whoever_is_heard(monkeypatch):
    """Without the values of all dimensions, which would take minutes for thousands of clients."""
    monkeypatch.setattr(np.linalg, "svd", _small(np.linalg.svd))
    one_source = np.zeros((600, 600))
    one_source[:, 0] = 1.0
    sizes = np.random.default_rng(0).pareto(1.0, 600)
    for weights in (one_source, np.tile(sizes / sizes.sum(), (600, 1))):
        assert second_singular_value(weights) < 1e-3


def _small(svd):
    """The decomposition, which refuses square matrices of hundreds of rows."""

    def checked(matrix, **options):
        assert min(matrix.shape) < 500
        return svd(matrix, **options)

    return checked
