"""Which client each node is, while nodes come and go."""

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs the extra flower: pip install 'jaxfl[flower]'")

from flower_nodes import Nodes
from flwr.app import ConfigRecord, Message, RecordDict
from served import CLIENTS, app_of, method, strategy_of

from jaxfl.core.errors import RunWarning
from jaxfl.serve import nodes
from jaxfl.serve.nodes import Roster, meet


def tell(message, context):
    """A node that says its number, and does nothing else."""
    client = ConfigRecord({"client": context.node_config["partition-id"]})
    return Message(RecordDict({"jaxfl": client}), reply_to=message)


def test_of_two_nodes_with_one_number_the_first_stays_until_it_is_gone():
    grid = Nodes(tell, 3)
    grid.contexts[102].node_config = {"partition-id": 1}
    roster = Roster()
    for _ in range(3):
        with pytest.warns(RunWarning, match=r"node 102 says that it is client 1, as node 101 does"):
            roster = meet(grid, roster, 3, least=3, timeout=1.0)
        assert roster.node_of == {0: 100, 1: 101}
    grid.away = {1}
    assert meet(grid, roster, 3, least=1, timeout=1.0).node_of == {0: 100, 1: 102}


@pytest.mark.slow
def test_a_node_that_comes_back_as_another_client_leaves_the_files_of_that_client_alone(tmp_path):
    """Its id in Flower is that of its key, which outlives a restart."""
    algorithm = method("ditto")
    strategy = strategy_of(algorithm, evaluate_every=0)
    grid = Nodes(app_of(algorithm, directory=tmp_path), CLIENTS)
    grid.away = {2}
    strategy.start(grid, num_rounds=1)
    grid.contexts[101].node_config = {"partition-id": 2}
    with pytest.warns(RunWarning, match=r"for client 1, and this node is client 2 now"):
        strategy.start(grid, num_rounds=2)
    assert not (tmp_path / "2.npz").exists()
    strategy.start(grid, num_rounds=3)
    assert strategy._roster.node_of[2] == 101
    assert 1 not in strategy._roster.node_of
    reported = np.stack([log.reported for log in strategy.rounds])
    assert reported[:, [1, 2]].tolist() == [[True, False], [False, False], [False, True]]


def test_a_server_without_nodes_says_that_it_waits(monkeypatch):
    grid, lines = Nodes(tell, 1), []

    def sleep(seconds):
        if len(lines) == 2:
            grid.away = set()

    grid.away = {0}
    monkeypatch.setattr(nodes, "REMINDER", 0.0)
    monkeypatch.setattr(nodes.time, "sleep", sleep)
    monkeypatch.setattr(nodes, "log", lambda _, text, *values: lines.append(text % values))
    meet(grid, Roster(), 1, least=1, timeout=1.0)
    assert lines == ["0 nodes are connected: waiting for 1"] * 2
