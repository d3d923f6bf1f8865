"""The benchmarks measure what they claim to measure; no times are tested."""

import functools
import re
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxfl
from benchmarks import report
from benchmarks.accelerators import parts, rows, session
from benchmarks.accelerators.rows import Session, measure_row, read_rows
from benchmarks.accelerators.session import page as page_of_session
from benchmarks.kernels import __main__ as kernels
from benchmarks.kernels import rounds
from benchmarks.kernels.cases import KERNELS
from benchmarks.kernels.inputs import left_out
from benchmarks.peers import run_peer, server_loops, stored
from benchmarks.peers.cloned import whole_epochs
from benchmarks.peers.unequal import PARTITIONS, Unequal, clients_of
from benchmarks.peers.work import Work, batches, client, place_from_arguments
from benchmarks.rounds import (
    adapters,
    adapters_memory,
    fedavg_round,
    gradient_through_rounds,
    many_clients,
    network,
    pfedgraph_round,
    same_start,
    sparse_step,
    unequal_clients,
)
from experiments.tables import standins
from jaxfl.kernels.mixing import mix
from jaxfl.kernels.similarity import cosine
from jaxfl.kernels.simplex import collaboration_rows
from jaxfl.models.vit import ViT


@pytest.mark.slow
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


@pytest.mark.slow
def test_the_section_of_many_clients_has_each_part_of_the_step():
    text = sparse_step.section(100.0, sizes=(12,), size=40)
    rows = [line.split("|")[2].strip() for line in text.splitlines() if line.startswith("| 12 ")]
    assert rows == ["similarities", "weights", "mixing", "all", "floor of one product"]


@pytest.mark.slow
def test_the_section_of_a_network_has_times_and_memory():
    text = network.section(sizes=(48,), size=20, repeats=1)
    (row,) = [line for line in text.splitlines() if line.startswith("| 48 ")]
    numbers = [float(cell) for cell in row.split("|")[2:-1]]
    assert len(numbers) == 7
    assert np.isfinite(numbers).all()


@pytest.mark.slow
def test_the_step_of_many_clients_is_timed_on_one_device(monkeypatch):
    seen = []

    def step_ms(clients, size):
        seen.append(jnp.zeros(clients).sharding.num_devices)
        parts = ("exact cosines", "cosines of sketches", "weights", "largest weights")
        return dict.fromkeys((*parts, "dense mixing", "sparse mixing"), 1.0)

    monkeypatch.setattr(sparse_step, "step_ms", step_ms)
    with jax.set_mesh(jaxfl.mesh.make_mesh()):
        assert jnp.zeros(8).sharding.num_devices > 1
        sparse_step.section(100.0, sizes=(8,), size=40)
    assert seen == [1]


@pytest.mark.slow(seconds=15)
def test_the_gradient_through_rounds_is_compiled_and_timed():
    section = gradient_through_rounds.section(rounds=2, steps=1)
    rows = [line.split("|") for line in section.splitlines() if line.startswith("| loss")]
    assert [row[1].strip() for row in rows] == ["loss", "loss and gradient"]
    numbers = [float(cell.replace(",", "")) for row in rows for cell in row[2:-1]]
    assert np.isfinite(numbers).all()


