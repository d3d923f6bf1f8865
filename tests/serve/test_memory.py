"""What clients keep between messages."""

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs the extra flower: pip install 'jaxfl[flower]'")

from flwr.app import Context, RecordDict

from jaxfl.serve.memory import first_memories, shelf_in_context, shelf_in_file


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
