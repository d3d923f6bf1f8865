"""Methods that average one part of the model, on a model that has a body and a head."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from toys import close, deployed, equal, linear, opposite_groups, quick_key, run, shallow

from jaxfl.algorithms import fedper, fedrep, lg_fedavg, local
from jaxfl.core import tree
from jaxfl.core.errors import InputError
from jaxfl.core.messages import Clients
from jaxfl.core.types import Cohort, State

SIZES = [40, 10, 20, 30, 40, 20]
WEIGHTS = np.array(SIZES) / sum(SIZES)
BODY = 8 * 8 + 8
HEAD = 8 * 2 + 2


def personal(layers):
    """The given layers of a different model for each client, and the other layers of one model."""
    task = shallow()
    model = task.problem.init(quick_key(5))
    many = jax.vmap(task.problem.init)(jax.random.split(quick_key(6), 6))
    return tree.split(many, layers)[0], tree.split(model, layers)[1]


def mean(stacked):
    return jax.tree.map(
        lambda x: np.average(np.asarray(x, np.float64), axis=0, weights=WEIGHTS), stacked
    )


@pytest.mark.long(every=2)
@pytest.mark.parametrize(
    ("method", "kept", "sent"), [(fedper, "Dense_1", BODY), (lg_fedavg, "Dense_0", HEAD)]
)
def test_the_shared_part_is_the_mean_and_the_other_stays(method, kept, sent):
    """Both parts are trained together, as `local` trains them."""
    data = opposite_groups(sizes=SIZES)
    task = shallow()
    own, shared = personal(kept)
    whole = tree.join(own, tree.broadcast(shared, 6))
    trained = run(local(task), data, 1, state=State(Clients(whole), ()))[0].clients.memory
    algorithm = method(task)
    assert jax.tree.structure(algorithm.init(quick_key(0), data.train)) == jax.tree.structure(
        State(Clients(own), shared)
    )
    state, info, _ = run(algorithm, data, 1, state=State(Clients(own), shared))
    stays, goes = tree.split(trained, kept)
    close(state.clients.memory, stays, 1e-6)
    close(state.server, mean(goes))
    equal(
        deployed(algorithm, state, 6),
        tree.join(state.clients.memory, tree.broadcast(state.server, 6)),
    )
    assert info.up.tolist() == info.down.tolist() == [[sent] * 6]
    shared, own = ("body", "head") if method is fedper else ("head", "body")
    np.testing.assert_allclose(info.weights[shared][0], np.tile(WEIGHTS, (6, 1)), rtol=1e-6)
    np.testing.assert_array_equal(info.weights[own][0], np.eye(6))


def test_other_layers_may_be_the_head():
    data = opposite_groups(sizes=SIZES)
    task = shallow()
    _, info, _ = run(fedper(task, head="bias"), data, 1)
    assert info.up.tolist() == [[8 * 8 + 8 * 2] * 6]
    with pytest.raises(InputError, match="no layer matches 'nowhere'"):
        fedper(task, head="nowhere").init(quick_key(0), data.train)


@pytest.mark.slow
def test_fedrep_fits_the_head_to_the_given_body_and_then_the_body_to_the_new_head():
    """A batch holds all examples, so both phases are gradient descent, written here by hand."""
    data = opposite_groups(sizes=[10, 5, 10, 10, 5, 10])
    decay = 0.3
    rate = 0.1
    optimizer = optax.chain(optax.add_decayed_weights(decay), optax.sgd(rate))
    task = shallow(optimizer=optimizer, steps=3)
    algorithm = fedrep(task, head_epochs=4)
    own, body = personal("Dense_1")
    state, info, _ = run(algorithm, data, 1, state=State(Clients(own), body))
    mask = np.asarray(data.train.mask)
    x = np.asarray(data.train.x, np.float64)
    y = np.asarray(data.train.y)
    bodies = []
    for i in range(6):
        w0, w1 = (
            {k: np.asarray(v, np.float64) for k, v in of["params"][n].items()}
            for of, n in ((body, "Dense_0"), (jax.tree.map(lambda z, i=i: z[i], own), "Dense_1"))
        )
        a = x[i][mask[i]]
        labels = y[i][mask[i]]
        for step in range(7):
            pre = a @ w0["kernel"] + w0["bias"]
            hidden = np.maximum(pre, 0)
            logits = hidden @ w1["kernel"] + w1["bias"]
            # The gradient of the loss with respect to the logits.
            grad = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
            grad[np.arange(len(labels)), labels] -= 1
            grad /= len(labels)
            if step < 4:
                gradient = {"kernel": hidden.T @ grad, "bias": grad.sum(axis=0)}
                w1 = {k: v - rate * (gradient[k] + decay * v) for k, v in w1.items()}
            else:
                back = (grad @ w1["kernel"].T) * (pre > 0)
                gradient = {"kernel": a.T @ back, "bias": back.sum(axis=0)}
                w0 = {k: v - rate * (gradient[k] + decay * v) for k, v in w0.items()}
        bodies.append(w0)
        for k, v in w1.items():
            np.testing.assert_allclose(
                state.clients.memory["params"]["Dense_1"][k][i], v, atol=1e-5
            )
    for k in ("kernel", "bias"):
        expected = np.mean([b[k] for b in bodies], axis=0)
        np.testing.assert_allclose(state.server["params"]["Dense_0"][k], expected, atol=1e-5)
    assert info.batches.tolist() == [[7] * 6]
    assert info.up.tolist() == [[BODY] * 6]


def test_a_method_whose_shared_part_is_empty_keeps_the_form_of_its_state():
    """The only layer of a linear model is its head."""
    task = linear()
    data = opposite_groups(4)
    algorithm = fedper(task)
    state = jax.eval_shape(algorithm.init, quick_key(0), data.train)
    cohort = Cohort(jnp.arange(4), data.train, data.val, 0)
    after, _ = jax.eval_shape(algorithm.round, quick_key(0), state, cohort)
    assert jax.tree.structure(after) == jax.tree.structure(state)