@pytest.mark.slow
def test_pytorch_gets_the_same_lenet():
    """Its layers, written with channels first, give the same logits."""
    model = jaxfl.models.lenet(10)
    images = jax.random.normal(jax.random.key(0), (3, 32, 32, 3))
    params = jax.tree.map(lambda x: x + 0.01, model.init(jax.random.key(1), images))
    layers = same_start.as_pytorch(params)
    x = images.transpose(0, 3, 1, 2)
    for place in (0, 3):
        x = jax.lax.conv(x, layers[f"{place}.weight"], (1, 1), "VALID")
        x = jax.nn.relu(x + layers[f"{place}.bias"][None, :, None, None])
        x = x.reshape(*x.shape[:2], x.shape[2] // 2, 2, x.shape[3] // 2, 2).max(axis=(3, 5))
    x = x.reshape(3, -1)
    for place in (7, 9):
        x = jax.nn.relu(x @ layers[f"{place}.weight"].T + layers[f"{place}.bias"][None])
    logits = x @ layers["11.weight"].T + layers["11.bias"][None]
    np.testing.assert_allclose(logits, model.apply(params, images), atol=1e-5)


@pytest.mark.parametrize("name", ["lenet", "resnet8", "mlp"])
def test_pytorch_gets_models_of_the_same_size(name):
    peer = pytest.importorskip("benchmarks.peers.torch_fedavg", reason="needs torch")
    images = jnp.zeros((1, 32, 32, 3))
    model = getattr(jaxfl.models, name)(10)
    params = jax.eval_shape(model.init, jax.random.key(0), images)
    theirs = peer.net_on("cpu", name).parameters()
    assert sum(p.numel() for p in theirs) == jaxfl.tree.size(params) == peer.PARAMETERS[name]


def test_a_peer_runs_lenet_on_the_cpu_unless_told(monkeypatch):
    for given, place in (
        ([], ("cpu", "lenet")),
        (["cuda"], ("cuda", "lenet")),
        (["cuda", "mlp", "8"], ("cuda", "mlp")),
    ):
        monkeypatch.setattr(sys, "argv", ["peer", "100", "16", "20", *given])
        assert place_from_arguments() == place


@pytest.mark.slow(seconds=15)
def test_a_run_from_the_same_start_without_peers(tmp_path, capsys):
    standins.write("cifar10", tmp_path)
    same_start.main(data_dir=str(tmp_path), rounds=1, seeds=1, local_steps=1)
    rows = dict(line.split("|")[1:3] for line in capsys.readouterr().out.splitlines()[2:])
    *peers, ours = rows.values()
    assert [cell.strip() for cell in peers] == ["not run"] * len(same_start.STARTS)
    assert 0 <= float(ours) <= 100


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


def test_whole_epochs_come_nearest_to_the_steps():
    sizes = [64, 320]
    assert whole_epochs(sizes, Work(2, 64, 1)) == (1, 6)
    assert whole_epochs(sizes, Work(2, 64, 10)) == (3, 18)
    assert whole_epochs(sizes, Work(2, 50, 9)) == (2, 18)


def test_a_section_made_anew_leaves_the_others_as_they_were():
    first = {"growth": "## Growth\n\nold\n", "server_step": "## Server\n\nold\n"}
    before = report.page("", first, "*yesterday*\n")
    after = report.page(before, {"growth": "## Growth\n\nnew\n"}, "*today*\n")
    server, growth = after.split("<!-- growth -->")
    assert server == before.split("<!-- growth -->")[0]
    assert growth == "\n## Growth\n\n*today*\n\nnew\n"


def test_the_page_of_performance_begins_with_what_its_sections_say():
    """The committed page, and one whose peers did not run."""
    committed = report.PAGE.read_text()
    assert report.page(committed, {}, "") == committed
    step = "| M | floor | one | all | loops | times |\n|---|\n| {} | 0.5 | 2.0 | 3 | {} | 20 |\n"
    sections = {"server_step": f"## Step\n\n{step.format(100, 'not run')}"}
    page = report.page("", sections, "")
    assert "| 100 | 0.5 | 2.0 | 4 |" in page
    assert "Beside other tools" not in page
    sections = {"server_step": f"## Step\n\n{step.format(100, 40)}"}
    line = "| the server's step of pFedGraph, 100 clients | 2.0 ms | loops in NumPy | 40 ms | 20 |"
    assert line in report.page("", sections, "")


@pytest.mark.slow
def test_a_peer_tells_its_numbers_or_why_not(tmp_path):
    assert run_peer(None, "server_loops", 3) == "not run"
    assert run_peer(tmp_path, "server_loops", 3) == "not run: no environment torch"
    (tmp_path / "torch").symlink_to(sys.prefix)
    found = run_peer(tmp_path, "server_loops", 3, 2)
    assert len(found["ms"]) == 2
    assert min(found["ms"]) > 0
    assert "ValueError" in run_peer(tmp_path, "server_loops", "three")


@pytest.mark.slow
def test_a_table_has_a_row_for_each_framework():
    table = fedavg_round.section(None, clients=2, steps=2, batches=(16,), turns=1)
    rows = [line for line in table.splitlines() if line.startswith("| ")]
    assert len(rows) == 2 + len(fedavg_round.PEERS)
    assert {row.count("|") for row in rows} == {5}
    assert sum("not run" in row for row in rows) == len(fedavg_round.PEERS)


@pytest.mark.slow
def test_clients_with_two_labels_are_scored_on_a_fifth_of_the_images():
    every, two = (pfedgraph_round.federation(2, labels).test.mask for labels in (10, 2))
    assert every.sum() == every.size
    np.testing.assert_allclose(two.mean(axis=1), 0.2, atol=0.02)


def test_the_table_of_a_whole_round_compares_each_row_with_the_script(monkeypatch):
    parts = {"round": 5.0, "scores": 3.0, "evaluation": 15.0, "compile_seconds": 1.0}
    two = parts | {"scores": 1.0}
    script = {"training": 25.0, "server": 5.0, "evaluation": 18.0, "version": "torch 2"}
    found = {10: parts, 2: two}
    monkeypatch.setattr(pfedgraph_round, "seconds", lambda work, labels=10: found[labels])
    monkeypatch.setattr(pfedgraph_round, "run_peer", lambda *arguments: script)
    rows = [line for line in pfedgraph_round.section(None).splitlines() if line.startswith("| ")]
    assert [row.split("|")[-2].strip() for row in rows[1:]] == ["6.0", "8.0", "2.4", "1.0"]


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


def test_the_table_of_memory_is_in_units_of_the_images(monkeypatch):
    def peaks(_, partition, clients, examples):
        held = unequal_clients.sizes_of(partition, clients, examples).sum()
        mib = held * unequal_clients.IMAGE / 2**20
        return {"loading": 100 + 2 * mib, "rounds": 200 + 1.25 * mib}

    monkeypatch.setattr(unequal_clients, "in_own_process", peaks)
    table = unequal_clients.memory_section(examples=20_000)
    rows = [line for line in table.splitlines() if line.startswith("| 1")]
    assert [row.split(" | ")[-1] for row in rows] == ["1.25 |"] * 6
    # 1,000 clients padded to 4,000 examples, in units of 4,000 + 999 * 16
    assert rows[-1].split(" | ")[2] == "200.2"


@pytest.mark.slow
def test_the_table_of_unequal_clients_has_a_row_for_each_case():
    table = unequal_clients.section(None, clients=(2,), batches=(4,), examples=40)
    rows = [line for line in table.splitlines() if line.startswith("| ")]
    assert len(rows) == 1 + len(PARTITIONS)
    assert {row.count("|") for row in rows} == {9}
    assert sum(row.count("not run") for row in rows) == 2 * len(unequal_clients.PEERS)


def test_images_on_the_disk_are_those_of_the_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr(stored, "BLOCK", 2)
    stored.write_images(tmp_path / "x.npy", 5, 3)
    found = np.load(tmp_path / "x.npy")
    blocks = list(stored.blocks(5, 3))
    assert [len(block) for block in blocks] == [6, 6, 3]
    np.testing.assert_array_equal(found, np.concatenate(blocks))
    assert len(np.unique(found.reshape(15, -1), axis=0)) == 15


def test_the_best_rounds_on_the_disk_are_those_that_follow_each_other():
    seconds = [9.0] + [4.0, 1.0, 4.0, 4.0] + [3.0] * 4 * (stored.REPEATS - 1)
    assert len(seconds) == stored.ALL_ROUNDS
    assert stored.seconds_of_round(seconds) == 3.0


@pytest.mark.slow
def test_clients_on_the_disk_stand_in_both_tables(monkeypatch):
    small = {"COHORT": 2, "TRAIN": 4, "TEST": 2, "BATCH": 2, "EPOCHS": 1, "REPEATS": 1, "ROUNDS": 2}
    for name, value in small.items():
        monkeypatch.setattr(stored, name, value)
    monkeypatch.setattr(many_clients, "FRESH_GIB", 0)
    monkeypatch.setattr(many_clients, "in_own_process", many_clients.measure)
    tables = many_clients.section(None, sizes=(10,))
    lines = tables.splitlines()
    assert "| clients | 10 |" in lines
    assert any(re.fullmatch(r"\| resume, s \| [\d.]+ \|", line) for line in lines)
    (header,) = [line for line in lines if line.startswith("| clients | jaxfl, s |")]
    (beside,) = [line for line in lines if line.startswith("| 10 |")]
    assert beside.count("|") == header.count("|")
    assert beside.count("not run") == len(many_clients.PEERS)


@pytest.fixture
def shallow(monkeypatch):
    """One block in place of twelve."""
    monkeypatch.setattr(adapters, "ViT", functools.partial(ViT, depth=1))
    monkeypatch.setattr(adapters, "frozen_weights", adapters.frozen_weights.__wrapped__)


def test_pytorch_computes_the_same_adapters(shallow, monkeypatch, tmp_path):
    peer = pytest.importorskip("benchmarks.peers.torch_adapters", reason="needs torch")
    monkeypatch.setattr(peer, "DEPTH", 1)
    adapters.write_sample(tmp_path / "sample.npz", rows=2)
    assert peer.difference(str(tmp_path / "sample.npz")) < peer.TOLERANCE


@pytest.mark.slow(seconds=20)
def test_the_sample_of_adapters_has_a_step_of_each(shallow, tmp_path):
    adapters.write_sample(tmp_path / "sample.npz", rows=2)
    with np.load(tmp_path / "sample.npz") as arrays:
        named = dict(arrays)
    trained = [path for path in named if path.startswith("trained:")]
    assert len(trained) == 2 * 4 + 2
    for path in trained:
        start = named[path.replace("trained:", "adapters:")]
        assert np.abs(named[path] - start).max() > 1e-6
    frozen = {path for path in named if path.startswith("frozen:")}
    assert "frozen:params/block0/qkv/kernel" in frozen
    assert named["batch:x"].max() <= 1


@pytest.mark.slow(seconds=60)
def test_the_tables_of_adapters_have_a_row_for_each_case(shallow):
    case = adapters.Case(1, 1, 2)
    lines = adapters.section(None, cases=(case,), side_by_side=(case,)).splitlines()
    beside, by_chunk = (line for line in lines if line.startswith("| 2 clients, batch 1 |"))
    assert beside.count("not run") == 2
    assert len(by_chunk.split("|")) == 3 + len(adapters.CHUNKS)


def test_the_table_of_adapters_memory_is_in_units_of_what_must_be_there(monkeypatch):
    def measured(threads, method, clients, batch, width):
        parts = adapters_memory.Parts(width / 10, 2.0 * clients, batch)
        every = parts.all(2)
        return parts._asdict() | {"all": every, "peak": 300 + 1.25 * every}

    monkeypatch.setattr(adapters_memory, "in_own_process", measured)
    rows = [line for line in adapters_memory.section().splitlines() if line.startswith("| local")]
    assert [row.split(" | ")[-1] for row in rows] == ["1.25 |"] * len(rows)
    assert rows[-1].split(" | ")[1:5] == ["19", "200", "16", "251"]


@functools.cache
def computed(name):
    """A kernel's arguments and results at a small size."""
    arguments = KERNELS[name].inputs(np.random.default_rng(0), 12, 40)
    return arguments, jax.tree.leaves(jax.jit(KERNELS[name].run)(*map(jnp.asarray, arguments)))


def is_slow(peer):
    """Whether a peer takes seconds to compile."""
    return pytest.mark.slow if peer.compiled else ()


@pytest.mark.long(every=41)
@pytest.mark.parametrize(
    ("name", "peer"),
    [
        pytest.param(name, peer, marks=is_slow(kernel.peers[peer]))
        for name, kernel in KERNELS.items()
        for peer in kernel.peers
    ],
)
def test_a_peer_computes_what_the_kernel_computes(name, peer):
    arguments, ours = computed(name)
    theirs = KERNELS[name].peers[peer].run(*[a.copy() for a in arguments])
    theirs = theirs if isinstance(theirs, tuple) else (theirs,)
    assert len(ours) == len(theirs)
    if name == "kmeans":  # different seeds: ours must be as good, within a tenth
        assert float(ours[0]) < 1.1 * theirs[0]
        return
    # The tolerance is the accuracy of the solvers of quadratic programs.
    for own, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-4, atol=1e-4)


