"""Clients on disk: results as in memory, whatever is read ahead, stopped or written over."""

import functools
import json
import os
import shutil

import jax
import numpy as np
import pytest
from toys import (
    SIZES,
    close,
    equal,
    full,
    half,
    init_key,
    jit,
    linear,
    made,
    once,
    opposite_groups,
    pick,
    run_key,
    shallow,
)

import jaxfl
from jaxfl.algorithms import ALGORITHMS
from jaxfl.core.errors import InputError
from jaxfl.core.types import Federation, Pool
from jaxfl.simulation import checkpoint, on_disk
from jaxfl.simulation.on_disk.evaluate import in_parts
from jaxfl.simulation.on_disk.initial import initial_state

C = 6


@once
def uneven():
    return opposite_groups(sizes=SIZES)


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    return on_disk.write_federation(tmp_path_factory.mktemp("data") / "federation", uneven())


@pytest.fixture
def optimized():
    """The optimizations of a user: the programs in memory and on disk differ, see conftest.py."""
    jax.config.update("jax_disable_most_optimizations", False)
    jax.clear_caches()
    yield
    jax.config.update("jax_disable_most_optimizations", True)
    jax.clear_caches()


def start(algorithm, stored, directory, **options):
    return on_disk.open_clients(directory, algorithm, init_key(), stored, **options)


def rows(clients, state):
    """The states of all clients."""
    return clients.read(np.asarray(state.clients), np.arange(C))


def schedule(*cohorts):
    return jaxfl.participation.schedule(np.array(cohorts))


def in_memory(algorithm, participation, rounds):
    state = algorithm.init(init_key(), uneven().train)
    advance = jaxfl.make_rounds(algorithm, participation)
    return jax.device_get(advance(run_key(), uneven(), state, 0, rounds))


@pytest.mark.slow
@pytest.mark.sample(every=16)
def test_rounds_on_disk_have_the_numbers_of_rounds_in_memory(factory, stored, tmp_path, optimized):
    """They are another program: of one method on one processor the last digit differs."""

    def nearly(found, expected):
        jax.tree.map(
            functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-7), found, expected
        )

    algorithm = made(factory, shallow)
    memory, (info, ids) = in_memory(algorithm, half(C), 4)
    clients, state = start(algorithm, stored, tmp_path)
    rounds = on_disk.make_stored_rounds(algorithm, half(C), stored, clients)
    state, (stored_info, stored_ids) = rounds(run_key(), state, 0, 4)
    np.testing.assert_array_equal(stored_ids, ids)
    nearly(stored_info, info)
    nearly(state.server, memory.server)
    nearly(rows(clients, state), memory.clients)


@pytest.mark.slow
@pytest.mark.sample(every=16)
def test_scores_on_disk_are_the_scores_in_memory(factory, stored, tmp_path, optimized):
    check_scores(made(factory, shallow), stored, tmp_path)


@pytest.mark.slow(seconds=8)
def test_scores_of_personal_models_on_disk_are_those_in_memory(stored, tmp_path, optimized):
    check_scores(made(ALGORITHMS["ditto"], shallow), stored, tmp_path)


def check_scores(algorithm, stored, tmp_path):
    clients, state = start(algorithm, stored, tmp_path)
    memory = algorithm.init(init_key(), uneven().train)
    expected = jaxfl.make_evaluate(algorithm, shallow())(
        run_key(), uneven(), memory, np.arange(C), None, 0
    )
    evaluate = on_disk.make_stored_evaluate(algorithm, shallow(), stored, clients, together=4)
    equal(evaluate(run_key(), state, np.arange(C), None, 0), jax.device_get(expected))


@pytest.mark.slow
def test_a_client_of_two_rounds_in_a_row_has_its_new_state_in_the_second(stored, tmp_path):
    """The states of a round are read before those of the round before are written."""
    algorithm = made(ALGORITHMS["local"])
    sample = schedule([0, 1, 2], [2, 3, 4], [0, 2, 4])
    clients, state = start(algorithm, stored, tmp_path / "together")
    rounds = on_disk.make_stored_rounds(algorithm, sample, stored, clients)
    together, _ = rounds(run_key(), state, 0, 6)
    others, apart = start(algorithm, stored, tmp_path / "apart")
    one_by_one = on_disk.make_stored_rounds(algorithm, sample, stored, others)
    for number in range(6):
        apart, _ = one_by_one(run_key(), apart, number, 1)
    equal(rows(clients, together), rows(others, apart))
    assert together.clients[5, 0] == -1


