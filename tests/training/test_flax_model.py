"""Batch statistics and dropout of a flax module, compared with flax itself and with NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen as nn
from toys import Normed, close, differ, equal, normed, opposite_groups, quick_key, run

import jaxfl
from jaxfl.algorithms import fedavg, fedbn, fedrod, local
from jaxfl.core import tree
from jaxfl.core.errors import InputError
from jaxfl.core.types import Cohort, Dataset
from jaxfl.training.objectives import data_loss

KEY = quick_key(0)
SIZES = [40, 10, 20, 31]


class Plain(nn.Module):
    """A module with BatchNorm but no dropout, so that a test can repeat its steps with flax."""

    @nn.compact
    def __call__(self, x, train: bool = False):
        return nn.Dense(2)(nn.BatchNorm(use_running_average=not train, momentum=0.8)(x))


def everybody(data):
    return Cohort(jnp.arange(len(SIZES)), data.train, data.val)


@pytest.mark.slow
def test_local_steps_are_those_of_flax_and_the_optimiser_leaves_the_statistics_alone():
    """A batch holds all examples; momentum and weight decay apply to the parameters alone."""
    data = opposite_groups(clients=4, sizes=SIZES, pad=5, rubbish=1e3)
    optimizer = optax.chain(optax.add_decayed_weights(0.1), optax.sgd(0.1, 0.9))
    task = jaxfl.classification(Plain(), jnp.zeros(8), steps=3, batch_size=40, optimizer=optimizer)
    start = task.problem.init(KEY)
    stacked = tree.broadcast(start, 4)
    fitted = task.trainer(data_loss(task.problem))(KEY, stacked, None, everybody(data))
    for i in range(4):
        mask = np.asarray(data.train.mask[i])
        x = data.train.x[i][mask]
        y = data.train.y[i][mask]
        params = start["params"]
        stats = start["batch_stats"]
        state = optimizer.init(params)
        for _ in range(3):

            def loss(params, stats=stats, x=x, y=y):
                model = {"params": params, "batch_stats": stats}
                logits, changed = Plain().apply(model, x, train=True, mutable=["batch_stats"])
                errors = optax.softmax_cross_entropy_with_integer_labels(logits, y)
                return errors.mean(), changed["batch_stats"]

            grads, stats = jax.grad(loss, has_aux=True)(params)
            updates, state = optimizer.update(grads, state, params)
            params = optax.apply_updates(params, updates)
        found = jax.tree.map(lambda leaf, i=i: leaf[i], fitted.params)
        close(found, {"params": params, "batch_stats": stats}, 1e-5)


@pytest.mark.slow
def test_recomputed_statistics_are_those_of_the_real_examples():
    # Three parts of 256 examples.
    data = opposite_groups(clients=1, sizes=[700], pad=30, rubbish=1e3)
    task = jaxfl.classification(Plain(), jnp.zeros(8), statistics="recomputed", scale=2.0)
    model = task.problem.init(KEY)
    assert set(model) == {"params"}
    train = jax.tree.map(lambda leaf: leaf[0], data.train)
    known = task.problem.recall({"own": model, "other": (model,)}, train)
    real = np.asarray(train.x)[np.asarray(train.mask)] / 2
    for one in (known["own"], known["other"][0]):
        norm = one["batch_stats"]["BatchNorm_0"]
        np.testing.assert_allclose(norm["mean"], real.mean(axis=0), atol=1e-5)
        np.testing.assert_allclose(norm["var"], real.var(axis=0), rtol=1e-4)
    nobody = task.problem.recall(model, train._replace(mask=jnp.zeros_like(train.mask)))
    assert (nobody["batch_stats"]["BatchNorm_0"]["var"] == 1).all()


@pytest.mark.slow
def test_recomputed_statistics_are_neither_sent_nor_kept():
    data = opposite_groups(clients=4, sizes=SIZES)
    task = normed(statistics="recomputed")
    algorithm = fedavg(task)
    state, info, _ = run(algorithm, data, 2)
    assert set(state.server) == {"params"}
    assert info.up[0, 0] == 8 * 8 + 2 * 8 + 8 * 2 + 2
    assert run(fedavg(normed()), data, 1)[1].up[0, 0] == info.up[0, 0] + 2 * 8
    evaluate = jaxfl.make_evaluate(algorithm, task)
    scores = evaluate(KEY, data, state, jnp.arange(4))
    assert np.isfinite(scores.deployed.test).all()
    equal(scores, evaluate(KEY, data, state, jnp.arange(4)))


@pytest.mark.slow
def test_dropout_acts_in_training_alone():
    task = normed()
    data = opposite_groups(clients=4, sizes=SIZES)
    model = task.problem.init(KEY)
    batch = jax.tree.map(lambda leaf: leaf[0], data.train)
    loss = data_loss(task.problem)
    values = [float(loss(model, batch, None, quick_key(s))[0]) for s in (1, 2)]
    assert values[0] != values[1]
    assert not differ(*(task.problem.apply(model, batch.x) for _ in range(2)))


@pytest.mark.slow
def test_fedavg_averages_the_statistics_and_fedbn_keeps_them():
    data = opposite_groups(clients=4, sizes=SIZES)
    task = normed()
    trained = run(local(task), data, 1)[0].clients.memory["batch_stats"]["BatchNorm_0"]["mean"]
    mean = run(fedavg(task), data, 1)[0].server["batch_stats"]["BatchNorm_0"]["mean"]
    np.testing.assert_allclose(mean, np.average(trained, axis=0, weights=SIZES), atol=1e-6)
    assert np.ptp(trained, axis=0).min() > 1e-3
    for norms, kept in (("[Nn]orm", {"params", "batch_stats"}), ("batch_stats", {"batch_stats"})):
        own = run(fedbn(task, norms=norms), data, 1)[0].clients.memory
        assert {name for name in own if jax.tree.leaves(own[name])} == kept
        np.testing.assert_allclose(own["batch_stats"]["BatchNorm_0"]["mean"], trained, atol=1e-6)


def test_bad_modules_are_refused():
    class Silent(nn.Module):
        @nn.compact
        def __call__(self, x):
            return nn.BatchNorm(use_running_average=False)(x)

    with pytest.raises(InputError, match="Silent has batch statistics, and its __call__ takes no"):
        jaxfl.classification(Silent(), jnp.zeros(8))
    with pytest.raises(InputError, match="choose a model without BatchNorm"):
        normed(example_clip=1.0)
    with pytest.raises(InputError, match="needs the model's features"):
        fedrod(normed(statistics="recomputed"))
    assert Normed.head == normed().problem.head


class Named(nn.Module):
    """`Plain` with the input of BatchNorm by its name."""

    @nn.compact
    def __call__(self, x, train: bool = False):
        return nn.Dense(2)(nn.BatchNorm(use_running_average=not train, momentum=0.8)(x=x))


def test_batch_norm_takes_its_input_by_name_too():
    x = jax.random.normal(KEY, (6, 8))
    results = []
    for module in (Plain(), Named()):
        problem = jaxfl.classification(module, jnp.zeros(8)).problem
        assert problem.predict
        results.append(problem.predict(problem.init(KEY), x, jnp.arange(6) < 4, KEY))
    equal(*results)


@pytest.mark.slow
@pytest.mark.parametrize("micro", [4, 16])
def test_gradients_with_batch_statistics_are_those_of_whole_batches(micro):
    """As those of the training step, whatever `micro` says, which has a default of the platform."""
    data = opposite_groups(clients=4, sizes=SIZES)
    ids = jnp.arange(4)
    answers = []
    for size in (None, micro):
        task = jaxfl.classification(Plain(), jnp.zeros(8), batch_size=32, micro=size)
        models = tree.broadcast(task.problem.init(KEY), 4)
        loss = data_loss(task.problem)
        asked = KEY, models, data.train, ids
        answers.append((task.gradient(loss)(*asked), task.evaluate(loss)(*asked)))
    equal(*answers)


@pytest.mark.slow
def test_a_client_without_examples_has_a_finite_loss_and_gradient():
    task = normed()
    empty = Dataset(jnp.zeros((1, 12, 8)), jnp.zeros((1, 12), int), jnp.zeros((1, 12), bool))
    model = tree.broadcast(task.problem.init(KEY), 1)
    asked = task.gradient(data_loss(task.problem))(KEY, model, empty, jnp.arange(1))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(asked))