def test_every_kernel_is_measured_at_a_small_size_and_has_a_floor():
    for kernel in KERNELS.values():
        assert left_out(kernel, 10, 10_000) is None
        assert kernel.floats(10, 10_000) > 0
        assert kernel.peers
    assert left_out(KERNELS["mix"], 1_000, 1_000_000) == "more than 4 GiB"


def test_the_peer_of_a_round_trains_as_many_clients():
    trained = rounds.numpy_training()()
    assert len(trained) == rounds.CLIENTS
    assert all(np.isfinite(leaf).all() for client in trained for leaf in client)
    # One layer of products, each way twice but for the images.
    assert rounds.operations() > 2 * 2 * 64 * 128 * 16 * 10 * 20


def test_the_page_of_kernels_has_a_line_for_each_peer():
    def benchmark(kind, name, peers):
        rates = {"gflops": 200.0, "gbs": 10.0, "dispatch_ms": 0.01}
        size = {"kernel": name, "m": 10, "d": 1_000, "floor_ms": 1.0, "compile_seconds": 0.5}
        extra = size | {"kind": kind, "peers": peers} | rates
        return {"extra_info": extra, "stats": {"min": 0.002, "data": [0.002]}}

    results = {
        "machine_info": {"node": "somebody's"},
        "benchmarks": [
            benchmark("models", "cosine", {"NumPy": 1.0}),
            benchmark("pairs", "project_rows", {"SciPy": 400.0, "NumPy": 1.0}),
            benchmark("round", "fedcedar", {}),
        ],
    }
    short = kernels.shortened(results)
    assert "node" not in short["machine_info"]
    assert "data" not in short["benchmarks"][0]["stats"]
    page = kernels.page(short)
    assert "| cosine | 10 | 1,000 | 2 | 2 | 0.5 | NumPy | 1 | 0.5 |" in page
    assert page.count("| project_rows | 10 |") == 2
    assert "| fedcedar | 10 | 2 | 2 | 0.5 | - | - | - |" in page


