"""MOON's contrastive loss: the equation of the paper, and a step of local training."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from toys import close, opposite_groups, quick_key, run, shallow

from jaxfl.algorithms import fedavg, moon
from jaxfl.algorithms.steps.personal import Personal
from jaxfl.core.messages import Clients
from jaxfl.core.types import State
from jaxfl.kernels.contrastive import contrast


def paper(own, near, far, temperature):
    """Equation 3."""

    def cosine(a, b):
        return (a * b).sum(-1) / np.sqrt((a * a).sum(-1) * (b * b).sum(-1))

    towards = np.exp(cosine(own, near) / temperature)
    away = np.exp(cosine(own, far) / temperature)
    return -np.log(towards / (towards + away))


def test_the_contrast_is_equation_3_and_has_a_gradient_at_zero():
    vectors = np.random.default_rng(0).normal(size=(3, 5, 4))
    np.testing.assert_allclose(
        contrast(*jnp.float32(vectors), 0.3), paper(*vectors, 0.3), rtol=1e-5
    )
    zero = jnp.zeros((1, 4))
    assert jnp.isfinite(jax.grad(lambda v: contrast(v, zero + 1, zero - 1, 0.3).sum())(zero)).all()


@pytest.mark.slow
def test_a_step_lowers_the_contrast_with_the_global_model_and_the_last_local_model():
    """One step on all examples is the rate times the gradient, found by finite differences."""
    data = opposite_groups(sizes=[10, 10, 5, 5, 10, 5])
    task = shallow(steps=1, optimizer=optax.sgd(0.1))
    first, _, _ = run(fedavg(task), data, 1)
    keys = jax.random.split(quick_key(3), 6)
    last = jax.vmap(task.problem.init)(keys)
    clients = Clients(Personal(last, jnp.ones(6, bool)))
    state, info, _ = run(
        moon(task, mu=2.0, temperature=0.4), data, 1, state=State(clients, first.server)
    )
    plain, _, _ = run(moon(task, mu=0.0), data, 1, state=State(clients, first.server))

    def hidden(model, x):
        layer = {k: np.asarray(v, np.float64) for k, v in model["params"]["Dense_0"].items()}
        return np.maximum(x @ layer["kernel"] + layer["bias"], 0)

    x = np.asarray(data.train.x, np.float64)
    mask = np.asarray(data.train.mask)
    start = jax.tree.map(lambda v: np.asarray(v, np.float64), first.server)
    for i in range(6):
        own = jax.tree.map(lambda v, i=i: v[i], last)
        rows = x[i][mask[i]]
        moved = (
            plain.clients.memory.model["params"]["Dense_0"]["bias"]
            - state.clients.memory.model["params"]["Dense_0"]["bias"]
        )[i]
        for unit in range(8):
            values = []
            for sign in (1, -1):
                bias = start["params"]["Dense_0"]["bias"] + sign * 1e-5 * np.eye(8)[unit]
                near = {"params": {"Dense_0": start["params"]["Dense_0"] | {"bias": bias}}}
                values.append(
                    paper(hidden(near, rows), hidden(start, rows), hidden(own, rows), 0.4).mean()
                )
            np.testing.assert_allclose(
                moved[unit], 0.1 * 2 * (values[0] - values[1]) / 2e-5, atol=1e-5
            )
    assert float(jnp.abs(moved).max()) > 1e-3
    assert info.up.tolist() == [[8 * 9 + 9 * 2] * 6]


def test_if_the_last_local_model_is_the_global_model_moon_equals_fedavg():
    data = opposite_groups()
    task = shallow()
    close(run(moon(task), data, 1)[0].server, run(fedavg(task), data, 1)[0].server)
