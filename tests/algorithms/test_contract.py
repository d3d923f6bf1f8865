"""What every algorithm of the registry owes, whatever it is: no test here knows a name.

The rules are those that `jaxfl.testing` gives to authors of methods, in two tests, each of which
names all rules that a method breaks; the tests beside them look at devices, processes and programs
as shipped.
"""

import os
import socket
import subprocess
import sys
from pathlib import Path

import children
import jax
import numpy as np
import pytest
from toys import (
    close,
    equal,
    half,
    made,
    once,
    run,
    shallow,
    unpadded,
)

from jaxfl.algorithms import ALGORITHMS
from jaxfl.simulation import mesh
from jaxfl.testing import RULES, check_method, failures, program, results
from jaxfl.testing.federations import C, padded, uneven

# Options are looked at in `test_number_types`.
PROGRAM = [rule for rule in program.RULES if rule is not program.check_variants]
# What the engine does with a round, and not the method: a scan, a vmap. That options may be traced
# is seen where `test_derivatives` differentiates by them.
ENGINE = [results.check_scan, results.check_vmap]
ROUNDS = [rule for rule in RULES if rule not in [*program.RULES, *ENGINE]]


def test_the_program_of_a_round_keeps_the_contract(factory):
    check_method(factory, rules=PROGRAM)


@pytest.mark.long
def test_rounds_keep_the_contract(factory):
    check_method(factory, rules=ROUNDS)
    failures.check_not_finite(factory, np.inf)


@pytest.mark.slow
@pytest.mark.sample(every=8)
def test_a_round_in_a_scan_and_side_by_side_is_the_round(factory):
    check_method(factory, rules=ENGINE)


@once
def by_rows():
    """The same again, each example stored once and read by row number."""
    return unpadded(uneven())


@pytest.mark.slow
@pytest.mark.sample(every=16)
@pytest.mark.parametrize("data", [padded, by_rows], ids=["padded", "by_rows"])
def test_four_devices_change_nothing(factory, data):
    """Six clients leave a gap on four devices."""
    algorithm = made(factory, shallow)
    with jax.set_mesh(mesh.make_mesh(4)):
        spread = run(algorithm, mesh.place(data()), 1)
    close(run(algorithm, uneven(), 1), spread, 1e-6)


@pytest.mark.slow
@pytest.mark.sample(every=16)
def test_padding_and_row_numbers_of_examples_change_no_bit_of_programs_as_shipped(factory):
    algorithm = made(factory, shallow)
    one = run(algorithm, uneven(), 2, participation=half(C), exact=True)
    for data in (padded, by_rows):
        equal(one, run(algorithm, data(), 2, participation=half(C), exact=True))


@pytest.mark.slow(seconds=70)
def test_two_processes_give_what_one_gives(tmp_path):
    """One round of every eighth algorithm; two processes share the clients."""
    every = 8
    out = tmp_path / "leaves.npz"
    with socket.socket() as free:
        free.bind(("localhost", 0))
        coordinator = f"localhost:{free.getsockname()[1]}"
    program = Path(__file__).parents[1] / "two_processes.py"
    # They must not use this cache: of its programs process 0 alone would have some, and they hung.
    environment = os.environ | {"JAX_COMPILATION_CACHE_DIR": jax.config.jax_compilation_cache_dir}
    running = [
        subprocess.Popen(
            [sys.executable, program, coordinator, str(process), out, str(every)],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        for process in range(2)
    ]
    errors = [said for _, said in children.end(running, 1800)]
    assert [process.returncode for process in running] == [0, 0], errors
    with np.load(out, allow_pickle=False) as together:
        for name in list(ALGORITHMS)[::every]:
            state, info, _ = run(made(ALGORITHMS[name], shallow), uneven(), 1)
            for number, leaf in enumerate(jax.tree.leaves((state, info))):
                found = together[f"{name}/{number:03}"]
                np.testing.assert_allclose(
                    found, np.asarray(leaf), rtol=1e-6, atol=1e-6, err_msg=name
                )