def test_a_session_goes_on_with_what_is_missing(tmp_path):
    session = Session(tmp_path, time.monotonic() + 60)
    calls = []

    def measure(case, found):
        def run():
            calls.append(case)
            if isinstance(found, Exception):
                raise found
            return found

        measure_row(session, "steps", {"clients": case}, run)

    measure(1, {"ms": 2.0})
    measure(2, MemoryError("out of memory\nand more"))
    with (tmp_path / rows.FILE).open("a") as file:
        file.write('{"part": "ste')  # an abort cuts a line
    measure(1, {"ms": 3.0})
    measure(2, {"ms": 4.0})
    measure_row(session._replace(ends=0), "steps", {"clients": 3}, lambda: calls.append(3))
    assert calls == [1, 2, 2]
    found = [row["found"] for row in read_rows(tmp_path)]
    assert found == [{"ms": 2.0}, {"error": "out of memory"}, {"ms": 4.0}]
    device = {"device": "a card", "devices": "1", "jax": "0.10", "python": "3.11"}
    rows.write_row(tmp_path, "device", {}, device)
    page = page_of_session(read_rows(tmp_path))
    assert "1 x a card" in page
    assert "| 2 | 4 |" in page
    assert "out of memory" not in page


def test_a_session_measures_the_rates_of_the_device(tmp_path):
    parts.rates(Session(tmp_path, time.monotonic() + 60, smallest=True))
    rows = read_rows(tmp_path)
    assert [row["case"].get("product") for row in rows] == ["float32", "TF32", "bfloat16", None]
    assert all(value > 0 for row in rows for value in row["found"].values())


