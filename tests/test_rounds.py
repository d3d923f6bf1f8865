"""Rounds in one scan and in several."""

import jax
from toys import equal, full, jit, made, make_rounds, opposite_groups, run

import jaxfl


def test_four_rounds_in_one_scan_are_two_and_two_bit_for_bit():
    algorithm = made(jaxfl.algorithms.pfedgraph)
    data = opposite_groups()
    key = jax.random.key(0)
    advance = make_rounds(algorithm, full(6), exact=True)
    start = jit(algorithm.init)(key, data.train)
    whole, (info, _) = advance(key, data, start, 0, 4)
    state, _ = advance(key, data, start, 0, 2)
    state, (last, _) = advance(key, data, state, 2, 2)
    equal(whole, state)
    equal(jax.tree.map(lambda x: x[2:], info), last)


def test_padding_changes_no_bit():
    """A slow test of the contract checks this for every algorithm."""
    algorithm = made(jaxfl.algorithms.pfedgraph)
    data = opposite_groups()
    equal(
        run(algorithm, data, 2, exact=True),
        run(algorithm, opposite_groups(pad=13, rubbish=1e3), 2, exact=True),
    )
