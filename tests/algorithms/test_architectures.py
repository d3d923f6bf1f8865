"""Clients of several architectures: two equal ones give what one gives; two others share heads."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import full, normed, opposite_groups, run, shallow

import jaxfl
from jaxfl.algorithms import (
    ALGORITHMS,
    fedavg,
    feddistill,
    fedgh,
    fedproto,
    fedtgp,
    fml,
    heterofl,
    lg_fedavg,
    local,
    mutual_graph,
)
from jaxfl.core.errors import InputError
from jaxfl.core.types import Cohort

DATA = opposite_groups(clients=5, sizes=[40, 25, 31, 40, 20])
OF = [0, 1, 1, 0, 1]
KEY = jax.random.key(3)


def scores(algorithm, task, state, after):
    evaluate = jaxfl.make_evaluate(algorithm, task, after=after)
    found = evaluate(KEY, DATA, state, jnp.arange(5))
    return found.deployed.test if after == "none" else found.fine_tuned.test


def by_prototypes(task):
    return fedproto(task, predict="prototypes")


@pytest.mark.parametrize(
    ("kind", "one"),
    [
        *(
            (kind, shallow())
            for kind in (local, lg_fedavg, feddistill, fml, mutual_graph, heterofl)
        ),
        (fedgh, shallow()),
        (fedtgp, shallow()),
        (by_prototypes, shallow()),
        (local, normed()),
    ],
    ids=[
        *("local", "lg_fedavg", "feddistill", "fml", "mutual_graph", "heterofl", "fedgh"),
        *("fedtgp", "fedproto", "dropout"),
    ],
)
@pytest.mark.long(every=6)
@pytest.mark.parametrize("part", [None, [[4, 0], [1, 3]]])
def test_two_equal_architectures_are_one(kind, one, part):
    """Also where a cohort is a part of the clients, in an order of its own."""
    two = jaxfl.heterogeneous({"first": one, "second": one}, OF)
    who = None if part is None else jaxfl.participation.schedule(np.array(part))
    plain, told, _ = run(kind(one), DATA, 3, participation=who)
    state, info, _ = run(kind(two), DATA, 3, participation=who)
    for name in ("loss", "up", "down", "batches"):
        np.testing.assert_allclose(getattr(info, name), getattr(told, name), rtol=1e-6)
    for after in ("none", "fine_tuned"):
        expected = scores(kind(one), one, plain, after)
        np.testing.assert_allclose(scores(kind(two), two, state, after), expected, atol=1e-6)


def deep():
    """As `shallow`, with a layer more; the features have the same size."""
    options = {"steps": 5, "batch_size": 8, "optimizer": jaxfl.sgd(0.1)}
    return jaxfl.classification(jaxfl.models.mlp(2, hidden=(9, 8)), jnp.zeros(8), **options)


def test_heads_are_averaged_over_architectures_and_bodies_stay():
    two = jaxfl.heterogeneous({"small": shallow(), "deep": deep()}, OF)
    algorithm = lg_fedavg(two)
    state, info, _ = run(algorithm, DATA, 1, participation=full(5))
    sizes = np.asarray(DATA.sizes, float)
    np.testing.assert_allclose(
        info.weights["head"][-1], np.tile(sizes / sizes.sum(), (5, 1)), rtol=1e-5
    )
    # A client's memory is its body: 72 numbers, or 81 and 80.
    assert state.clients.memory["float32"].shape == (5, 161)
    small = np.asarray(OF) == 0
    assert (np.asarray(state.clients.memory["float32"])[small, 72:] == 0).all()


def test_a_cohort_with_other_numbers_of_each_architecture_has_no_loss():
    two = jaxfl.heterogeneous({"small": shallow(), "deep": deep()}, OF)
    who = jaxfl.participation.schedule(np.array([[0, 1], [0, 3]]))
    _, info, _ = run(local(two), DATA, 2, participation=who)
    assert np.isfinite(info.loss[0]).all()
    assert np.isnan(info.loss[1]).all()


def test_any_clients_may_be_scored():
    two = jaxfl.heterogeneous({"small": shallow(), "deep": deep()}, OF)
    algorithm = lg_fedavg(two)
    state, _, _ = run(algorithm, DATA, 2, participation=full(5))
    evaluate = jaxfl.make_evaluate(algorithm, two)
    every = evaluate(KEY, DATA, state, jnp.arange(5))
    some = evaluate(KEY, DATA, state, jnp.array([4, 1, 2]))
    for of_all, of_some in ((every.deployed, some.deployed), (every.fine_tuned, some.fine_tuned)):
        np.testing.assert_allclose(of_some.test, np.asarray(of_all.test)[[4, 1, 2]], atol=1e-6)


def test_a_method_that_averages_whole_models_names_those_that_can():
    two = jaxfl.heterogeneous({"small": shallow(), "large": deep()}, OF)
    with pytest.raises(InputError, match=r"fedavg .* of small, .* of large.* such as feddistill"):
        run(fedavg(two), DATA, 1, participation=full(5))


@pytest.mark.slow(seconds=30)
def test_every_method_takes_several_architectures_or_refuses_them_in_one_line():
    """Nothing is computed."""
    two = jaxfl.heterogeneous({"small": shallow(), "deep": deep()}, OF)
    cohort = Cohort(jnp.arange(5), DATA.train, DATA.val, 0)
    able, refused = [], {}
    for name, factory in ALGORITHMS.items():
        try:
            algorithm = factory(two)
            state = jax.eval_shape(algorithm.init, KEY, DATA.train)
            jax.eval_shape(algorithm.round, KEY, state, cohort)
            jax.eval_shape(algorithm.models, state, cohort)
            able.append(name)
        except InputError as error:
            refused[name] = str(error)
    with_equal_messages = {
        *("feddistill", "fedgh", "fedproto", "fedtgp", "fml", "lg_fedavg", "local"),
        "mutual_graph",
    }
    assert with_equal_messages == set(able)
    for name, told in refused.items():
        assert name in told
        assert "architectures" in told