@pytest.mark.slow
def test_a_session_measures_a_step(tmp_path, monkeypatch):
    monkeypatch.setattr(parts, "ARITHMETIC", {"TF32": ("tensorfloat32", "float32")})
    # A model that compiles faster.
    monkeypatch.setattr(jaxfl.models, "lenet", lambda classes, **_: jaxfl.models.mlp(classes))
    parts.steps(Session(tmp_path, time.monotonic() + 60, smallest=True))
    (row, *others) = read_rows(tmp_path)
    assert len(others) == len(parts.CONVOLUTIONS) - 1
    assert row["found"].get("step ms", 0) > 0, row


@pytest.mark.slow
def test_a_session_measures_rounds_of_each_model(tmp_path, monkeypatch):
    for name in ("lenet", "resnet8"):  # a model that compiles faster
        monkeypatch.setattr(jaxfl.models, name, lambda classes, **_: jaxfl.models.mlp(classes))
    parts.rounds(Session(tmp_path, time.monotonic() + 60, smallest=True))
    rows = read_rows(tmp_path)
    assert {row["case"]["model"] for row in rows} == {"lenet", "resnet8", "mlp"}
    assert all(row["found"].get("round ms", 0) > 0 for row in rows), rows


def test_a_program_that_does_not_compile_is_a_row_with_its_error(tmp_path, monkeypatch):
    def refuse(*args, **options):
        raise ValueError("too large")

    monkeypatch.setattr(parts, "compile_training", refuse)
    parts.steps(Session(tmp_path, time.monotonic() + 60, smallest=True))
    assert {row["found"]["error"] for row in read_rows(tmp_path)} == {"too large"}


