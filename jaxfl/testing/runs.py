"""Short runs, whose programs are compiled once for all rules of a method."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import PyTree

from jaxfl.core import tree
from jaxfl.core.types import (
    Algorithm,
    AlgorithmFactory,
    Cohort,
    Dataset,
    Federation,
    Info,
    Params,
    Participation,
    PRNGKey,
    State,
    Task,
)
from jaxfl.simulation import evaluate, mesh, participation, rounds
from jaxfl.testing.once import once
from jaxfl.testing.quick_key import quick_key
from jaxfl.testing.tasks import linear, shallow

# The client that may send another model than it has trained.
LIAR = 2

jit = functools.cache(jax.jit)
make_rounds = functools.cache(rounds.make_rounds)
make_evaluate = functools.cache(evaluate.make_evaluate)
full = functools.cache(participation.full)


@functools.cache
def half(clients: int) -> Participation:
    """Half of the clients take part in a round."""
    return participation.uniform(clients, 0.5)


@functools.cache
def made(factory: AlgorithmFactory, make_task: Callable | None = None, **options: Any) -> Algorithm:
    """`factory(linear(**options))`, the same object each time, so that it is compiled only once."""
    return factory((make_task or linear)(**options))


@functools.cache
def with_options(factory: AlgorithmFactory, **options: Any) -> Algorithm:
    """The method on `shallow` with options of its own, the same object each time."""
    return factory(shallow(), **options) if options else made(factory, shallow)


@once
def run_key() -> PRNGKey:
    """The key of `run`'s rounds if none is given."""
    return quick_key(0)


@once
def init_key() -> PRNGKey:
    """The key of `run`'s initial state if no key is given, made once for all algorithms."""
    return jax.random.fold_in(run_key(), 10**6)


def run(
    algorithm: Algorithm,
    federation: Federation,
    number_of_rounds: int = 3,
    *,
    key: PRNGKey | None = None,
    participation: Participation | None = None,
    state: Any = None,
    start: int = 0,
    advance: Callable | None = None,
) -> tuple[State, Info, Any]:
    """The state, info and ids after some rounds, run one by one, so that one program is enough.

    Args:
      algorithm: what happens in a round.
      federation: the data of all clients.
      number_of_rounds: how many.
      key: of the run.
      participation: who takes part; None: everybody.
      state: before the rounds; None: the initial one.
      start: the number of the first round.
      advance: the function of `make_rounds`, compiled in another way.
    """
    clients = federation.train.mask.shape[0]
    if state is None:
        first_key = init_key() if key is None else jax.random.fold_in(key, 10**6)
        state = jit(algorithm.init)(first_key, federation.train)
    key = run_key() if key is None else key
    advance = advance or make_rounds(algorithm, participation or full(clients))
    outputs = []
    for number in range(start, start + number_of_rounds):
        state, output = advance(key, federation, state, number, 1)
        outputs.append(output)
    if any(isinstance(x, Tracer) for x in jax.tree.leaves(outputs)):
        info, ids = jax.tree.map(lambda *x: jnp.concatenate(x), *outputs)
    else:
        info, ids = jax.tree.map(lambda *x: np.concatenate(x), *mesh.fetch(outputs))
    return state, info, ids


def pick(tree: PyTree, ids: Any) -> Any:
    """Rows `ids` of every leaf, taken by NumPy, so that nothing has to be compiled."""
    return jax.tree.map(lambda x: np.asarray(x)[ids], tree)


def cohort_of(data: Federation, ids: Any) -> Cohort:
    """The clients `ids` with their data, in round 0."""
    return Cohort(ids, pick(data.train, ids), pick(data.val, ids), 0)


