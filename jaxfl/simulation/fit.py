"""The loop that programs write around `make_rounds` and `make_evaluate`, in memory."""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import jax
import numpy as np
from jaxtyping import PyTree

from jaxfl.core.errors import check
from jaxfl.core.options import SEED, checked
from jaxfl.core.types import Algorithm, Federation, Info, Loss, Participation, State, Task, Work
from jaxfl.simulation.evaluate import make_evaluate
from jaxfl.simulation.evaluation import Evaluation, by_stage
from jaxfl.simulation.metrics import Metric
from jaxfl.simulation.participation import full
from jaxfl.simulation.rounds import check_finite, make_rounds
from jaxfl.simulation.statistics import Statistics, summarise


class Point(NamedTuple):
    """What is known after some rounds."""

    # how many rounds there have been
    round: int
    state: State
    # of the rounds since the last point [T, ...]
    info: Info
    # of all clients; None without a task
    evaluation: Evaluation | None


class FitResult(NamedTuple):
    """What `fit` returns."""

    state: State
    # the last round's mixing weights (receiver, sender) [M, M], one matrix or one a part
    weights: PyTree
    # [T] the mean training loss of the clients of each round
    loss: np.ndarray
    # [E] after how many rounds there was an evaluation
    rounds: np.ndarray
    # the scores of each client at each evaluation [E, C]; None without a task
    scores: Evaluation | None
    # [C] the numbers of examples of the clients
    sizes: np.ndarray

    def curves(self, split: Literal["val", "test"] = "test") -> dict[str, list[Statistics]]:
        """The statistics over the clients at each evaluation, by stage, see `jaxfl.summarise`.

        Args:
          split: of the examples.

        Example:
          >>> federation = jaxfl.data.ridge(0, dim=3).federation
          >>> task = jaxfl.regression(jaxfl.models.linear(), np.zeros(3), steps=5)
          >>> run = fit(jaxfl.algorithms.fedavg(task), federation, 4, task=task, eval_every=2)
          >>> sorted(run.curves()["deployed"][-1])
          ['mean', 'std', 'weighted', 'worst10']
        """
        if self.scores is None:
            return {}
        return {
            stage: [summarise(row, self.sizes) for row in getattr(scores, split)]
            for stage, scores in by_stage(self.scores).items()
        }


@checked
def fit(
    algorithm: Algorithm,
    federation: Federation,
    rounds: int,
    *,
    task: Task | None = None,
    eval_every: int | None = None,
    callback: Callable[[Point], Any] | None = None,
    stop: Callable[[Point], Any] | None = None,
    participation: Participation | None = None,
    seed: Annotated[int, SEED] = 0,
    state: Any = None,
    start: int = 0,
    after: Literal["fine_tuned", "none"] = "none",
    metrics: Sequence[str] | Mapping[str, Metric] = (),
    work: Work | None = None,
    lost: Loss | None = None,
    diverged: Literal["raise", "leave out"] = "raise",
) -> FitResult:
    """Runs rounds with evaluations in between, and keeps what is small.

    The bits are those of `make_rounds` and `make_evaluate` with the key of the seed, which is the
    key of the initial state too. Rounds run in segments of `eval_every` on the host, so this
    function cannot be traced: under `jax.vmap` and `jax.grad` call `make_rounds`. Runs with files,
    checkpoints and several seeds are those of `jaxfl.experiment`.

    Args:
      algorithm: what happens in a round.
      federation: the data of all clients.
      rounds: how many, at most.
      task: has the score; None: nothing is evaluated.
      eval_every: rounds from one evaluation to the next; the last round has one too. None: only it.
      callback: is called with each `Point`.
      stop: says at each `Point` whether to stop.
      participation: who takes part; None: all clients.
      seed: of all random numbers.
      state: to go on from; None: the initial one.
      start: the number of the first round.
      after: the models after local training that are scored too, see `make_evaluate`.
      metrics: what the models are scored by, see `make_evaluate`.
      work: see `make_rounds`.
      lost: see `make_rounds`.
      diverged: "raise": an error if an update is not finite; "leave out": its client is left out of
        the round.

    Raises:
      Diverged: an update of a client was not finite, unless it is to be left out.
      InputError: see `make_rounds`; or `rounds` or `eval_every` is below 1.

    Example:
      >>> federation = jaxfl.data.ridge(0, dim=3).federation  # of 150 clients
      >>> task = jaxfl.regression(jaxfl.models.linear(), np.zeros(3), steps=5)
      >>> run = fit(jaxfl.algorithms.fedavg(task), federation, 5, task=task, eval_every=2)
      >>> run.rounds.tolist(), run.loss.shape, run.weights.shape
      ([2, 4, 5], (5,), (150, 150))
      >>> run.scores.deployed.test.shape
      (3, 150)
    """
    every = rounds if eval_every is None else eval_every
    check(rounds >= 1, f"rounds is {rounds}: expected at least 1")
    check(every >= 1, f"eval_every is {every}: expected at least 1 round, or None")
    clients = federation.train.mask.shape[0]
    advance = make_rounds(algorithm, participation or full(clients), work=work, lost=lost)
    evaluate = (
        None if task is None else make_evaluate(algorithm, task, after=after, metrics=metrics)
    )
    key = jax.random.key(seed)
    if state is None:
        state = algorithm.init(key, federation.train)
    points: list[tuple[int, Evaluation | None]] = []
    losses = []
    weights = None
    end = start + rounds
    done = start
    while done < end:
        length = min(every, end - done)
        state, (info, ids) = advance(key, federation, state, done, length)
        if diverged == "raise":
            check_finite(info, ids, done)
        done += length
        losses.append(np.asarray(info.loss).mean(axis=1))
        weights = jax.tree.map(lambda x: np.asarray(x[-1]), info.weights)
        scores = None
        if evaluate is not None:
            everybody = np.arange(clients)
            scores = jax.tree.map(
                np.asarray, evaluate(key, federation, state, everybody, round=done - 1)
            )
        points.append((done, scores))
        point = Point(done, state, info, scores)
        if callback is not None:
            callback(point)
        if stop is not None and stop(point):
            break
    evaluations = [scores for _, scores in points if scores is not None]
    together = jax.tree.map(lambda *x: np.stack(x), *evaluations) if evaluations else None
    return FitResult(
        state,
        weights,
        np.concatenate(losses),
        np.array([number for number, _ in points]),
        together,
        np.asarray(federation.sizes),
    )
