"""The benchmarks measure what they claim to measure; no times are tested."""

import sys

import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import fedavg_round, report, unequal_clients
from benchmarks.peers import run_peer, server_loops
from benchmarks.peers.unequal import PARTITIONS, Unequal, clients_of
from benchmarks.peers.work import Work, batches, client
from jaxfl.kernels.mixing import mix
from jaxfl.kernels.similarity import cosine
from jaxfl.kernels.simplex import collaboration_rows


def test_the_loops_compute_what_the_kernels_compute():
    rng = np.random.default_rng(0)
    common = rng.normal(size=(2, 12)).astype(np.float32)
    models = [
        {"a": c[:8].reshape(2, 4), "b": c[8:]}
        for c in (common[i % 2] + rng.normal(size=12) for i in range(5))
    ]
    fractions = np.array([0.1, 0.3, 0.2, 0.2, 0.2])
    received = server_loops.server_step(models, fractions)
    stacked = {
        name: jnp.stack([jnp.asarray(m[name], jnp.float32) for m in models]) for name in "ab"
    }
    weights = collaboration_rows(
        cosine(list(stacked.values())), jnp.asarray(fractions, jnp.float32), 0.08 * 5, "code"
    )
    # Some edges have weight 0, so the quadratic programs are not trivial.
    assert float(weights.min()) < 1e-6 < float(weights.std())
    expected = mix(weights, stacked)
    # The tolerance is the accuracy of SciPy's solver.
    for i, model in enumerate(received):
        for name in "ab":
            np.testing.assert_allclose(model[name], expected[name][i], atol=5e-3)


def test_batches_are_epochs_end_to_end():
    x, y = client(0)
    n = len(y)
    assert x.shape == (n, 32, 32, 3)
    assert n % 64 == 0
    drawn = list(batches(n, Work(1, 16, 2 * n // 16 + 1), np.random.default_rng(0)))
    assert {len(rows) for rows in drawn} == {16}
    first = np.concatenate(drawn[: n // 16])
    second = np.concatenate(drawn[n // 16 : 2 * n // 16])
    assert sorted(first) == sorted(second) == list(range(n))
    assert list(first) != list(second)


def test_a_section_made_anew_leaves_the_others_as_they_were():
    first = {"growth": "## Growth\n\nold\n", "server_step": "## Server\n\nold\n"}
    before = report.page("", first, "*yesterday*\n")
    after = report.page(before, {"growth": "## Growth\n\nnew\n"}, "*today*\n")
    server, growth = after.split("<!-- growth -->")
    assert server == before.split("<!-- growth -->")[0]
    assert growth == "\n## Growth\n\n*today*\n\nnew\n"


def test_a_peer_tells_its_numbers_or_why_not(tmp_path):
    assert run_peer(None, "server_loops", 3) == "not run"
    assert run_peer(tmp_path, "server_loops", 3) == "not run: no environment torch"
    (tmp_path / "torch").symlink_to(sys.prefix)
    found = run_peer(tmp_path, "server_loops", 3, 2)
    assert len(found["ms"]) == 2
    assert min(found["ms"]) > 0
    assert "ValueError" in run_peer(tmp_path, "server_loops", "three")


def test_a_table_has_a_row_for_each_framework():
    table = fedavg_round.section(None, clients=2, steps=2, batches=(16,), turns=1)
    rows = [line for line in table.splitlines() if line.startswith("| ")]
    assert len(rows) == 2 + len(fedavg_round.PEERS)
    assert {row.count("|") for row in rows} == {5}
    assert sum("not run" in row for row in rows) == len(fedavg_round.PEERS)


def test_unequal_clients_divide_the_same_examples():
    equal, unequal = (Unequal(partition, 10, 4, 1_000) for partition in PARTITIONS)
    assert equal.sizes().tolist() == [100] * 10
    assert unequal.sizes().sum() == 1_000
    assert unequal.sizes().max() > 3 * unequal.sizes().min() >= 30
    train = unequal_clients.federation(unequal)
    assert train.mask.sum(axis=1).tolist() == unequal.sizes().tolist()
    data = clients_of(unequal)
    np.testing.assert_allclose(train.x[3][train.mask[3]] / 255, data[3][0], rtol=1e-6)
    np.testing.assert_array_equal(train.y[3][train.mask[3]], data[3][1])


@pytest.mark.slow
def test_the_table_of_unequal_clients_has_a_row_for_each_case():
    table = unequal_clients.section(None, clients=(2,), batches=(4,), examples=40)
    rows = [line for line in table.splitlines() if line.startswith("| ")]
    assert len(rows) == 1 + len(PARTITIONS)
    assert {row.count("|") for row in rows} == {11}
    assert sum(row.count("not run") for row in rows) == 2 * len(unequal_clients.PEERS)
