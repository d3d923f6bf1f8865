"""What a client keeps between messages."""

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs the extra flower: pip install 'jaxfl[flower]'")

from flwr.app import Context, RecordDict

from jaxfl.serve import state
from jaxfl.serve.memory import decide, first_memories, shelf_in_context, shelf_in_file
from jaxfl.serve.state import read_arrays, write_arrays


@pytest.mark.parametrize("where", ["context", "file"])
def test_a_memory_may_have_another_form_within_a_round(where, tmp_path):
    """As FedFomo's, which is the model before and after training until the reply is taken."""
    shelf = shelf_in_file(tmp_path / "client.npz")
    if where == "context":
        shelf = shelf_in_context(Context(0, 1, {}, RecordDict(), {}))
    model = np.ones((1, 2))
    first = first_memories(model, run=7)
    forms = [model, (model, model)]
    within = first._replace(after=(model, 2 * model), sent=np.asarray(0), exchanges=np.asarray(1))
    for memories in (within, first):
        shelf.write(memories)
        found = shelf.read(first, forms)
        assert np.asarray(found.after).tolist() == np.asarray(memories.after).tolist()


def test_a_memory_between_two_exchanges_is_not_that_of_the_round():
    first = first_memories(np.zeros(1), run=7)
    # The message of the first exchange came again after that of the second one.
    half_done = first._replace(after=np.ones(1), sent=np.asarray(3), exchanges=np.asarray(1))
    memories, counts = decide(half_done, 3, exchanges=2)
    assert (memories.before.tolist(), counts) == ([0.0], False)
    done = half_done._replace(exchanges=np.asarray(2))
    memories, counts = decide(done, 3, exchanges=2)
    assert (memories.before.tolist(), counts) == ([1.0], True)


def test_two_processes_that_write_one_file_leave_a_whole_one(monkeypatch, tmp_path):
    file, savez = tmp_path / "3.npz", np.savez

    def savez_after_another(handle, **arrays):
        monkeypatch.setattr(state.np, "savez", savez)
        savez(handle, **arrays)
        write_arrays(file, {"memory": np.zeros(2)})

    monkeypatch.setattr(state.np, "savez", savez_after_another)
    write_arrays(file, {"memory": np.ones(2)})
    assert read_arrays(file)["memory"].tolist() == [1.0, 1.0]
    assert [path.name for path in tmp_path.iterdir()] == ["3.npz"]