def test_only_clients_that_took_part_have_rows(stored, tmp_path):
    algorithm = made(ALGORITHMS["local"])
    clients, state = start(algorithm, stored, tmp_path)
    rounds = on_disk.make_stored_rounds(algorithm, schedule([1, 3], [3, 5]), stored, clients)
    state, _ = rounds(run_key(), state, 0, 2)
    assert np.flatnonzero(state.clients[:, 0] >= 0).tolist() == [1, 3, 5]
    assert sorted(state.clients[[1, 3, 5], 0]) == [0, 1, 2]


def test_a_protected_state_stays_as_it_was_while_rounds_go_on(stored, tmp_path):
    algorithm = made(ALGORITHMS["local"])
    clients, state = start(algorithm, stored, tmp_path, keep=1)
    rounds = on_disk.make_stored_rounds(algorithm, half(C), stored, clients)
    protected, _ = rounds(run_key(), state, 0, 3)
    before = rows(clients, protected)
    clients.protect(protected)
    later, _ = rounds(run_key(), protected, 3, 5)
    equal(rows(clients, protected), before)
    clients.protect(later)
    newest, _ = rounds(run_key(), later, 8, 3)
    # The rows of the first one are free again, and are taken before the file grows.
    assert newest.clients[:, 0].max() < 2 * C
    with pytest.raises(InputError, match="holds a newer state of client"):
        rows(clients, protected)


@pytest.mark.slow
def test_a_file_that_is_cut_is_refused(stored, tmp_path, monkeypatch):
    algorithm = made(ALGORITHMS["ditto"])
    clients, first = start(algorithm, stored, tmp_path)
    rounds = on_disk.make_stored_rounds(algorithm, full(C), stored, clients)
    state, _ = rounds(run_key(), first, 0, 1)
    file = tmp_path / "clients.bin"
    rows_held = file.stat().st_size // clients.row_bytes
    os.truncate(file, C * clients.row_bytes - 1)
    with pytest.raises(InputError, match=f"has {C - 1} rows, the state names row {C - 1}"):
        rows(clients, state)
    # While it is read.
    monkeypatch.setattr(clients, "_capacity", lambda: rows_held)
    with pytest.raises(InputError, match=f"ends within row {C - 1}: the file was cut"):
        rows(clients, state)


