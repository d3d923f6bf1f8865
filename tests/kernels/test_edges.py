"""Graphs that are limited to the largest weights of each row, in the methods and in a run."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import deployed, equal, linear, made, opposite_groups, run, shallow

from jaxfl.algorithms import ALGORITHMS, fedavg, local, pfedgraph
from jaxfl.cli import main
from jaxfl.core.errors import InputError
from jaxfl.core.facts import facts_of
from jaxfl.experiment import Config
from jaxfl.kernels.sparse import SparseRows, dense_rows, top_edges

SHORT = ["--clients", "4", "--partition", "iid", "--rounds", "1", "--local-steps", "1"]
TAKERS = [name for name, made in ALGORITHMS.items() if facts_of(made).takes_top_edges]
# The part of the model that is mixed by the graph, in methods that mix one part so
PARTS = {
    "pfedsim": "body",
    "fedpac": "head",
    "fedaghn": "Dense_1",
    "pfedla": "Dense_1",
    "fedapa": "Dense_0",
    "layer_tree": "Dense_0",
    "mutual_graph": "small",
}
QUICK = ("fedfomo", "sfl", "pfedgat")
MARKED = [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in TAKERS]


@pytest.mark.long(every=3)
@pytest.mark.parametrize("name", MARKED)
def test_a_row_has_its_own_weight_and_those_of_the_largest_others(name):
    """Over three rounds."""
    options = {"warmup": 0} if name == "pfedsim" else {}
    algorithm = ALGORITHMS[name](shallow(top_edges=1), **options)
    _, info, _ = run(algorithm, opposite_groups(), 3)
    weights = info.weights[PARTS[name]] if name in PARTS else info.weights
    np.testing.assert_allclose(weights.sum(axis=2), 1, atol=1e-5)
    assert np.count_nonzero(weights, axis=2).max() == 2


@pytest.mark.slow
def test_a_round_of_pfedgraph_deploys_the_mixture_of_the_edges_that_stay():
    data = opposite_groups()
    everything = made(pfedgraph, shallow)
    limited = made(pfedgraph, shallow, top_edges=2)
    _, info, _ = run(everything, data, 1)
    state, found, _ = run(limited, data, 1)
    rows = np.float64(info.weights[0])
    expected = np.zeros_like(rows)
    for i, row in enumerate(rows):
        others = sorted((j for j in range(6) if j != i), key=lambda j: -row[j])
        kept = [i, *others[:2]]
        expected[i, kept] = row[kept] / row[kept].sum()
    np.testing.assert_allclose(found.weights[0], expected, atol=1e-5)
    # Local training from the same model, of which pFedGraph has no aggregate yet.
    alone = made(local, shallow)
    trained = jax.tree.leaves(deployed(alone, run(alone, data, 1)[0], 6))
    for one, model in zip(jax.tree.leaves(deployed(limited, state, 6)), trained, strict=True):
        mixture = np.tensordot(expected, np.float64(model), axes=1)
        np.testing.assert_allclose(one, mixture, atol=1e-5)
    assert (found.down == info.down).all()


@pytest.mark.slow
def test_edges_beyond_the_number_of_clients_change_no_bit():
    data = opposite_groups()
    equal(
        run(made(pfedgraph, linear, top_edges=5), data, 2)[0],
        run(made(pfedgraph, linear), data, 2)[0],
    )


@pytest.mark.slow
def test_many_clients_are_mixed_by_sparse_rows_and_few_by_a_matrix():
    weights = jnp.asarray(np.random.default_rng(0).dirichlet(np.ones(40), size=40), jnp.float32)
    few = top_edges(20)(weights)
    np.testing.assert_array_equal(few.rows, few.weights)
    many = top_edges(2)(weights)
    assert isinstance(many.rows, SparseRows)
    np.testing.assert_array_equal(dense_rows(many.rows, 40), many.weights)


def test_a_task_without_a_limit_keeps_the_weights_as_they_are():
    weights = jnp.full((3, 3), 1 / 3)
    edges = linear().keep_edges(weights)
    assert edges.weights is weights
    assert edges.rows is weights


@pytest.mark.slow
def test_methods_without_a_graph_refuse_the_option(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["run", "fedavg", *SHORT, "--top-edges", "2", "--out", "x"]) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert "--top-edges: fedavg has no weights of which a client could keep the largest" in told
    named = told.partition("largest, choose ")[2].partition(", or leave")[0]
    assert set(named.replace(" or ", ", ").split(", ")) == set(TAKERS)
    assert not (tmp_path / "x").exists()
    with pytest.raises(InputError, match="--top-edges is 0: expected"):
        Config(top_edges=0)
    assert not facts_of(fedavg).takes_top_edges


@pytest.mark.slow
def test_a_run_keeps_the_largest_weights(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    short = [*SHORT, "--model", "linear", "--top-edges", "1"]
    assert main(["run", "pfedgraph", *short, "--out", "x"]) == 0
    with np.load("x/graph.npz") as graph:
        assert (np.count_nonzero(graph["weights"], axis=-1) == 2).all()
