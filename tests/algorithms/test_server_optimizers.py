"""FedAvgM, FedAdam and FedYogi equal their rules in NumPy, applied to the same uploads."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import deployed, full, linear, make_rounds, opposite_groups, quick_key

from jaxfl.algorithms import fedadam, fedavgm, fedyogi
from jaxfl.core import tree

ROUNDS = 3


def momentum(opt_state, gradient, number):
    velocity = 0.9 * opt_state.get("m", 0) + gradient
    return 0.5 * velocity, {"m": velocity}


def nesterov(opt_state, gradient, number):
    velocity = 0.9 * opt_state.get("m", 0) + gradient
    return 0.5 * (gradient + 0.9 * velocity), {"m": velocity}


def adam(opt_state, gradient, number):
    m = 0.9 * opt_state.get("m", 0) + 0.1 * gradient
    v = 0.99 * opt_state.get("v", 0) + 0.01 * gradient**2
    step = 0.02 * (m / (1 - 0.9**number)) / (np.sqrt(v / (1 - 0.99**number)) + 1e-3)
    return step, {"m": m, "v": v}


def yogi(opt_state, gradient, number):
    m = 0.9 * opt_state.get("m", 1e-6) + 0.1 * gradient
    v = opt_state.get("v", 1e-6)
    v = v - 0.01 * np.sign(v - gradient**2) * gradient**2
    step = 0.02 * (m / (1 - 0.9**number)) / (np.sqrt(v / (1 - 0.99**number)) + 1e-3)
    return step, {"m": m, "v": v}


def biased(rule, start):
    """The rule as it stands in Algorithm 2, but for tau: without a correction of either mean."""

    def step_of(opt_state, gradient, number):
        _, found = rule(opt_state or {"m": start, "v": start}, gradient, number)
        tau = 0.01 * np.sqrt(1 - 0.99**number)
        return 0.02 * found["m"] / (np.sqrt(found["v"]) + tau), found

    return step_of


@pytest.mark.long(every=4)
@pytest.mark.parametrize(
    ("method", "hyper", "rule"),
    [
        (fedavgm, {"rate": 0.5}, nesterov),
        (fedavgm, {"rate": 0.5, "nesterov": False}, momentum),
        (fedadam, {"rate": 0.02}, adam),
        (fedyogi, {"rate": 0.02}, yogi),
        (fedadam, {"rate": 0.02, "tau": 0.01, "correct_bias": False}, biased(adam, 0.0)),
        (fedyogi, {"rate": 0.02, "tau": 0.01, "correct_bias": False}, biased(yogi, 1e-4)),
    ],
)
def test_the_server_moves_by_its_rule(method, hyper, rule):
    """The uplink replaces the uploads by known ones: the old model plus or minus (id + 1) / 10."""

    def known(key, before, after, ids):
        added = (ids + 1) / 10 * jnp.where(ids == 1, -1.0, 1.0)
        return jax.tree.map(
            lambda x: x + added.reshape(-1, *[1] * (x.ndim - 1)) * jnp.sign(x + 0.05), before
        )

    sizes = np.array([40, 20, 10])
    data = opposite_groups(clients=3, sizes=sizes.tolist())
    algorithm = method(linear(uplink=known), **hyper)
    start = algorithm.init(quick_key(0), data.train)
    state, (info, _) = make_rounds(algorithm, full(3))(quick_key(1), data, start, 0, ROUNDS)
    np.testing.assert_allclose(info.weights, np.broadcast_to(sizes / 70, (ROUNDS, 3, 3)), rtol=1e-6)

    model = np.asarray(tree.ravel(deployed(algorithm, start, 1))[0], np.float64)
    opt_state = {}
    for number in range(1, ROUNDS + 1):
        average = model + (sizes / 70) @ [0.1, -0.2, 0.3] * np.sign(model + 0.05)
        step, opt_state = rule(opt_state, model - average, number)
        model = model - step
    found = tree.ravel(deployed(algorithm, state, 3))
    np.testing.assert_allclose(found, np.broadcast_to(model, found.shape), atol=2e-5)
