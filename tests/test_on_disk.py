"""Clients on disk: the same bits as in memory, whatever is read ahead, stopped or written over."""

import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import (
    equal,
    full,
    half,
    init_key,
    linear,
    made,
    opposite_groups,
    run,
    run_key,
    shallow,
    SHIPPED,
)

import jaxfl
from jaxfl import checkpoint, on_disk
from jaxfl.algorithms import ALGORITHMS
from jaxfl.errors import InputError
from jaxfl.on_disk.clients import ClientStates
from jaxfl.on_disk.initial import initial_state
from jaxfl.types import Dataset, Pool

SIZES = [40, 25, 31, 40, 12, 9]
C = 6


@functools.cache
def uneven():
    return opposite_groups(sizes=SIZES)


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    return on_disk.write_federation(tmp_path_factory.mktemp("data") / "federation", uneven())


def stored_rounds(*arguments, **options):
    """`make_stored_rounds`, with the compiler options of a user, see conftest.py."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jax, "jit", functools.partial(jax.jit, compiler_options=SHIPPED))
        return on_disk.make_stored_rounds(*arguments, **options)


def start(algorithm, stored, directory, **options):
    return on_disk.open_clients(directory, algorithm, init_key(), stored, **options)


def all_states(clients, state):
    return clients.read(np.asarray(state.clients), np.arange(C))


def check_same(algorithm, stored, directory, participation=None, rounds=4):
    """Rounds on disk are those in memory: state, info, ids, deployed models, scores."""
    participation = participation or half(C)
    first = algorithm.init(init_key(), uneven().train)
    memory, info, ids = run(
        algorithm, uneven(), rounds, state=first, participation=participation, exact=True
    )
    clients, state = start(algorithm, stored, directory)
    advance = stored_rounds(algorithm, participation, stored, clients)
    state, (stored_info, stored_ids) = advance(run_key(), state, 0, rounds)
    np.testing.assert_array_equal(stored_ids, ids)
    equal(stored_info, info)
    equal(state.server, memory.server)
    equal(all_states(clients, state), jax.device_get(memory.clients))
    return memory, clients, state


@pytest.mark.long
def test_rounds_on_disk_have_the_bits_of_rounds_in_memory(factory, stored, tmp_path):
    check_same(made(factory, shallow), stored, tmp_path)
