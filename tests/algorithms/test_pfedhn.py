"""pFedHN: the hypernetwork equals NumPy, and the server follows the vector-Jacobian product."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import deployed, jit, linear, opposite_groups, quick_key, run

from jaxfl.algorithms import pfedhn
from jaxfl.core import tree

RATE = 0.1
DECAY = 0.01


def numpy_model(layers, heads, v):
    """A linear layer, ReLU layers, and a linear part for each leaf, in float64."""
    (kernel, bias), *hidden = layers
    features = v @ kernel + bias
    for kernel, bias in hidden:
        features = np.maximum(features, 0) @ kernel + bias
    return [np.tensordot(features, k, axes=1) + b for k, b in heads]


def test_the_server_descends_along_the_vector_jacobian_product():
    """phi and v move against J'(theta - theta~), which is found here by finite differences."""

    def known(key, before, after, ids):
        """theta~ is theta minus (1 + id) in every entry."""
        return jax.tree.map(lambda x: x - (1.0 + ids).reshape(-1, *[1] * (x.ndim - 1)), before)

    data = opposite_groups(clients=3)
    algorithm = pfedhn(
        linear(uplink=known), embedding=3, width=4, hidden=2, rate=RATE, decay=DECAY, clip=1e6
    )
    state = algorithm.init(quick_key(0), data.train)
    record, server = state.clients.record, state.server
    leaves, structure = jax.tree.flatten((record.embedding, server.net))
    rng = np.random.default_rng(0)
    leaves = [
        np.asarray(leaf) + 0.3 * rng.normal(size=leaf.shape).astype(np.float32) for leaf in leaves
    ]
    v, phi = structure.unflatten([jnp.asarray(leaf) for leaf in leaves])
    clients = state.clients._replace(record=record._replace(embedding=v))
    state = state._replace(clients=clients, server=server._replace(net=phi))

    def pulled(values):
        """The sum of (1 + id) theta_i over clients and entries; its derivative is the gradient."""
        v, phi = structure.unflatten(values)
        heads = list(zip(jax.tree.leaves(phi.kernel), jax.tree.leaves(phi.bias), strict=True))
        return sum(
            (1 + i) * sum(leaf.sum() for leaf in numpy_model(phi.layers, heads, v[i]))
            for i in range(3)
        )

    model = deployed(algorithm, state, 3)
    exact = [np.asarray(leaf, np.float64) for leaf in leaves]
    v64, phi64 = structure.unflatten(exact)
    heads = list(zip(jax.tree.leaves(phi64.kernel), jax.tree.leaves(phi64.bias), strict=True))
    for i in range(3):
        for found, expected in zip(
            jax.tree.leaves(model), numpy_model(phi64.layers, heads, v64[i]), strict=True
        ):
            np.testing.assert_allclose(found[i], expected, atol=1e-5)

    after, _, _ = run(algorithm, data, 1, state=state)
    moved = jax.tree.leaves((after.clients.record.embedding, after.server.net))
    for number, (old, new) in enumerate(zip(exact, moved, strict=True)):
        gradient = np.zeros_like(old)
        for place in np.ndindex(*old.shape):
            values = []
            for step in (1e-5, -1e-5):
                shifted = [leaf.copy() for leaf in exact]
                shifted[number][place] += step
                values.append(pulled(shifted))
            gradient[place] = (values[0] - values[1]) / 2e-5
        np.testing.assert_allclose(new, old - RATE * (gradient + DECAY * old), atol=1e-4)


@pytest.mark.slow
def test_gradients_are_clipped_together():
    """With a small bound, the length of the whole step is the rate times the bound."""
    data = opposite_groups(clients=3)
    algorithm = pfedhn(linear(), rate=1.0, momentum=0.0, decay=0.0, clip=1e-3)
    state = jit(algorithm.init)(quick_key(0), data.train)
    after, _, _ = run(algorithm, data, 1, state=state)
    old, new = ((s.clients.record.embedding, s.server.net) for s in (state, after))
    step = jax.tree.map(jnp.subtract, new, old)
    np.testing.assert_allclose(jnp.sqrt(tree.dot(step, step)), 1e-3, rtol=1e-2)
