"""What a run keeps of its rounds: in pieces on disk, which are written once."""

import tracemalloc

import numpy as np
import pytest

from jaxfl.core.errors import RunWarning
from jaxfl.experiment.store import archive, files
from jaxfl.experiment.store.archive import Archive, digest_pieces, interval

SEEDS, CLIENTS = 2, 5
SEGMENTS = (3, 6, 7, 10, 12)  # the last rounds of segments


def weights_of(rounds, clients=CLIENTS):
    """Weights [S, T, M, M] of two parts; those of the body have equal rows before round 4."""
    rng = np.random.default_rng(0)
    body = rng.random((SEEDS, rounds, clients, clients), np.float32)
    body[:, :3] = body[:, :3, :1]
    equal = np.broadcast_to(rng.random((SEEDS, rounds, 1, clients), np.float32), body.shape)
    return {"weights_body": body, "weights_head": equal}


def ids_of(rounds, clients=CLIENTS):
    return np.arange(SEEDS * rounds * clients, dtype=np.int32).reshape(SEEDS, rounds, clients)


def fill(one, first, segments, checkpoints=()):
    """Adds segments to an archive, and writes at the checkpoints; returns the digests there."""
    weights, ids = weights_of(SEGMENTS[-1]), ids_of(SEGMENTS[-1])
    digests = {}
    for last in segments:
        rounds = slice(first, last)
        line = np.array([f'{{"round": {last}}}'.encode()])
        arrays = {"ids": ids[:, rounds], "lines": line}
        one.add(last, arrays, {name: w[:, rounds] for name, w in weights.items()})
        if last in checkpoints:
            one.write()
            digests[last] = one.digest.hexdigest()
        first = last
    return digests


def content(one):
    """The rounds whose weights an archive keeps, and the weights [S, T', M, M] by name."""
    stored = {
        name: np.array([[*one.read(name, seed)] for seed in range(SEEDS)]) for name in one.matrices
    }
    return one.numbers(), stored


KEEP = {
    "all": list(range(1, 13)),
    "auto": list(range(1, 13)),
    "last": [12],
    5: [5, 10, 12],
    4: [4, 8, 12],
    100: [12],
}


@pytest.mark.parametrize("keep", KEEP)
@pytest.mark.parametrize("checkpoints", [(), (6, 7)])
def test_an_archive_has_the_weights_of_the_rounds_to_keep(tmp_path, keep, checkpoints):
    one = Archive(tmp_path / "rounds", keep, 12)
    fill(one, 0, SEGMENTS, checkpoints)
    numbers, stored = content(one)
    assert numbers == KEEP[keep]
    for name, weights in weights_of(12).items():
        np.testing.assert_array_equal(stored[name], weights[:, np.array(numbers) - 1])
    # Nothing is on disk without a checkpoint, as the weights are small.
    names = [path.name for path in files.pieces(tmp_path / "rounds")]
    assert names == (["000001.npz", "000007.npz"] if checkpoints else [])


@pytest.mark.parametrize("keep", KEEP)
def test_an_archive_goes_on_from_a_checkpoint_to_the_same_bits(tmp_path, keep):
    whole = Archive(tmp_path / "whole", keep, 12)
    fill(whole, 0, SEGMENTS, checkpoints=SEGMENTS)
    stopped = Archive(tmp_path / "rounds", keep, 12)
    digests = fill(stopped, 0, SEGMENTS[:4], checkpoints=(3, 7, 10))
    again = Archive(tmp_path / "rounds", keep, 12)
    pieces = [*again.restore(7)]
    assert again.digest.hexdigest() == digests[7] == digest_pieces(tmp_path / "rounds", 7)
    again.drop_later()
    assert len(files.pieces(tmp_path / "rounds")) == 2
    np.testing.assert_array_equal(
        np.concatenate([piece["ids"] for piece in pieces], axis=1), ids_of(12)[:, :7]
    )
    lines = np.concatenate([piece["lines"] for piece in pieces])
    assert lines.tolist() == [b'{"round": 3}', b'{"round": 6}', b'{"round": 7}']
    fill(again, 7, SEGMENTS[3:])
    numbers, stored = content(again)
    assert numbers == whole.numbers()
    for name, weights in content(whole)[1].items():
        np.testing.assert_array_equal(stored[name], weights)


