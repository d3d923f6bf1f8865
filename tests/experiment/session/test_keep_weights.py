"""The mixing weights that a run keeps, and what its checkpoints write of its rounds."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from kill import content, same

import jaxfl
from jaxfl.core.errors import InputError, RunWarning
from jaxfl.experiment import Config, gather, resolve
from jaxfl.experiment import execute as execute_run
from jaxfl.experiment.config import by_subject
from jaxfl.experiment.config.hints import marked
from jaxfl.experiment.config.notes import NO_SCORE
from jaxfl.experiment.session.build import build
from jaxfl.experiment.session.make_program import compile_run
from jaxfl.experiment.session.run import record_run, silent
from jaxfl.experiment.session.run_directory import begin
from jaxfl.experiment.session.run_pictures import draw_run
from jaxfl.experiment.store import archive, files, locks
from jaxfl.experiment.store.finished_runs import last_graph
from jaxfl.experiment.store.graph_file import open_graph

CONFIG = Config(
    algorithm="fedper",  # weights of two parts
    rounds=7,
    local_steps=1,
    model="mlp",
    clients=6,
    partition="iid",
    participation=0.5,
    seeds=2,
    checkpoint_every=1,
    keep_checkpoints=7,
    keep_models="none",
    score_after="none",
    devices=1,
)


@pytest.fixture(scope="module")
def execute(tmp_path_factory):
    """A function that runs the one compiled program, under options that change no program."""
    resolved = resolve(CONFIG)
    built = build(resolved, gather(resolved))
    program = compile_run(built)
    folder = tmp_path_factory.mktemp("runs")

    def run(name, **options):
        out = folder / name
        if not out.exists():
            config = dataclasses.replace(resolved.config, **options)
            changed = dataclasses.replace(built, options=by_subject(config))
            state = jax.tree.map(jnp.copy, program.state)  # running consumes it
            begin(out, config, changed, changed.digests, overwrite=False, draw=draw_run)
            started = dataclasses.replace(program, state=state)
            record_run(config, changed, started, out, silent, draw_run)
        return out

    return run


def graph(out):
    with np.load(out / "graph.npz", allow_pickle=False) as arrays:
        return dict(arrays)


@pytest.mark.slow
def test_all_weights_are_in_one_file_that_numpy_reads(execute):
    arrays = graph(execute("all"))
    assert list(arrays) == ["weights_body", "weights_head", "ids"]
    assert arrays["ids"].shape == (2, 7, 3)
    for name in ("weights_body", "weights_head"):
        assert arrays[name].shape == (2, 7, 3, 3)
        np.testing.assert_allclose(arrays[name].sum(axis=-1), 1, atol=1e-6)
    # Each client keeps its head, and all receive the same mean of bodies.
    np.testing.assert_array_equal(arrays["weights_head"], np.broadcast_to(np.eye(3), (2, 7, 3, 3)))
    assert np.ptp(arrays["weights_body"], axis=2).max() == 0


@pytest.mark.slow
@pytest.mark.parametrize(("keep", "rounds"), [("last", [7]), (3, [3, 6, 7])])
def test_some_rounds_are_those_of_all(execute, keep, rounds):
    out = execute(str(keep), keep_weights=keep)
    every, some = graph(execute("all")), graph(out)
    assert some.pop("rounds").tolist() == rounds
    for name, array in some.items():
        np.testing.assert_array_equal(array, every[name][:, np.array(rounds) - 1])
    np.testing.assert_array_equal(jaxfl.load(out).graph["rounds"], rounds)
    weights, ids = last_graph(out)
    np.testing.assert_array_equal(ids, every["ids"][0, -1])
    np.testing.assert_array_equal(weights["weights_body"], every["weights_body"][0, -1])


@pytest.mark.slow
def test_readers_take_single_rounds_of_the_file(execute):
    out = execute("3", keep_weights=3)
    stored = open_graph(out)
    assert stored.rounds.tolist() == [3, 6, 7]
    every = graph(execute("all"))
    (matrix,) = stored.weights("weights_body", [1])
    np.testing.assert_array_equal(matrix, every["weights_body"][0, 5])


@pytest.mark.slow
def test_beyond_a_size_a_run_keeps_fewer_and_says_so(execute, monkeypatch):
    monkeypatch.setattr(archive, "MOST_BYTES", 2 * 2 * 3 * 3 * 4 * 4)  # of four rounds
    with pytest.warns(RunWarning, match="graph.npz will have one round in 2, and all with --keep"):
        out = execute("auto")
    assert graph(out)["rounds"].tolist() == [2, 4, 6, 7]


@pytest.mark.slow
def test_the_option_changes_no_score(execute):
    assert "keep_weights" in marked(Config, NO_SCORE)
    one, other = content(execute("all")), content(execute("last", keep_weights="last"))
    without = [{k: v for k, v in c.items() if "graph.npz" not in k} for c in (one, other)]
    assert same(*without)


@pytest.mark.slow
def test_what_a_checkpoint_writes_does_not_grow_with_the_rounds(execute):
    out = execute("all")
    sizes = [(path / "history.npz").stat().st_size for path in files.checkpoints(out)]
    assert len(sizes) == 7
    assert max(sizes) < min(sizes) + 20
    pieces = [path.stat() for path in files.pieces(out / "rounds")]
    assert len(pieces) == 7
    assert max(one.st_size for one in pieces) < 1.1 * min(one.st_size for one in pieces)
    # Each is as old as its checkpoint.
    for piece, path in zip(pieces, files.checkpoints(out), strict=True):
        assert piece.st_mtime_ns <= (path / "manifest.json").stat().st_mtime_ns
    assert {path.name for path in files.checkpoints(out)[-1].iterdir()} == {
        *("state", "history.npz", "manifest.json")
    }


@pytest.mark.slow
def test_pieces_hold_the_rounds_of_a_run(execute):
    out = execute("all")
    lines = (out / "metrics.jsonl").read_text().splitlines()
    with np.load(out / "clients.npz", allow_pickle=False) as arrays:
        scores = arrays["deployed_test"]
    for place, file in enumerate(files.pieces(out / "rounds")):
        with np.load(file, allow_pickle=False) as piece:
            assert piece["rounds"].tolist() == [place + 1]
            assert json.loads(piece["lines"][0]) == json.loads(lines[place])
            np.testing.assert_array_equal(piece["deployed_test"], scores[:, place, None])


@pytest.mark.slow
def test_without_checkpoints_nothing_but_the_files_of_a_run_remains(execute, monkeypatch):
    monkeypatch.setattr(archive, "PIECE", 1)
    out = execute("plain", checkpoint_every=None)
    assert not (out / "rounds").exists()
    np.testing.assert_equal(graph(out), graph(execute("all")))


@pytest.mark.slow
def test_rounds_that_vanish_during_a_run_are_named_and_its_scores_are_written(execute, monkeypatch):
    monkeypatch.setattr(archive, "PIECE", 1)
    write = archive.Archive.write

    def lose(self):
        write(self)
        if self.done == 4:
            (self.folder / "000002.npz").unlink(missing_ok=True)

    monkeypatch.setattr(archive.Archive, "write", lose)
    with pytest.raises(InputError, match=r"^rounds/000002\.npz in .* vanished or changed"):
        execute("lost")
    out = execute("lost")
    assert (out / "summary.json").exists()
    assert not (out / "graph.npz").exists()


@pytest.mark.slow
def test_folders_of_the_user_beside_a_run_stay(execute, tmp_path):
    mine = tmp_path / "rounds" / "2024.npz"
    mine.parent.mkdir()
    mine.write_text("mine")
    for overwrite in (False, True):
        with pytest.raises(InputError, match=r"rounds is not of a run, and a run writes there"):
            locks.check_free([tmp_path], overwrite)
    assert mine.read_text() == "mine"
    # Without --store a run has no states of clients on disk.
    out = execute("free", checkpoint_every=None)
    assert not (out / files.ROUNDS).exists()


@pytest.mark.slow
def test_a_folder_of_clients_is_removed_only_if_states_are_in_it(tmp_path):
    mine = tmp_path / "clients" / "alice.csv"
    mine.parent.mkdir()
    mine.write_text("mine")
    execute_run(dataclasses.replace(CONFIG, rounds=1, checkpoint_every=None), tmp_path)
    assert (tmp_path / "summary.json").exists()
    assert mine.read_text() == "mine"
