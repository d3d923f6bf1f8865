"""Servers that are killed, and replies that are not what was asked."""

import io

import jax
import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs the extra flower: pip install 'jaxfl[flower]'")

from flower_nodes import Nodes
from flwr.app import Array, ArrayRecord, MetricRecord
from served import CLIENTS, alike, app_of, method, serve, simulate, strategy_of

from jaxfl.core.errors import InputError, RunWarning

SENDER = 2


class Killed(BaseException):
    """The server's process ends here."""


@pytest.mark.long
@pytest.mark.parametrize("name", ["fedavg", "pfedgraph"])
def test_a_server_that_is_killed_goes_on_where_it_was(name, tmp_path):
    algorithm = method(name)
    app = app_of(algorithm, directory=tmp_path / "clients")
    grid = Nodes(app, CLIENTS)
    deliver = grid.send_and_receive

    def kill(messages, *, timeout=None):
        replies = deliver(messages, timeout=timeout)
        if messages[0].content["jaxfl"].get("round") == 2:  # the clients have trained
            raise Killed
        return replies

    grid.send_and_receive = kill
    with pytest.raises(Killed):
        strategy_of(algorithm, directory=tmp_path / "server").start(grid, num_rounds=4)
    again = strategy_of(algorithm, directory=tmp_path / "server")
    assert int(again.progress.rounds) in (1, 2)
    # Flower's state of the nodes ends with the run; the files of the clients do not.
    again.start(Nodes(app, CLIENTS), num_rounds=4)
    state, info, scores = simulate(algorithm, 4)
    done = 4 - len(again.rounds)
    alike(again, state, jax.tree.map(lambda x: x[done:], info), scores)
    with np.load(tmp_path / "server" / "rounds" / "000000.npz", allow_pickle=False) as log:
        np.testing.assert_allclose(log["weights"], info.weights[0], atol=1e-6)
        assert log["reported"].all()


@pytest.mark.slow
def test_a_saved_server_of_another_method_is_refused(tmp_path):
    strategy_of(method("fedavg"), directory=tmp_path).start(
        Nodes(app_of(method("fedavg")), CLIENTS), num_rounds=1
    )
    with pytest.raises(InputError, match=r"server\.npz is of another method, model or number"):
        strategy_of(method("gossip"), directory=tmp_path)
    (tmp_path / "server.npz").write_bytes(b"PK\x03\x04 damaged")
    with pytest.raises(InputError, match=r"server\.npz is damaged"):
        strategy_of(method("fedavg"), directory=tmp_path)


def first_array(reply, value):
    name = next(iter(reply.content["arrays"]))
    reply.content["arrays"][name] = value


def no_arrays(reply):
    del reply.content["arrays"]


def one_missing(reply):
    del reply.content["arrays"]["params/Dense_0/bias"]


def one_more(reply):
    reply.content["arrays"]["params/Dense_7/bias"] = Array(np.zeros(3, np.float32))


def other_shape(reply):
    first_array(reply, Array(np.zeros(9, np.float32)))


def other_type(reply):
    first_array(reply, Array(np.zeros(8)))


def a_pickle(reply):
    first_array(reply, Array("object", (1,), "numpy.ndarray", _pickled()))


def no_numpy(reply):
    first_array(reply, Array("float32", (8,), "numpy.ndarray", b"rubbish"))


def several_arrays(reply):
    buffer = io.BytesIO()
    np.savez(buffer, array=np.zeros(8, np.float32))
    first_array(reply, Array("float32", (8,), "numpy.ndarray", buffer.getvalue()))


def a_name_with_lines(reply):
    name = "a\n\x1b[31mserver: all is well"
    reply.content["arrays"][name] = Array("float32", (8,), "numpy.ndarray", b"rubbish")


def negative_size(reply):
    reply.content["metrics"] = MetricRecord({"num-examples": -5})


def no_size(reply):
    del reply.content["metrics"]


def _pickled():
    buffer = io.BytesIO()
    np.save(buffer, np.array([print], object), allow_pickle=True)
    return buffer.getvalue()


FAULTS = {
    no_arrays: r"no record 'arrays': expected 4 arrays",
    one_missing: r"no params/Dense_0/bias: expected float32\[8\]",
    one_more: r"there is 'params/Dense_7/bias': expected params/Dense_0/bias",
    other_shape: r"is float32\[9\]: expected float32\[8\]",
    other_type: r"is float64\[8\]: expected float32\[8\]",
    a_pickle: r"cannot be read",
    no_numpy: r"cannot be read",
    several_arrays: r"cannot be read \(several arrays\): expected one",
    a_name_with_lines: r"'a\\n\\x1b\[31mserver: all is well' cannot be read",
    negative_size: r"num-examples is -5: expected a whole number",
    no_size: r"num-examples is None: expected a whole number",
}


@pytest.fixture(scope="module")
def without_the_sender():
    """FedAvg where the reply of one client is lost in the second round."""

    def loses(number, ids):
        return (number == 1) & (ids == SENDER)

    return simulate(method("fedavg"), 2, loses=loses)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_malformed_upload_is_refused_in_one_line_and_has_not_reported(fault, without_the_sender):
    def change(kind, number, client, reply):
        if (kind, number, client) == ("train", 1, SENDER):
            fault(reply)
        return reply

    message = rf"the upload of client 2 \(node 102\) does not count: .*{FAULTS[fault]}"
    with pytest.warns(RunWarning, match=message) as caught:
        strategy, _ = serve(method("fedavg"), 2, change=change)
    assert [str(one.message).count("\n") for one in caught] == [0]
    alike(strategy, *without_the_sender)


@pytest.mark.slow
@pytest.mark.parametrize("rubbish", [np.nan, 3e38])
def test_an_upload_that_is_not_finite_has_not_reported(without_the_sender, rubbish):
    def change(kind, number, client, reply):
        if (kind, number, client) == ("train", 1, SENDER):
            arrays = reply.content["arrays"]
            broken = {name: np.full_like(array.numpy(), rubbish) for name, array in arrays.items()}
            reply.content["arrays"] = ArrayRecord({k: Array(v) for k, v in broken.items()})
        return reply

    with pytest.warns(RunWarning, match=r"client 2 does not count: it is not finite"):
        strategy, _ = serve(method("fedavg"), 2, change=change)
    alike(strategy, *without_the_sender)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("Traceback\n  line\nMemoryError: no memory\n", r"\(MemoryError: no memory\)"),
        ("no\rserver: all is \x1b[31mwell", r"could not answer \(server: all is \?\[31mwell\)"),
    ],
)
def test_a_client_that_fails_is_named_with_its_reason(reason, message):
    def change(kind, number, client, reply):
        if (kind, client) == ("train", SENDER):
            from flwr.app import Error

            reply.__dict__["_content"] = None
            reply.__dict__["_error"] = Error(0, reason)
        return reply

    with pytest.warns(RunWarning, match=message):
        serve(method("fedavg"), 1, change=change)