def test_a_longer_run_keeps_what_it_would_have_kept_from_the_beginning(tmp_path, monkeypatch):
    """Of 7 rounds every second one is kept, and of 12 every fourth; the last one always."""
    size = sum(w[:, 0].nbytes for w in weights_of(1).values())
    monkeypatch.setattr(archive, "MOST_BYTES", 4 * size)
    with pytest.warns(RunWarning, match="7 rounds are .* GB: graph.npz will have one round in 2"):
        fill(Archive(tmp_path, "auto", 7), 0, SEGMENTS[:3], checkpoints=(7,))
    longer = Archive(tmp_path, "auto", 12)
    assert len([*longer.restore(7)]) == 1
    with pytest.warns(RunWarning, match="12 rounds .* in 4, and all with --keep weights=all"):
        fill(longer, 7, SEGMENTS[3:])
    numbers, stored = content(longer)
    assert numbers == [4, 8, 12]
    for name, weights in weights_of(12).items():
        np.testing.assert_array_equal(stored[name], weights[:, [3, 7, 11]])


def test_the_interval_is_the_least_power_of_two_that_fits():
    gibibyte = 2**30
    assert [interval("auto", rounds, gibibyte) for rounds in (1, 2, 3, 4, 5)] == [1, 1, 2, 2, 4]
    assert interval("auto", 3, 9 * gibibyte) == 4  # the last round alone
    assert interval("all", 100, gibibyte) == 1
    assert interval("last", 100, gibibyte) == 100


def test_a_piece_is_never_written_again(tmp_path):
    one = Archive(tmp_path, "all", 12)
    times = {}
    first = 0
    for last in SEGMENTS:
        fill(one, first, [last], checkpoints=(last,))
        for path, time in times.items():
            assert path.stat().st_mtime_ns == time
        times = {path: path.stat().st_mtime_ns for path in files.pieces(tmp_path)}
        first = last
    assert len(times) == len(SEGMENTS)


def test_equal_rows_are_stored_as_one(tmp_path):
    one = Archive(tmp_path, "all", 12)
    fill(one, 0, SEGMENTS, checkpoints=(3, 12))
    shapes = []
    for file in files.pieces(tmp_path):
        with np.load(file, allow_pickle=False) as piece:
            shapes.append({name: piece[name].shape for name in piece if name.startswith("1/")})
    row, square = (1, CLIENTS), (CLIENTS, CLIENTS)
    assert shapes == [
        {"1/weights_body": (3, *row), "1/weights_head": (3, *row)},
        {"1/weights_body": (9, *square), "1/weights_head": (9, *row)},
    ]


def test_rows_that_are_equal_as_numbers_and_not_as_bits_are_kept():
    weights = np.zeros((1, 1, 2, 2), np.float32)
    weights[0, 0, 1] = -0.0
    assert archive.without_equal_rows(weights).shape == weights.shape
    assert archive.without_equal_rows(np.full_like(weights, np.nan)).shape == (1, 1, 1, 2)


def test_memory_does_not_grow_with_the_rounds(tmp_path, monkeypatch):
    monkeypatch.setattr(archive, "PIECE", 2**20)
    clients, rounds = 128, 100
    weights = np.random.default_rng(0).random((1, 1, clients, clients), np.float32)
    one = Archive(tmp_path / "rounds", "all", rounds)
    tracemalloc.start()
    for number in range(1, rounds + 1):
        ids = np.zeros((1, 1, clients), np.int32)
        one.add(number, {"ids": ids}, {"weights": weights * number})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(files.pieces(tmp_path / "rounds")) == 6  # of 16 rounds
    assert peak < rounds * weights.nbytes / 2
