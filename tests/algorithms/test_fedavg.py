import numpy as np
import pytest
from toys import close, deployed, linear, opposite_groups, quick_key, run

from jaxfl.algorithms import fedavg, fedavg_ft, local
from jaxfl.core import tree
from jaxfl.core.messages import Clients
from jaxfl.core.types import State

SIZES = [40, 10, 20, 30, 40, 20]


def test_fedavg_is_the_mean_of_local_models_by_size():
    data = opposite_groups(sizes=SIZES)
    task = linear()
    model = task.problem.init(quick_key(0))
    trained, _, _ = run(local(task), data, 1, state=State(Clients(tree.broadcast(model, 6)), ()))
    state, info, _ = run(fedavg(task), data, 1, state=State(Clients(), model))
    matrix = np.asarray(tree.ravel(trained.clients.memory), np.float64)
    expected = np.average(matrix, axis=0, weights=SIZES)
    np.testing.assert_allclose(tree.ravel(tree.broadcast(state.server, 1))[0], expected, atol=1e-6)
    assert info.up.tolist() == info.down.tolist() == [[18] * 6]
    np.testing.assert_allclose(
        info.weights[0], np.tile(np.array(SIZES) / sum(SIZES), (6, 1)), rtol=1e-6
    )


@pytest.mark.slow
def test_a_client_that_diverged_is_left_out_of_the_mean():
    data = opposite_groups(sizes=SIZES)
    task = linear()
    gone = 3
    spoilt = data._replace(train=data.train._replace(x=data.train.x.at[gone].set(np.nan)))
    model = task.problem.init(quick_key(0))
    trained, named, _ = run(
        local(task), spoilt, 1, state=State(Clients(tree.broadcast(model, 6)), ())
    )
    state, info, _ = run(fedavg(task), spoilt, 1, state=State(Clients(), model))
    others = np.delete(np.arange(6), gone)
    sizes = np.delete(SIZES, gone)
    matrix = np.asarray(tree.ravel(trained.clients.memory), np.float64)
    start = np.asarray(tree.ravel(tree.broadcast(model, 1))[0])
    # The client that diverged keeps its model.
    np.testing.assert_allclose(matrix[gone], start)
    expected = np.average(matrix[others], axis=0, weights=sizes)
    np.testing.assert_allclose(tree.ravel(tree.broadcast(state.server, 1))[0], expected, atol=1e-6)
    assert (
        np.flatnonzero(~info.reported[0]).tolist()
        == np.flatnonzero(~named.reported[0]).tolist()
        == [gone]
    )


@pytest.mark.slow
def test_fine_tuned_fedavg_has_the_same_global_model_and_deploys_the_trained_models():
    data = opposite_groups(sizes=SIZES)
    task = linear()
    plain, _, _ = run(fedavg(task), data, 3)
    tuned, _, _ = run(fedavg_ft(task), data, 3)
    close(plain.server, tuned.server)
    before, _, _ = run(fedavg(task), data, 2)
    from_global = State(Clients(tree.broadcast(before.server, 6)), ())
    trained, _, _ = run(local(task), data, 1, state=from_global, start=2)
    close(deployed(fedavg_ft(task), tuned, 6), trained.clients.memory)


def test_fedavg_fails_on_opposite_groups():
    data = opposite_groups()
    task = linear(steps=20)
    state, _, _ = run(fedavg(task), data, 5)
    logits = task.problem.apply(state.server, data.test.x.reshape(-1, 8))
    correct = logits.argmax(-1) == data.test.y.reshape(-1)
    assert float(correct.mean()) < 0.65
