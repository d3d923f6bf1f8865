"""Rules for what clients learn, on federations with known answers."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from jaxfl.core import tree
from jaxfl.core.facts import facts_of
from jaxfl.core.types import AlgorithmFactory, Federation, State
from jaxfl.testing.equality import all_finite, close, differ, require
from jaxfl.testing.federations import (
    TWINS,
    C,
    coins,
    in_turns,
    opposite_groups,
    padded,
    twins,
    uneven,
)
from jaxfl.testing.quick_key import quick_key
from jaxfl.testing.runs import (
    between,
    deployed,
    evaluate_deployed,
    full,
    init_key,
    jit,
    made,
    make_rounds,
    pick,
    predictors,
    run,
    run_together,
    with_options,
)
from jaxfl.testing.tasks import shallow
from jaxfl.training.optimizers import sgd

# How many rounds equal clients have at most, and after how many they are looked at.
ROUNDS = 2000
BLOCK = 250


def check_example_weights(factory: AlgorithmFactory) -> None:
    """Equal weights of examples change nothing but the rounding, and others what clients deploy.

    The data with weights have more rows that only pad them, which changes nothing either.
    """
    algorithm = made(factory, shallow)
    rng = np.random.default_rng(0)
    ways: list[Callable] = [
        lambda mask: jax.device_put(np.where(mask, 4.0, np.nan).astype(np.float32)),
        lambda mask: jax.device_put(rng.exponential(size=mask.shape).astype(np.float32)),
    ]
    datas = [uneven(), *(_weighted(padded(), weigh) for weigh in ways)]
    ends = [run_together(factory, data, 1) for data in datas]
    plain, equal_weights, others = (
        deployed(algorithm, state, C, data) for (state, *_), data in zip(ends, datas, strict=True)
    )
    close(plain, equal_weights, 1e-4, "all examples with the weight 4, and more padding:")
    require(differ(plain, others), "the weights of examples (Dataset.weight) change nothing")
    all_finite(others, "with weights of examples")


def _weighted(data: Federation, weigh: Callable) -> Federation:
    """The data whose training and validation examples weigh `weigh(mask)`."""
    train, val = (part._replace(weight=weigh(part.mask)) for part in (data.train, data.val))
    return data._replace(train=train, val=val)


def check_optimum(factory: AlgorithmFactory) -> None:
    """Equal clients all reach the common optimum.

    After at most 2,000 rounds each predicts the labels by their frequencies. A method that leaves a
    part of the model as it was at first, for clients to fine-tune, predicts them better than at
    first, as far as that part allows.
    """
    data, kinds, frequencies = coins()
    algorithm, key = (
        made(factory, shallow, optimizer=sgd(0.05, 0.0, 0.0), batch_size=32),
        quick_key(0),
    )
    start = jit(algorithm.init)(jax.random.fold_in(key, 10**6), data.train)
    advance = make_rounds(algorithm, full(4))
    apply = jax.jit(jax.vmap(algorithm.apply, (0, None)))

    def predicted(state: State) -> tuple[PyTree, Any]:
        models = predictors(algorithm, state, data.train)
        return models, jax.nn.softmax(apply(models, kinds))

    expected = np.broadcast_to(frequencies, (4, 2, 2))
    first, guessed = predicted(start)
    at_first = np.abs(guessed - expected).max()
    state = start
    for number in range(0, ROUNDS, BLOCK):
        state, _ = advance(key, data, state, number, BLOCK)
        last, found = predicted(state)
        pairs = zip(jax.tree.leaves(first), jax.tree.leaves(last), strict=True)
        part = any(np.array_equal(one, other) for one, other in pairs)
        allowed = 0.7 * at_first if part else 0.05
        error = np.abs(found - expected).max()
        if error < allowed:
            return
    raise AssertionError(
        "where only frequencies can be learned, a predicted probability is wrong by "
        f"{error:.2f} after {ROUNDS:,} rounds (at first {at_first:.2f}): expected less than "
        f"{allowed:.2f}"
    )


def check_groups(factory: AlgorithmFactory) -> None:
    """Opposite groups need personal models.

    No one model can serve both groups. A method that says that something of the deployed model is
    personal must give each client a model that suits it better than its neighbour's, who is of the
    other group; and a good one if it mixes within the groups or not at all. Any other method
    deploys one model, with which half of the clients are wrong.
    """
    data = opposite_groups()
    ids = np.arange(C)
    facts = facts_of(factory)
    task = shallow(steps=20)
    algorithm = with_options(factory, **facts.separating)
    state, info = run_together(factory, data, 12, **facts.separating)
    models = predictors(algorithm, state, data.train)

    @jax.jit
    def accuracy(models: PyTree) -> Any:
        predictions = jax.vmap(algorithm.apply)(models, data.test.x)
        return jax.vmap(task.problem.score)(predictions, data.test.y).mean()

    matrix = np.asarray(jit(tree.ravel)(models))
    differs = np.ptp(matrix, axis=0).max() > 1e-3 * np.abs(matrix).max()
    # The toy has no part that some methods keep: normalisation layers.
    memory = getattr(state.clients, "memory", state.clients)
    empty = not jax.tree.leaves(memory) and jax.tree.structure(memory) != jax.tree.structure(())
    personal = facts.personal != "" and not empty
    require(
        differs == personal,
        f"clients deploy {'different models' if differs else 'one model'}, and "
        f"@method(personal={facts.personal!r}) says otherwise",
    )
    own = float(accuracy(models))
    strange = float(accuracy(pick(models, (ids + 1) % C)))
    if personal:
        require(
            own > strange,
            f"the accuracy with the own model is {own:.2f}, with that of a client of the opposite "
            f"group {strange:.2f}: expected a model that suits its client",
        )
    else:
        require(own < 0.65, f"one model has the accuracy {own:.2f} on two opposite groups")
    same = ids[:, None] % 2 == ids[None] % 2
    apart = info.weights is None or (between(info.weights)[-1] * ~same).sum(axis=1).max() < 0.1
    require(
        not personal or not apart or own > 0.7,
        f"clients mix within their groups, and their accuracy is {own:.2f}: expected above .7",
    )
    scores = evaluate_deployed(algorithm, task, data, deployed(algorithm, state, C, data))
    close(scores.deployed.test.mean(), own, 1e-6, "the scores and the models' own predictions:")
    tuned = scores.fine_tuned.test.mean()  # pyright: ignore[reportOptionalMemberAccess]
    require(tuned > 0.8, f"the fine-tuned models have the accuracy {tuned:.2f}: expected above .8")


def check_newcomers(factory: AlgorithmFactory) -> None:
    """Clients that were never seen or long away deploy what the server knows now.

    If the server has models that changed, clients that were never seen deploy something of them.
    If present twins both deploy one model that the server has, absent twins deploy it too, unless
    the paper gives them something else.
    """
    facts = facts_of(factory)
    task, data = shallow(), twins()
    algorithm = with_options(factory, **facts.separating)
    state, _, _ = run(algorithm, data, 6, participation=in_turns())
    start = jit(algorithm.init)(init_key(), data.train)
    before, after = (deployed(algorithm, s, TWINS, data) for s in (start, state))
    first, now = (
        np.concatenate([np.asarray(x).reshape(TWINS, -1) for x in jax.tree.leaves(models)], axis=1)
        for models in (before, after)
    )
    kernel = jax.eval_shape(task.problem.init, quick_key(0))["params"]["Dense_0"]["kernel"]
    pairs = zip(jax.tree.leaves_with_path(start.server), jax.tree.leaves(state.server), strict=True)
    held = [
        np.asarray(new).reshape(-1, *kernel.shape)
        for (path, old), new in pairs
        if tree.path(path).endswith("Dense_0/kernel") and not np.allclose(old, new)
        # One model, or some; not a matrix for each parameter.
        if new.shape[-2:] == kernel.shape and new.ndim < 4
    ]
    if held:
        require(
            (np.abs(now - first).max(axis=1)[2:4] > 1e-3).all(),
            "the server's model has changed, and clients that never took part deploy the first one",
        )
    kernels = next(x for x in jax.tree.leaves(after) if x.shape[1:] == kernel.shape)
    like = functools.partial(np.allclose, rtol=1e-4, atol=1e-5)
    for group in (0, 1):
        own, unseen, away, twin = now[group::2]
        of_server = any(like(model, kernels[group]) for models in held for model in models)
        if of_server and like(own, twin) and not facts.absent:
            words = "deploys another model than the server's, which its present twins deploy"
            require(like(unseen, own), f"a client that never took part {words}")
            require(like(away, own), f"a client that was away {words}")


RULES = (
    check_example_weights,
    check_optimum,
    check_groups,
    check_newcomers,
)
