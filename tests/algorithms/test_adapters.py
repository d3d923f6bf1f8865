"""What methods mix of low-rank adapters: both factors, one of them, or their products."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import opposite_groups, quick_key, run

import jaxfl
from jaxfl.algorithms import fedavg, fedper, hetlora, lg_fedavg, local
from jaxfl.core import tree
from jaxfl.core.types import Cohort

SIZES = [40, 10, 20, 30]
WEIGHTS = np.array(SIZES) / sum(SIZES)
RANK = 2


@pytest.fixture(scope="module")
def task():
    module = jaxfl.models.mlp(2)
    weights = module.init(quick_key(3), jnp.zeros((1, 8)))
    model = jaxfl.freeze(jaxfl.lora(module, RANK, "Dense_0"), weights, "^lora/|Dense_3")
    return jaxfl.classification(model, np.zeros(8), optimizer=jaxfl.sgd(0.5), steps=30)


@pytest.fixture(scope="module")
def data():
    return opposite_groups(clients=4, sizes=SIZES)


@pytest.fixture(scope="module")
def trained(task, data):
    """What the clients train from the common model [M, ...]."""
    return run(local(task), data, 1)[0].clients.memory


def deployed(algorithm, state, data):
    return algorithm.models(state, Cohort(jnp.arange(len(SIZES)), data.train, data.val))


def average(stacked):
    return np.average(np.asarray(stacked, np.float64), axis=0, weights=WEIGHTS)


def adapter(models):
    return models["lora"]["Dense_0"]


@pytest.mark.slow
@pytest.mark.parametrize(("method", "pattern"), [(fedper, "/b$"), (lg_fedavg, "^(?!.*/b$)")])
def test_a_is_shared_and_b_stays_with_the_client(task, data, trained, method, pattern):
    """FedSA (Guo et al., 2025): A and B are trained, A alone is sent and averaged."""
    algorithm = method(task, head=pattern)
    state, info, _ = run(algorithm, data, 1)
    models = deployed(algorithm, state, data)
    a, b = (np.asarray(adapter(models)[name]) for name in "ab")
    np.testing.assert_array_equal(a, np.broadcast_to(a[:1], a.shape))
    np.testing.assert_allclose(a[0], average(adapter(trained)["a"]), atol=1e-6)
    np.testing.assert_allclose(b, adapter(trained)["b"], atol=1e-6)
    assert np.abs(b - b[0]).max(axis=(1, 2))[1:].min() > 1e-3
    # A [8, 2], and the head of 2 classes behind 32 units.
    assert info.up.tolist() == [[8 * RANK + 32 * 2 + 2] * 4] == info.down.tolist()


def test_the_head_may_stay_beside_b(task, data):
    _, info, _ = run(fedper(task, head="/b$|Dense_3"), data, 1)
    assert info.up.tolist() == [[8 * RANK] * 4]


def test_the_mean_of_products_is_cut_to_the_rank(task, data, trained):
    """FlexLoRA, against the singular values of NumPy in float64; the head is a plain mean."""
    algorithm = hetlora(task, mean="products")
    state, info, _ = run(algorithm, data, 1)
    a, b = (np.asarray(adapter(trained)[name], np.float64) for name in "ab")
    mean = average(a @ b)
    u, values, vh = np.linalg.svd(mean, full_matrices=False)
    # Something is cut, and the mean of factors is another matrix.
    assert values[RANK] > 1e-3
    expected = u[:, :RANK] * values[:RANK] @ vh[:RANK]
    assert np.abs(average(a) @ average(b) - expected).max() > 1e-3
    found = adapter(state.server)
    assert jax.tree.map(jnp.shape, found) == {"a": (8, RANK), "b": (RANK, 32)}
    np.testing.assert_allclose(found["a"] @ found["b"], expected, atol=1e-6)
    head = state.server["params"]["Dense_3"]["kernel"]
    np.testing.assert_allclose(head, average(trained["params"]["Dense_3"]["kernel"]), atol=1e-6)
    np.testing.assert_allclose(info.weights[0], np.tile(WEIGHTS, (4, 1)), rtol=1e-6)


@pytest.mark.slow
def test_where_b_alone_is_trained_both_means_are_one(data):
    module = jaxfl.lora(jaxfl.models.mlp(2), RANK, "Dense_0")
    weights = jaxfl.classification(module, np.zeros(8)).problem.init(quick_key(3))
    task = jaxfl.classification(jaxfl.freeze(module, weights, "/b$"), np.zeros(8), steps=5)
    factors, products = (
        run(algorithm, data, 1)[0].server
        for algorithm in (fedavg(task), hetlora(task, mean="products"))
    )
    assert len(jax.tree.leaves(factors)) == 1
    assert tree.dot(factors, factors) > 0
    jax.tree.map(np.testing.assert_array_equal, factors, products)
