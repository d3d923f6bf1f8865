"""Derivatives of a run by the learning rate and by the hyper-parameters of its method."""

import functools
import inspect
import typing

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from toys import SIZES, full, once, opposite_groups, quick_key, shallow

import jaxfl
from jaxfl.core.errors import InputError
from jaxfl.core.types import Cohort

C = 6


@once
def dark():
    """Clients of which one feature is always 0, as a pixel at the border: its weights never move.

    With one client that loses its uploads, whose update counts as 0.
    """
    data = opposite_groups(sizes=SIZES)

    def darken(part):
        return part._replace(x=part.x.at[..., 0].set(0.0))

    return data._replace(train=darken(data.train), val=darken(data.val))


def lost(key, ids, work):
    return ids == 3


def scalars(factory):
    """The hyper-parameters of a method that may be traced, with their defaults, or .6."""
    hints = typing.get_type_hints(factory)
    values = {}
    for name, parameter in inspect.signature(factory).parameters.items():
        if jax.Array in typing.get_args(hints[name]):
            default = parameter.default
            try:
                factory(shallow(), **{name: 0.6})
            except InputError:  # takes effect beside another hyper-parameter only
                continue
            values[name] = default if isinstance(default, float) and default else 0.6
    return values


def of_a_run(factory, optimizer=None, **hyper):
    """A number that a run ends with, as a function of the learning rate and hyper-parameters.

    Returns:
      The function of a dict, and the values at which it may be differentiated.
    """
    optimizer = optimizer or functools.partial(jaxfl.sgd, momentum=0.0, weight_decay=0.0)
    data = dark()

    def last(values):
        values = dict(values)
        rate = values.pop("learning rate")
        task = jaxfl.classification(
            jaxfl.models.mlp(2, hidden=(8,)),
            jnp.zeros(8),
            steps=2,
            batch_size=8,
            optimizer=optimizer(rate),
        )
        algorithm = factory(task, **hyper, **values)
        rounds = jaxfl.make_rounds(algorithm, full(C), lost=lost)
        key = quick_key(0)
        state, (info, _) = rounds(key, data, algorithm.init(key, data.train), 0, 2)
        models = algorithm.models(state, Cohort(jnp.arange(C), data.train, data.val))
        return info.loss.mean() + sum(jnp.sum(x**2) for x in jax.tree.leaves(models))

    return last, {"learning rate": 0.1} | (scalars(factory) if not hyper else {})


def derivatives(factory, optimizer=None, **hyper):
    """By the learning rate and by each hyper-parameter."""
    last, values = of_a_run(factory, optimizer, **hyper)
    return jax.jit(jax.jacfwd(last))(values)


@pytest.mark.long
def test_derivatives_by_the_learning_rate_and_hyper_parameters_are_finite(factory):
    last, values = of_a_run(factory)
    ones = jax.tree.map(jnp.ones_like, values)
    _, total = jax.jit(lambda values: jax.jvp(last, (values,), (ones,)))(values)
    if not np.isfinite(total):
        found = derivatives(factory)
        raise AssertionError([name for name, value in found.items() if not np.isfinite(value)])


@pytest.mark.slow
def test_derivatives_pass_through_distances_and_caps():
    general_graph = jaxfl.algorithms.general_graph
    for hyper in ({"measure": "l2"}, {"cap": 0.3}):
        assert np.isfinite(derivatives(general_graph, **hyper)["learning rate"]), hyper


@pytest.mark.slow
def test_adam_of_the_clients_needs_what_its_docstring_says():
    fedavg = jaxfl.algorithms.fedavg
    assert np.isnan(derivatives(fedavg, optax.adam)["learning rate"])
    rooted = functools.partial(optax.adam, eps_root=1e-36)
    assert np.isfinite(derivatives(fedavg, rooted)["learning rate"])
