"""Per-FedAvg on quadratic clients with two examples: one for the inner step, one for the outer."""

import jax.numpy as jnp
import numpy as np
import pytest
from toys import deployed, federation, quadratic, quick_key, run

from jaxfl.algorithms import per_fedavg
from jaxfl.core.types import Cohort
from jaxfl.training.channel import Channel

RATE = 0.1
ALPHA = 0.3


@pytest.mark.slow
@pytest.mark.parametrize("hessian", [False, True])
def test_a_step_takes_the_gradient_on_one_half_after_a_step_on_the_other_half(hessian):
    rng = np.random.default_rng(0)
    clients = 12
    xs = [rng.normal(size=(2 if i else 1, 3)).astype(np.float32) for i in range(clients)]
    data = federation(xs, [np.zeros(len(x), np.int32) for x in xs])
    sent = {}

    def spy(key, before, after, ids):
        sent["w"] = after["w"]
        return after

    algorithm = per_fedavg(
        quadratic(1, RATE)._replace(upload=Channel(spy)), alpha=ALPHA, hessian=hessian
    )
    start = algorithm.init(quick_key(1), data.train)
    algorithm.round(quick_key(0), start, Cohort(jnp.arange(clients), data.train, data.val))
    model = np.asarray(start.server["w"], np.float64)
    exchanged = 0
    for i, x in enumerate(xs):
        possible = [
            model - RATE * (1 - hessian * ALPHA) * (model - ALPHA * (model - a) - b)
            for a, b in ((x[0], x[-1]), (x[-1], x[0]))
        ]
        errors = [np.abs(p - np.asarray(sent["w"][i])).max() for p in possible]
        assert min(errors) < 1e-5
        exchanged += errors[1] < errors[0]
    # Which half is the inner one is random.
    assert 0 < exchanged < clients - 1


def test_each_client_deploys_the_global_model_after_a_step_of_its_own():
    rng = np.random.default_rng(0)
    xs = [rng.normal(size=(n, 3)).astype(np.float32) for n in (4, 9, 3)]
    data = federation(xs, [np.zeros(len(x), np.int32) for x in xs])
    algorithm = per_fedavg(quadratic(), alpha=ALPHA)
    state, info, _ = run(algorithm, data, 2)
    best = np.stack([x[:8].mean(axis=0) for x in xs])
    model = np.asarray(state.server["w"])[None]
    np.testing.assert_allclose(
        deployed(algorithm, state, 3, data)["w"], model - ALPHA * (model - best), atol=1e-5
    )
    assert info.batches.tolist() == [[20, 20, 20]] * 2