@pytest.mark.slow
def test_a_run_that_was_killed_goes_on_with_the_same_bits(stored, tmp_path):
    """What rounds after the checkpoint have written does no harm."""
    algorithm = made(ALGORITHMS["ditto"])
    clients, first = start(algorithm, stored, tmp_path)
    rounds = on_disk.make_stored_rounds(algorithm, half(C), stored, clients)
    state, _ = rounds(run_key(), first, 0, 3)
    clients.protect(state)
    checkpoint.save(tmp_path / "checkpoint", 3, state)
    lost, (info, _) = rounds(run_key(), state, 3, 3)
    expected = jax.device_get((rows(clients, lost), lost.server, info))
    # Half of the rows of a later round.
    with (tmp_path / "clients.bin").open("r+b") as file:
        file.seek(int(lost.clients[:, 0].max()) * clients.row_bytes)
        file.write(b"\xff" * (clients.row_bytes // 2))

    clients, like = start(algorithm, stored, tmp_path, resume=True)
    done, state = checkpoint.restore(tmp_path / "checkpoint", like)
    rounds = on_disk.make_stored_rounds(algorithm, half(C), stored, clients)
    state, (info, _) = rounds(run_key(), state, done, 3)
    equal((rows(clients, state), jax.device_get(state.server), info), expected)


def test_states_that_vanish_while_they_are_used_are_missed_in_one_line(stored, tmp_path):
    clients, state = start(made(ALGORITHMS["local"], shallow), stored, tmp_path / "x")
    ids = np.arange(2)
    models = clients.read(state.clients, ids)
    clients.write(state.clients, ids, models, 1)
    shutil.rmtree(tmp_path / "x")
    for use in (
        lambda: clients.read(state.clients, ids),
        lambda: clients.write(state.clients, ids, models, 2),
        lambda: clients.protect(state),
    ):
        with pytest.raises(InputError, match=r"clients\.bin \(No such file or directory\): they m"):
            use()


@pytest.mark.slow
def test_first_states_need_no_memory_for_all_clients(tmp_path, optimized):
    clients = 100_000
    folder = tmp_path / "train"
    folder.mkdir()
    np.save(folder / "x.npy", np.zeros((clients, 8), np.float32))
    np.save(folder / "y.npy", np.zeros(clients, np.int32))
    np.save(folder / "offsets.npy", np.arange(clients + 1))
    federation = on_disk.open_federation(tmp_path)
    algorithm = made(ALGORITHMS["pfedgraph"], shallow)
    first = initial_state(algorithm, init_key(), federation, in_memory=10_000)
    few = algorithm.init(init_key(), federation.read(np.arange(3)).train)
    equal(first.rows(np.array([3, 70_000, 99_999])), jax.device_get(few.clients))


def test_first_states_that_depend_on_all_clients_fit_into_memory_or_are_refused(stored):
    algorithm, ids = made(ALGORITHMS["gfedmtl"]), np.array([4, 1])
    first = initial_state(algorithm, init_key(), stored)
    whole = jit(algorithm.init)(init_key(), uneven().train)
    close((first.rows(ids), first.server), (pick(whole.clients, ids), whole.server))
    with pytest.raises(InputError, match="depend on all clients at once, which takes"):
        initial_state(algorithm, init_key(), stored, in_memory=1000)


@pytest.mark.slow
def test_a_federation_on_disk_is_the_one_that_was_written(stored):
    data = stored.read(np.array([4, 1]))
    for part, expected in zip(data, uneven(), strict=True):
        for row, client in enumerate((4, 1)):
            real = np.asarray(expected.mask[client])
            assert part.mask[row].sum() == real.sum()
            np.testing.assert_array_equal(part.x[row][part.mask[row]], expected.x[client][real])
            np.testing.assert_array_equal(part.y[row][part.mask[row]], expected.y[client][real])
    np.testing.assert_array_equal(stored.sizes, SIZES)


def test_weights_and_a_shared_test_set_are_kept(tmp_path):
    train = uneven().train._replace(mask=uneven().train.mask * np.float32(2.0))
    pool = Pool(np.arange(6.0), np.arange(6), np.arange(C * 6, dtype=np.float32).reshape(C, 6))
    stored = on_disk.write_federation(tmp_path / "data", Federation(train, uneven().val, pool))
    data = stored.read(np.array([5, 0]))
    equal(data.test, pool._replace(mask=pool.mask[[5, 0]]))
    np.testing.assert_array_equal(np.unique(data.train.mask), [0.0, 2.0])
    np.testing.assert_array_equal(
        stored.sizes, np.asarray(Federation(train, uneven().val, pool).sizes)
    )


def test_a_shared_test_set_whose_examples_weigh_by_groups(tmp_path):
    """The groups are kept; a set without weights is one group; version 1 can still be read."""
    groups = np.array([0, 2, 1, 1, 0, 2], np.int32)
    pool = Pool(np.arange(6.0), np.arange(6), np.arange(C * 3, dtype=np.float32).reshape(C, 3))
    pool = pool._replace(groups=groups)
    stored = on_disk.write_federation(tmp_path / "data", uneven()._replace(test=pool))
    test = stored.read(np.array([5, 0])).test
    equal(test, pool._replace(mask=pool.mask[[5, 0]]))
    np.testing.assert_array_equal(test.weights, [pool.mask[5][groups], pool.mask[0][groups]])

    folder = stored.directory / "test"
    np.save(folder / "groups.npy", groups + 1)
    with pytest.raises(InputError, match="expected 6 whole numbers from 0 to 2"):
        on_disk.open_federation(stored.directory)
    (folder / "weights.npy").unlink()
    manifest = stored.directory / "federation.json"
    manifest.unlink()
    with pytest.raises(InputError, match=r"groups\.npy and no weights\.npy"):
        on_disk.open_federation(stored.directory)
    (folder / "groups.npy").unlink()
    test = on_disk.open_federation(stored.directory).read(np.arange(2)).test
    assert test.mask.shape == (2, 1)
    np.testing.assert_array_equal(test.weights, np.ones((2, 6)))

    manifest.write_text('{"version": 1, "arrays": {}}')
    on_disk.open_federation(stored.directory)
    manifest.write_text('{"version": 3, "arrays": {}}')
    with pytest.raises(InputError, match="has version 3: expected 1 or 2"):
        on_disk.open_federation(stored.directory)


def test_parts_of_clients_have_one_size():
    assert [part.tolist() for part in in_parts(np.arange(5), 2)] == [[0, 1], [2, 3], [4, 4]]


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("train/offsets.npy", np.arange(7) * 3, "rise from 0 to"),
        ("train/offsets.npy", np.array([0, 157], float), "whole numbers"),
        ("val/offsets.npy", np.array([0, 29]), "expected as many|rise from 0"),
        ("train/y.npy", np.zeros(3, np.int32), "as many targets as examples"),
        ("train/x.npy", np.array([{"a": 1}]), "cannot read"),
    ],
)
def test_arrays_that_do_not_fit_together_are_refused(name, array, message, tmp_path):
    stored = on_disk.write_federation(tmp_path / "data", uneven())
    (stored.directory / "federation.json").unlink()
    np.save(stored.directory / name, array, allow_pickle=True)
    with pytest.raises(InputError, match=message):
        on_disk.open_federation(stored.directory)