@functools.cache
def round_with_liar(factory: AlgorithmFactory, **options: Any) -> Callable:
    """A round in which one client sends `scale` times its model plus `number`, as one program.

    Args:
      factory: of the method.
      options: of the method.

    Returns:
      (key, state, cohort, scale, number) -> (state, info), compiled.
    """

    def advance(key: Any, state: State, cohort: Cohort, scale: Any, number: Any) -> Any:
        def lie(key: Any, before: Params, after: Params, ids: Any) -> Params:
            told = jax.tree.map(lambda x: (x * scale + number).astype(x.dtype), after)
            return tree.choose(ids == LIAR, told, after)

        algorithm = factory(shallow(uplink=lie), **options)
        return rounds.cohort_round(algorithm, key, state, cohort)

    return jax.jit(advance)


def honest_round(factory: AlgorithmFactory, *given: Any) -> tuple[State, Info]:
    """A round of (key, state, cohort) by the program of `round_with_liar`, in which nobody lies."""
    return round_with_liar(factory)(*given, 1.0, 0.0)


def run_together(
    factory: AlgorithmFactory,
    federation: Federation,
    number_of_rounds: int,
    *,
    key: PRNGKey | None = None,
    state: Any = None,
    start: int = 0,
    **options: Any,
) -> tuple[State, Info]:
    """As `run` with all clients, by the program of `round_with_liar`, in which nobody lies.

    So the rules on federations of one form need one program of a round.

    Args:
      factory: of the method.
      federation: of `C` clients.
      number_of_rounds: how many.
      key: as in `run`.
      state: as in `run`.
      start: as in `run`.
      options: of the method.

    Returns:
      The state, and the info of each round [T, ...].
    """
    if state is None:
        init = jit(with_options(factory, **options).init)
        first_key = init_key() if key is None else jax.random.fold_in(key, 10**6)
        state = init(first_key, federation.train)
    key = run_key() if key is None else key
    everybody = cohort_of(federation, np.arange(federation.train.mask.shape[0]))
    infos = []
    for number in range(start, start + number_of_rounds):
        cohort = everybody._replace(round=number)
        # The key that `make_rounds` gives this round.
        round_key, _ = rounds.draw_cohort(full(len(everybody.ids)), key, jnp.asarray(number))
        state, info = round_with_liar(factory, **options)(round_key, state, cohort, 1.0, 0.0)
        infos.append(info._replace(trained=None))
    return state, jax.tree.map(lambda *x: np.stack(x), *infos)


# The programs of `evaluate_deployed`, by how a client predicts and the task.
_SCORES: dict[tuple, Callable] = {}


def evaluate_deployed(
    algorithm: Algorithm, task: Task, data: Federation, models: Params
) -> evaluate.Evaluation:
    """The scores of the models that all clients deploy, before and after fine-tuning.

    The program is the same for all methods whose clients predict with the model alone.

    Args:
      algorithm: says how a client predicts.
      task: says how it is fine-tuned.
      data: of all clients.
      models: of `deployed`.
    """
    known = (algorithm.apply, algorithm.predict, algorithm.recall, task)
    if known not in _SCORES:
        _SCORES[known] = jax.jit(evaluate.make_evaluate_models(algorithm, task))
    return _SCORES[known](quick_key(0), data, models, np.arange(data.train.mask.shape[0]))


def deployed(
    algorithm: Algorithm, state: State, clients: int, data: Federation | None = None
) -> Params:
    """The deployed models of all clients; the data are for methods that look at them to deploy."""
    parts: Any = (None, None) if data is None else (data.train, data.val)
    everybody: Any = np.arange(clients)
    return jit(algorithm.models)(state, Cohort(everybody, *parts))


def predictors(algorithm: Algorithm, state: State, train: Dataset) -> PyTree:
    """The first argument of `apply` when clients predict: their models, or what they recall."""
    everybody: Any = np.arange(train.mask.shape[0])
    models = jit(algorithm.models)(state, Cohort(everybody, train, train))
    return models if algorithm.recall is None else jit(jax.vmap(algorithm.recall))(models, train)


def between(weights: PyTree) -> np.ndarray:
    """The largest weight of each other client in any part of the model [T, M, M]."""
    largest = functools.reduce(np.maximum, jax.tree.leaves(weights))
    return largest * (1 - np.eye(largest.shape[-1]))[None]
