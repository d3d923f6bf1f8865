"""Shapley values: what each sender is worth to each receiver, over coalitions of all sizes."""

import math
from collections.abc import Iterator
from itertools import combinations
from typing import NamedTuple

import numpy as np

from jaxfl.core.errors import check
from jaxfl.experiment.reading.load import FinishedRun
from jaxfl.experiment.studies.worth import run_coalitions
from jaxfl.simulation.metrics import metric_of

EXACT = 6  # clients at most of which all coalitions are run: 63
MOST = 10  # clients at most


class Step(NamedTuple):
    """A sender joins a coalition of the receiver."""

    receiver: int
    sender: int
    before: frozenset[int]  # the coalition, with the receiver
    share: float  # of all steps of this sender and receiver, by weight


def shapley_values(run: FinishedRun, orders: int = 20, seed: int = 0) -> np.ndarray:
    """What each sender is worth to each receiver [C, C], as tables show scores; NaN for itself.

    The receiver is in every coalition, and its score is what the coalition is worth. A value is the
    mean gain of the receiver where the sender joins the others in a random order, so that those of
    all senders add up to what the receiver gains by the federation beside training alone (Shapley,
    A value for n-person games, 1953). Of at most `EXACT` clients all coalitions are run, else
    those of some orders (Castro, Gomez and Tejada, Computers & Operations Research 36, 2009).

    Args:
      run: whose data set is at hand.
      orders: how many are drawn, where not all coalitions are run.
      seed: of the draws.

    Raises:
      InputError: as `worth.run_coalitions`, or the run has more than `MOST` clients.

    Example:
      >>> values = shapley_values(load("runs/digits"))
      >>> values.shape, bool(np.isnan(values[0, 0]))
      ((5, 5), True)
    """
    clients = run.config.clients or 0
    check(
        1 < clients <= MOST,
        f"the run of {run.directory} has {clients} clients: Shapley values are of 2 to {MOST}",
    )
    some = list(steps(clients, None if clients <= EXACT else orders, seed))
    coalitions = {one.before for one in some} | {one.before | {one.sender} for one in some}
    metric = metric_of(run.summary["measure"], run.class_names, run.ends)
    values: dict[tuple[frozenset[int], int], float] = {}
    for size in range(1, clients + 1):
        members = np.array(sorted(sorted(one) for one in coalitions if len(one) == size))
        scores = run_coalitions(run, members).scores
        for place, ids in enumerate(members.tolist()):
            for position, client in enumerate(ids):
                each = scores[:, place, position].tolist()
                values[frozenset(ids), client] = float(np.mean([*map(metric.shown, each)]))
    result = np.zeros((clients, clients))
    np.fill_diagonal(result, np.nan)
    for receiver, sender, before, share in some:
        gain = values[before | {sender}, receiver] - values[before, receiver]
        result[receiver, sender] += share * metric.sign * gain
    return result


def steps(clients: int, orders: int | None, seed: int = 0) -> Iterator[Step]:
    """The steps over which a Shapley value is the mean.

    Args:
      clients: their number.
      orders: in which senders join, so many drawn at random; None: all of them.
      seed: of the draws.

    Example:
      >>> [(one.sender, sorted(one.before), one.share) for one in steps(3, None)][:4]
      [(1, [0], 0.5), (1, [0, 2], 0.5), (2, [0], 0.5), (2, [0, 1], 0.5)]
    """
    generator = np.random.default_rng(seed)
    for receiver in range(clients):
        senders = [one for one in range(clients) if one != receiver]
        if orders is not None:
            for _ in range(orders):
                order = generator.permutation(senders).tolist()
                for place, sender in enumerate(order):
                    before = frozenset([receiver, *order[:place]])
                    yield Step(receiver, sender, before, 1 / orders)
            continue
        for sender in senders:
            others = [one for one in senders if one != sender]
            for size in range(len(others) + 1):
                # size! (n - 1 - size)! / n! of n senders
                share = 1 / (len(senders) * math.comb(len(others), size))
                for joined in combinations(others, size):
                    yield Step(receiver, sender, frozenset([receiver, *joined]), share)
