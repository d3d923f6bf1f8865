"""Rounds in one scan and in several."""

import jax
import jax.numpy as jnp
import pytest
from toys import equal, full, jit, linear, made, make_rounds, opposite_groups, quick_key, run

import jaxfl
from jaxfl.core.types import Cohort


@pytest.mark.slow
def test_four_rounds_in_one_scan_are_two_and_two_bit_for_bit():
    algorithm = made(jaxfl.algorithms.pfedgraph)
    data = opposite_groups()
    key = quick_key(0)
    advance = make_rounds(algorithm, full(6), exact=True)
    start = jit(algorithm.init)(key, data.train)
    whole, (info, _) = advance(key, data, start, 0, 4)
    state, _ = advance(key, data, start, 0, 2)
    state, (last, _) = advance(key, data, state, 2, 2)
    equal(whole, state)
    equal(jax.tree.map(lambda x: x[2:], info), last)


@pytest.mark.slow
def test_padding_changes_no_bit():
    """A slow test of the contract checks this for every algorithm."""
    algorithm = made(jaxfl.algorithms.pfedgraph)
    data = opposite_groups()
    equal(
        run(algorithm, data, 2, exact=True),
        run(algorithm, opposite_groups(pad=13, rubbish=1e3), 2, exact=True),
    )


@pytest.mark.slow
def test_a_gradient_through_rounds_is_that_of_finite_differences():
    """In float64, where differences are exact enough to be seen."""

    def wide(tree):
        return jax.tree.map(
            lambda x: x.astype(float) if jnp.issubdtype(x.dtype, jnp.floating) else x, tree
        )

    with jax.enable_x64(True):
        data = wide(opposite_groups())
        task = linear(steps=3)
        network = jaxfl.models.mlp(2, hidden=())
        task = task._replace(problem=task.problem._replace(apply=network.apply, predict=None))
        key = quick_key(0)
        start = wide(jaxfl.algorithms.pfedgraph(task).init(key, data.train))
        everybody = Cohort(jnp.arange(6), data.train, data.val)

        @jax.jit
        def loss(values):
            algorithm = jaxfl.algorithms.pfedgraph(task, snap=None, **values)
            state, _ = jaxfl.make_rounds(algorithm, full(6))(key, data, start, 0, 3)
            models = algorithm.models(state, everybody)

            def on_validation(model, own):
                errors = task.problem.error(algorithm.apply(model, own.x), own.y)
                return jnp.sum(errors * own.mask) / jnp.sum(own.mask)

            return jax.vmap(on_validation)(models, data.val).mean()

        at = {"alpha": jnp.array(0.3), "lam": jnp.array(0.5)}
        gradient = jax.jit(jax.grad(loss))(at)
        for name in at:
            step = 1e-5
            above, below = (loss(at | {name: at[name] + s}) for s in (step, -step))
            difference = float(above - below) / (2 * step)
            assert abs(difference) > 1e-3
            assert float(gradient[name]) == pytest.approx(difference, rel=1e-6)


def test_a_donated_state_is_gone_and_the_rounds_are_the_same():
    algorithm = made(jaxfl.algorithms.local)
    data, key = opposite_groups(), quick_key(0)
    results = []
    for donate in (False, True):
        start = jax.tree.map(jnp.copy, jit(algorithm.init)(key, data.train))
        rounds = jaxfl.make_rounds(algorithm, full(6), donate=donate)
        results.append(rounds(key, data, start, 0, 1)[0])
        gone = {x.is_deleted() for x in jax.tree.leaves(start) if x.size}
        assert gone == {donate}
    equal(*results)
