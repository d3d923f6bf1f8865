"""Options whose values are names, for every algorithm: an unknown name is refused."""

import inspect
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import linear, opposite_groups, quick_key, run

import jaxfl
from jaxfl.algorithms import (
    ALGORITHMS,
    gfedmtl,
    gossip,
    krum,
    multi_krum,
    pfedgat,
    push_sum,
    trimmed_mean,
)
from jaxfl.core.errors import InputError
from jaxfl.core.options import listed_names, options_of
from jaxfl.core.types import Cohort
from jaxfl.experiment import Setting


def named(factory):
    options = {name: listed_names(hint) for name, (hint, _) in options_of(factory).items()}
    return {name: listed for name, listed in options.items() if listed}


@pytest.mark.parametrize("method", [gossip, push_sum])
def test_a_graph_that_is_neither_a_name_nor_a_file_is_refused(method):
    """All other options whose values are names are asked in tests/test_names.py."""
    listed = ", ".join(named(method)["graph"])
    message = f"graph of {method.__name__} is 'bogus': expected .*one of {listed}$"
    with pytest.raises(InputError, match=message):
        method(linear(), graph="bogus")


def test_many_options_have_names_as_values():
    assert sum(len(named(factory)) for factory in ALGORITHMS.values()) >= 15


def test_a_value_that_is_not_a_name_passes_if_the_hint_allows_it():
    for tau in (0.3, jnp.array(0.3), jnp.ones((2, 2)), "learned"):
        gfedmtl(linear(), tau=tau)
    jax.jit(lambda tau: (gfedmtl(linear(), tau=tau), tau)[1])(0.3)
    with pytest.raises(InputError, match="attention of pfedgat is None: expected one of gat"):
        pfedgat(linear(), attention=None)
    with pytest.raises(InputError, match="did you mean attention"):
        pfedgat(linear(), atention="gat")


def test_the_checked_factory_keeps_its_name_docstring_and_parameters(factory):
    assert getattr(jaxfl.algorithms, factory.__name__) is factory
    assert factory.__doc__
    assert next(iter(inspect.signature(factory).parameters)) == "task"


@pytest.mark.slow
def test_jaxfl_alone_checks_an_option():
    """In the other tests beartype checks arguments too; in this process it does not."""
    program = "import jaxfl\njaxfl.algorithms.pfedgat(None, attention='bogus')"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (
        "InputError: hyper-parameter attention of pfedgat is 'bogus': expected one of gat, gatv2"
        in ended.stderr
    )


@pytest.mark.parametrize("method", [krum, multi_krum])
def test_krum_refuses_more_malicious_clients_than_it_bears(method):
    data = opposite_groups()
    key = quick_key(0)
    cohort = Cohort(jnp.arange(6), data.train, data.val)

    def one_round(byzantine):
        algorithm = method(linear(), byzantine=byzantine)
        state = jax.eval_shape(algorithm.init, key, data.train)
        return jax.eval_shape(algorithm.round, key, state, cohort)

    one_round(1)  # 2 + 2 < 6
    with pytest.raises(InputError, match="byzantine is 2: expected at most 1 for a cohort of 6"):
        one_round(2)


def test_the_trimmed_mean_withstands_the_default_number_of_malicious_clients():
    malicious = np.arange(5) < 5 * Setting().attack_ratio

    def far(key, before, after, ids):
        added = jnp.where(jnp.asarray(malicious)[ids], 1e6, 0.0)
        return jax.tree.map(lambda x: x + added.reshape(-1, *[1] * (x.ndim - 1)), after)

    state, _, _ = run(trimmed_mean(linear(uplink=far)), opposite_groups(clients=5), 1)
    assert all(np.abs(x).max() < 100 for x in jax.tree.leaves(state.server))
