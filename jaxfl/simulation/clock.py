"""A virtual clock: how long clients take for a round, who arrives when, and how late a round ends.

The order in which clients arrive depends on how long they take and not on what they learn.
Therefore the cohorts of an asynchronous run are known before it begins: `arrivals` computes them on
the host, and `participation.schedule` makes a participation of them, on which any method runs whose
clients train from what they have received last.
"""

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from jaxfl.core.errors import check
from jaxfl.core.npy import read_npy
from jaxfl.core.plain_array import plain_array

LONGEST = 1e30  # so that the times of many rounds can be added


def log_normal(clients: int, sigma: float, seed: int = 0) -> Float[np.ndarray, "c"]:
    """The time that each client takes for a round, drawn from a log-normal distribution.

    The unit is the median of the distribution. At sigma .5 a client in six takes more than 1.6
    times as long as the median, at sigma 1 more than 2.7 times.

    Args:
      clients: C.
      sigma: standard deviation of the logarithm; at 0 all clients take 1.
      seed: of the draw.

    Returns:
      Durations [C].

    Example:
      >>> log_normal(3, sigma=0.0).tolist()
      [1.0, 1.0, 1.0]
      >>> durations = log_normal(10_000, sigma=1.0)
      >>> float((durations < 1).mean().round(1))
      0.5
    """
    return np.exp(sigma * np.random.default_rng(seed).standard_normal(clients))


def given_durations(durations: str | ArrayLike, clients: int) -> Float[np.ndarray, "c"]:
    """The time that each client takes for a round, from an array or a NumPy file of that name.

    Args:
      durations: positive numbers [C] in any unit, or the path of a file (.npy) with them.
      clients: C.

    Raises:
      InputError: there is no such file, or not one positive number for each client in it.

    Example:
      >>> given_durations([1, 2, 2.5], clients=3).tolist()
      [1.0, 2.0, 2.5]
      >>> given_durations([1, 0], clients=2)
      Traceback (most recent call last):
      jaxfl.core.errors.InputError: the durations have shape (2,) and type ..., ...
    """
    source = "the durations"
    if isinstance(durations, str):
        source = f"the durations in {durations}"
        durations = read_npy(durations, "the durations")
    array = plain_array(durations, "durations")
    numbers = array.dtype.kind in "iuf" and array.size > 0
    fit = numbers and array.shape == (clients,) and bool(((array > 0) & (array <= LONGEST)).all())
    ends = f", from {array.min()} to {array.max()}" if numbers else ""
    check(
        fit,
        f"{source} have shape {array.shape} and type {array.dtype}{ends}: expected a positive "
        f"number of at most {LONGEST:g} for each of the {clients} clients",
    )
    return array.astype(np.float64)


def arrivals(
    durations: ArrayLike, buffer: int, rounds: int
) -> tuple[Int[np.ndarray, "t m"], Float[np.ndarray, "t"]]:
    """Who arrives at the server in each of its steps, and when, if nobody waits for all clients.

    All clients begin to train at time 0. As soon as M of them have arrived, the server takes a
    step, and these M begin anew from its new model; the others go on training. Of clients that
    arrive at the same time, those with smaller ids come first. More rounds have the same first
    steps.

    Args:
      durations: the time that each client takes for a round [C].
      buffer: M, the number of arrivals for which the server waits.
      rounds: T, the number of steps.

    Returns:
      ids [T, M] in the order of their arrival, for `participation.schedule`, and the times of the
      steps [T].

    Raises:
      InputError: the buffer is smaller than one client or larger than all.

    Example:
      >>> ids, times = arrivals([1.0, 2.0, 10.0], buffer=1, rounds=4)
      >>> ids.ravel().tolist(), times.tolist()
      ([0, 0, 1, 0], [1.0, 2.0, 2.0, 3.0])
    """
    durations = np.asarray(durations, np.float64)
    check(
        1 <= buffer <= durations.size,
        f"a buffer of {buffer} clients: expected 1 to {durations.size}, the number of clients",
    )
    # When each client arrives next; one that has arrived and was not taken keeps its time.
    arrival = durations.copy()
    ids = np.empty((rounds, buffer), np.int32)
    times = np.empty(rounds)
    for number in range(rounds):
        first = np.argsort(arrival, kind="stable")[:buffer]
        now = arrival[first[-1]]
        ids[number] = first
        times[number] = now
        arrival[first] = now + durations[first]
    return ids, times


def waiting(
    ids: ArrayLike, durations: ArrayLike, start: ArrayLike = 0.0
) -> Float[np.ndarray, "*s t"]:
    """When synchronous rounds end: each takes as long as the slowest client of its cohort.

    Args:
      ids: the cohorts of the rounds [T, M], with several seeds [S, T, M].
      durations: the time that each client takes for a round [C].
      start: when the first of these rounds begins, with several seeds [S] or the same for all.

    Returns:
      Times [T], with several seeds [S, T].

    Example:
      >>> waiting([[0, 1], [0, 2]], durations=[1.0, 2.0, 10.0]).tolist()
      [2.0, 12.0]
    """
    slowest = np.asarray(durations, np.float64)[np.asarray(ids)].max(axis=-1)
    first = np.broadcast_to(np.asarray(start, np.float64), slowest.shape[:-1])[..., None]
    # One after the other, so that the times of rounds in two pieces have the same bits.
    return np.add.accumulate(np.concatenate([first, slowest], axis=-1), axis=-1)[..., 1:]
