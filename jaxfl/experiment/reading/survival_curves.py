"""Curves of who is free of the event: of a model's hazards, of Cox's risks, and of the data."""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from jaxfl.core.errors import check
from jaxfl.experiment.reading.examples import Examples
from jaxfl.simulation.survival_scores import free_at, still_free


def curves_of_hazards(
    logits: np.ndarray, ends: Sequence[float], times: Sequence[float]
) -> np.ndarray:
    """The probabilities to be free of the event at some times [B, T], of hazards.

    Args:
      logits: of the hazards [B, K].
      ends: of the bins [K]; in a bin the hazard is constant.
      times: from 0 to the last end.

    Raises:
      InputError: a time is beyond.

    Example:
      >>> curves_of_hazards(np.zeros((1, 2)), (1.0, 2.0), [0.0, 2.0]).tolist()
      [[1.0, 0.25]]
    """
    _check_times(times, ends[-1])
    return np.stack(
        [np.asarray(free_at(jnp.asarray(logits), ends, time)) for time in times], axis=1
    )


def curves_of_risks(
    risks: np.ndarray, known: np.ndarray, examples: Examples, times: Sequence[float]
) -> np.ndarray:
    """The same of log risks, by Breslow's cumulative hazard on examples whose times are known.

    S(t | x) = exp(-H(t) exp(risk)), where H grows at each time of an event by the events' weight
    over the sum of exp(risk) of those at risk.

    Args:
      risks: of the examples to predict [B].
      known: log risks of the examples with times [n].
      examples: these.
      times: from 0 to their last time.

    Raises:
      InputError: a time is beyond, or no event is known.

    Example:
      >>> known = Examples(None, np.array([[1.0, 1.0], [2.0, 0.0]]), np.ones(2))
      >>> curves_of_risks(np.zeros(1), np.zeros(2), known, [1.0]).round(4).tolist()  # e^-1/2
      [[0.6065]]
    """
    time, event = np.asarray(examples.y, float).T
    weight = np.asarray(examples.mask, float)
    check(bool((event > 0).any()), "the client has no event in training: its curves are not known")
    _check_times(times, time.max())
    # Relative to the highest one, so that no exponential overflows.
    top = float(np.max(known))
    relative = weight * np.exp(np.asarray(known, float) - top)
    at_events = np.unique(time[event > 0])
    steps = np.array(
        [weight[(time == t) & (event > 0)].sum() / relative[time >= t].sum() for t in at_events]
    )
    hazard = np.array([steps[at_events <= t].sum() for t in times])
    with np.errstate(over="ignore"):
        return np.exp(-hazard[None] * np.exp(np.asarray(risks, float) - top)[:, None])


def _check_times(times: Sequence[float], last: float) -> None:
    wrong = [time for time in times if not 0 <= time <= last]
    check(
        not wrong,
        f"the time {', '.join(map(str, wrong[:1]))} is beyond those of the data: expected 0 to "
        f"{last:g}",
    )


def kaplan_meier(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The times at which somebody has the event or is censored, and who is free of it then.

    Args:
      y: times and events [n, 2].

    Returns:
      Times that grow, from 0, and the estimates there, from 1.

    Example:
      >>> times, free = kaplan_meier(np.array([[1.0, 1.0], [2.0, 0.0]]))
      >>> times.tolist(), free.tolist()
      ([0.0, 1.0, 2.0], [1.0, 0.5, 0.5])
    """
    times, places = np.unique(y[:, 0], return_index=True)
    own = still_free(jnp.asarray(y), jnp.ones(len(y)))
    return np.concatenate([[0.0], times]), np.concatenate([[1.0], np.asarray(own)[places]])