def test_a_session_says_which_peers_are_missing(tmp_path):
    parts.peers(Session(tmp_path, time.monotonic() + 60, smallest=True))
    rows = read_rows(tmp_path)
    assert {row["case"]["peer"] for row in rows} == set(parts.PEER_ARGUMENTS)
    assert {row["found"]["error"] for row in rows} == {"missing (not run)"}


@pytest.mark.slow(seconds=20)
def test_a_session_runs_blazefls_benchmark(tmp_path):
    parts.blazefl(Session(tmp_path, time.monotonic() + 60, smallest=True))
    (row,) = read_rows(tmp_path)
    assert row["found"]["seconds"] > 0


@pytest.mark.slow(seconds=10)
def test_a_session_writes_the_outcomes_of_tests(tmp_path):
    parts.determinism(Session(tmp_path, time.monotonic() + 60, smallest=True))
    (row,) = read_rows(tmp_path)
    assert row["found"] == {"outcome": "PASSED"}


@pytest.mark.slow(seconds=40)
def test_a_session_runs_cells_of_table_1(tmp_path):
    parts.table1(Session(tmp_path, time.monotonic() + 120, smallest=True))
    rows = read_rows(tmp_path)
    assert rows
    assert {row["found"]["runs"] for row in rows} == {"yes"}


def test_a_session_knows_its_parts():
    assert set(parts.PARTS) == set(session.PARTS)


def test_the_page_of_kernels_begins_with_the_fastest_and_slowest():
    def found(kernel, peer_ms):
        return {"kernel": kernel, "floor_ms": 0.5, "peers": {"NumPy": peer_ms}}, 1.0

    text = kernels.answer([found("quick", 4.0), found("quick", 6.0), found("slow", 0.5)])
    assert text.startswith("In 2 of 3 measurements of 2 kernels")
    assert "takes 2 times its floor, and its peer 4 times as long" in text
    assert text.endswith("are `quick` (5), `slow` (0.5); slowest `slow` (0.5), `quick` (5).")