def test_arrays_that_are_not_those_of_the_manifest_are_refused(tmp_path):
    stored = on_disk.write_federation(tmp_path / "data", uneven())
    np.save(stored.directory / "train" / "x.npy", np.zeros((3, 8), np.float32))
    with pytest.raises(InputError, match=r"federation.json names \[\[127, 8\], 'float32'\]"):
        on_disk.open_federation(stored.directory)
    (stored.directory / "federation.json").write_text("{}")
    with pytest.raises(InputError, match=r"cannot read .*federation\.json"):
        on_disk.open_federation(stored.directory)


def test_what_holds_no_federation_is_refused(stored, tmp_path):
    with pytest.raises(InputError, match="holds no federation"):
        on_disk.open_federation(tmp_path)
    with pytest.raises(InputError, match="is not empty"):
        on_disk.write_federation(stored.directory, uneven())


def test_states_of_another_method_or_federation_are_refused(stored, tmp_path):
    with pytest.raises(InputError, match="cannot read the clients' states"):
        start(made(ALGORITHMS["local"]), stored, tmp_path / "nothing", resume=True)
    clients, state = start(made(ALGORITHMS["local"]), stored, tmp_path)
    rounds = on_disk.make_stored_rounds(made(ALGORITHMS["local"]), full(C), stored, clients)
    rounds(run_key(), state, 0, 1)
    with pytest.raises(InputError, match="names other arrays"):
        start(made(ALGORITHMS["pfedgraph"]), stored, tmp_path, resume=True)
    with pytest.raises(InputError, match=r"places of shape \(5, 2\)"):
        rounds(run_key(), state._replace(clients=state.clients[:5]), 0, 1)
    layout = json.loads((tmp_path / "layout.json").read_text())
    assert layout["clients"] == C


def test_wrong_cohorts_and_labels_are_refused(stored, tmp_path):
    algorithm = made(ALGORITHMS["fedavg"])
    clients, state = start(algorithm, stored, tmp_path)
    rounds = on_disk.make_stored_rounds(algorithm, schedule([0, 6]), stored, clients)
    with pytest.raises(InputError, match="names client 6 in round 0"):
        rounds(run_key(), state, 0, 1)
    data = uneven()._replace(train=uneven().train._replace(y=uneven().train.y + 1))
    wrong = on_disk.write_federation(tmp_path / "wrong", data)
    clients, state = start(algorithm, wrong, tmp_path / "states")
    rounds = on_disk.make_stored_rounds(algorithm, full(C), wrong, clients)
    with pytest.raises(InputError, match="labels from 1 to 2, the model has 2 outputs"):
        rounds(run_key(), state, 0, 1)


def test_a_method_that_validates_is_refused_without_validation_data(tmp_path):
    stored = on_disk.write_federation(tmp_path / "data", uneven())
    for file in (stored.directory / "val").iterdir():
        file.unlink()
    (stored.directory / "val").rmdir()
    (stored.directory / "federation.json").unlink()
    stored = on_disk.open_federation(stored.directory)
    algorithm = made(ALGORITHMS["pfedgat"], linear)
    clients, _ = start(algorithm, stored, tmp_path / "states")
    with pytest.raises(InputError, match="learns from the clients' validation data"):
        on_disk.make_stored_rounds(algorithm, full(C), stored, clients)
