"""What the server keeps between rounds."""

import jax
import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs the extra flower: pip install 'jaxfl[flower]'")

from flower_nodes import Nodes
from served import CLIENTS, EXAMPLE, method, strategy_of
from toys import shallow

from jaxfl.core.errors import InputError, RunWarning
from jaxfl.core.messages import Down, ServerState
from jaxfl.serve.forms import form_of
from jaxfl.serve.server import Progress, advance, restore_progress, save_progress, settings_of
from jaxfl.serve.state import locked


def test_a_round_in_which_nobody_reports_keeps_the_replies():
    replies = np.array([[1.0], [2.0]]), np.array([[3.0], [4.0]])
    progress = Progress(np.asarray(3), np.asarray(1), (), (), np.array([2, 0]), replies)
    reply = Down(common=np.array([7.0]), each=np.array([[8.0]]))
    after = advance(progress, np.array([1]), ServerState(), np.array([False]), reply)
    assert after.counted.tolist() == [2, 0]
    assert after.replies is replies


def progress_of(counted):
    return Progress(np.asarray(3), np.asarray(1), np.ones(2), (), np.array(counted), ())


@pytest.mark.parametrize("name", ["clients", "size of a cohort", "key", "init_key"])
def test_a_saved_server_of_another_run_is_refused(name, tmp_path):
    settings = {name: "4", "program": "mean"}
    save_progress(tmp_path / "server.npz", progress_of([2, -1]), settings)
    message = rf"server\.npz is of another run \({name} 4, here 5\): choose another directory"
    with pytest.raises(InputError, match=message):
        restore_progress(tmp_path / "server.npz", progress_of([0, 0]), settings | {name: "5"})


def test_a_saved_server_of_another_program_is_warned_of(tmp_path):
    save_progress(tmp_path / "server.npz", progress_of([2, -1]), {"program": "mean"})
    with pytest.warns(RunWarning, match=r"whose step is another program"):
        found = restore_progress(tmp_path / "server.npz", progress_of([0, 0]), {"program": "sum"})
    assert found.counted.tolist() == [2, -1]


def test_two_methods_of_one_form_have_two_fingerprints_and_two_keys_two_settings():
    mean, median, again = (
        form_of(method(name).wire, shallow().upload, EXAMPLE, CLIENTS, CLIENTS)
        for name in ("fedavg", "median", "fedavg")
    )
    keys = jax.random.key(0), jax.random.key(1)
    settings = settings_of(mean, *keys)
    assert settings == settings_of(again, *keys)
    assert settings["program"] != settings_of(median, *keys)["program"]
    assert settings["key"] != settings["init_key"]
    assert (settings["clients"], settings["size of a cohort"]) == (str(CLIENTS), str(CLIENTS))


def test_a_second_server_of_a_directory_is_refused_until_the_first_ends(tmp_path):
    with (
        locked(tmp_path),
        pytest.raises(InputError, match="another server writes into"),
        locked(tmp_path),
    ):
        pass
    with locked(tmp_path):
        pass


def test_a_server_locks_its_directory(tmp_path):
    strategy = strategy_of(method("fedavg"), directory=tmp_path)
    with locked(tmp_path), pytest.raises(InputError, match="another server writes into"):
        strategy.start(Nodes(None, 0), num_rounds=0)
