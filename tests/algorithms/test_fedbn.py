"""FedBN on a model with a normalisation layer, and on one without."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from toys import close, deployed, opposite_groups, run, shallow

import jaxfl
from jaxfl.algorithms import fedavg, fedbn, local
from jaxfl.core import tree
from jaxfl.core.messages import Clients
from jaxfl.core.types import State

SIZES = [40, 10, 20, 30, 40, 20]


class Normal(nn.Module):
    """A dense layer, LayerNorm, logits."""

    @nn.compact
    def __call__(self, x):
        return nn.Dense(2)(nn.relu(nn.LayerNorm()(nn.Dense(4)(x))))


@pytest.mark.slow
def test_normalisation_layers_stay_local_and_the_other_layers_are_the_mean():
    data = opposite_groups(sizes=SIZES)
    task = jaxfl.classification(
        Normal(), jnp.zeros(8), steps=5, batch_size=8, optimizer=jaxfl.sgd(0.1)
    )
    algorithm = fedbn(task)
    # After one round the normalisation layers of the clients differ.
    start, _, _ = run(algorithm, data, 1)
    state, info, _ = run(algorithm, data, 1, state=start, start=1)
    whole = deployed(algorithm, start, 6)
    trained = run(local(task), data, 1, state=State(Clients(whole), ()), start=1)[0].clients.memory[
        "params"
    ]
    kept = state.clients.memory["params"]["LayerNorm_0"]
    close(kept, trained["LayerNorm_0"], 1e-6)
    assert float(jnp.ptp(kept["scale"], axis=0).min()) > 1e-3
    for layer in ("Dense_0", "Dense_1"):
        assert state.clients.memory["params"][layer] == {"bias": None, "kernel": None}
        mean = jax.tree.map(lambda x: np.mean(x, axis=0), trained[layer])
        close(state.server["params"][layer], mean)
    assert info.up.tolist() == info.down.tolist() == [[4 * 9 + 2 * 5] * 6]
    assert tree.size(state.server) == 46


def test_without_normalisation_layers_fedbn_equals_fedavg_of_clients_of_equal_sizes():
    data = opposite_groups()
    task = shallow()
    state, info, _ = run(fedbn(task), data, 2)
    plain, other, _ = run(fedavg(task), data, 2)
    close(state.server, plain.server)
    assert info.up.tolist() == other.up.tolist()
    assert jax.tree.leaves(state.clients.memory) == []
