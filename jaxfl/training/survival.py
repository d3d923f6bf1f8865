"""Losses of times to an event, of which some are not seen: Cox's and discrete hazards.

Targets are pairs [B, 2]: a time, and 1 where the event happened then, 0 where it had not happened
so far (a censored time).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from jaxfl.core.batch_function import of_batch
from jaxfl.core.errors import check
from jaxfl.core.options import checked

Ties = Literal["efron", "breslow"]
Pairs = Float[Array, "b 2"]
Weights = Float[Array, "b"]
# The logarithm of nothing, which stays a number in sums and derivatives.
NOTHING = -1e30


@checked
def cox(ties: Ties = "efron") -> Callable:
    """The negative logarithm of Cox's partial likelihood, as the errors of the examples of a batch.

    A model predicts the logarithm of a relative risk. The error of an event is that of its place
    among the examples of the batch whose times are not shorter; that of a censored time is 0. So
    the error of an example depends on the batch, and the mean is over all its examples, not over
    its events.

    Cox, Regression models and life-tables, J. R. Stat. Soc. B, 1972, equation 12; ties: Efron, The
    efficiency of Cox's likelihood function for censored data, JASA, 1977, and Breslow, Covariance
    analysis of censored survival data, Biometrics, 1974. With weights: Therneau and Grambsch,
    Modeling survival data, 2000, section 3.3, as in R's `coxph`.

    Args:
      ties: of events at one time: in each order equally ("efron"), or each before all others of
        them ("breslow").

    Returns:
      (log risk [B, 1], pairs [B, 2], weights [B]) -> errors [B].

    Example:
      >>> y = jnp.array([[3.0, 1.0], [5.0, 0.0], [2.0, 0.0]])
      >>> print(cox()(jnp.zeros((3, 1)), y, jnp.ones(3)).round(3))  # log 2: two were there
      [0.693 0.    0.   ]
    """
    return _COX[ties]


def _cox(efron: bool, prediction: Array, y: Array, weights: Array | None) -> Array:
    check(
        y.ndim == 2 and y.shape[1] == 2 and prediction.size == len(y),
        f"the targets have shape {y.shape} and the predictions {prediction.shape}: expected pairs "
        "(time, event), and a log risk for each",
    )
    prediction, y = jnp.asarray(prediction), jnp.asarray(y)
    weights = jnp.ones(len(y)) if weights is None else jnp.asarray(weights, jnp.float32)
    counts = weights > 0
    order = jnp.argsort(jnp.where(counts, y[:, 0], -jnp.inf), descending=True)
    # From the longest time to the shortest; what does not count comes last.
    weight, real = weights[order], counts[order]
    risk = jnp.where(real, prediction.reshape(-1)[order], 0.0)
    time, event = jnp.where(real, y[order, 0], -1.0), real & (y[order, 1] > 0)
    log_risk = risk + jnp.log(jnp.where(real, weight, 1.0)) + jnp.where(real, 0.0, NOTHING)

    # Examples of one time are neighbours.
    place = jnp.arange(len(y))
    begins = jnp.append(True, time[1:] != time[:-1])
    group = jnp.cumsum(begins) - 1
    last = jax.ops.segment_max(place, group, num_segments=len(y))[group]
    at_risk = lax.cumlogsumexp(log_risk)[last]
    if efron:
        # The k-th of d tied events leaves k / d of each of them out.
        deaths = jax.ops.segment_sum(event.astype(jnp.float32), group, num_segments=len(y))[group]
        before = jnp.cumsum(event) - event
        first = jax.ops.segment_min(before, group, num_segments=len(y))[group]
        share = jnp.where(event, before - first, 0) / jnp.maximum(deaths, 1)
        tied = jnp.where(event, log_risk, NOTHING)
        top = jax.ops.segment_max(lax.stop_gradient(tied), group, num_segments=len(y))
        total = jax.ops.segment_sum(jnp.exp(tied - top[group]), group, num_segments=len(y))
        of_tied = top[group] + jnp.log(jnp.maximum(total, 1e-37))[group]
        part = jnp.where(share > 0, share * jnp.exp(jnp.minimum(of_tied - at_risk, 0.0)), 0.0)
        logs = jnp.where(event, at_risk + jnp.log1p(-part), 0.0)
        mean = jax.ops.segment_sum(logs, group, num_segments=len(y))[group] / jnp.maximum(deaths, 1)
    else:
        mean = at_risk
    errors = jnp.where(event, mean - risk, 0.0)
    return jnp.zeros(len(y), errors.dtype).at[order].set(errors)


def _efron(prediction: Array, y: Pairs, weights: Weights | None = None) -> Float[Array, "b"]:
    return _cox(True, prediction, y, weights)


def _breslow(prediction: Array, y: Pairs, weights: Weights | None = None) -> Float[Array, "b"]:
    return _cox(False, prediction, y, weights)


# The same function in all tasks, so that programs are compiled once.
_COX = {"efron": _efron, "breslow": _breslow}


@dataclass(frozen=True)
class Hazards:
    """The negative log likelihood of discrete hazards: of a model that predicts one for each bin.

    A model predicts the logits of K hazards: the probability of the event in a bin of time, for
    those to whom it has not happened before. Gensheimer and Narasimhan, A scalable discrete-time
    survival model for neural networks, PeerJ, 2019, https://doi.org/10.7717/peerj.6257, equation 2.

    Differs: a censored time counts as survived in the bins that end by then; there in those whose
    middle is before it.

    Attributes:
      ends: of the bins [K], growing. Times beyond the last one are in the last bin.

    Example:
      >>> hazards = Hazards((1.0, 2.0))
      >>> y = jnp.array([[0.5, 1.0], [1.5, 0.0]])
      >>> print(hazards(jnp.zeros((2, 2)), y).round(3))  # log 2 for each bin that is known
      [0.693 0.693]
    """

    ends: tuple[float, ...]

    def __post_init__(self) -> None:
        check(
            len(self.ends) > 0
            and all(a < b for a, b in zip((0.0, *self.ends), self.ends, strict=False)),
            f"bins end at {self.ends!s:.80}: expected growing times above 0",
        )

    def __call__(self, logits: Float[Array, "b k"], y: Pairs) -> Float[Array, "b"]:
        """The errors of examples [B]."""
        check(
            y.ndim == 2 and y.shape[1] == 2 and logits.shape == (len(y), len(self.ends)),
            f"the targets have shape {y.shape} and the predictions {logits.shape}: expected pairs "
            f"(time, event), and {len(self.ends)} logits for each",
        )
        happened, survived = in_bins(y, self.ends)
        errors = jnp.where(survived, jax.nn.softplus(logits), 0.0)
        return (errors + jnp.where(happened, jax.nn.softplus(-logits), 0.0)).sum(axis=1)


def in_bins(y: Array, ends: tuple[float, ...]) -> tuple[Array, Array]:
    """In which bin the event of each example happened, and which bins it is known to survive.

    Args:
      y: times and events [B, 2].
      ends: of the bins [K]; a bin holds its end.

    Returns:
      Booleans [B, K] and [B, K].

    Example:
      >>> happened, survived = in_bins(jnp.array([[1.5, 1.0], [1.5, 0.0]]), (1.0, 2.0))
      >>> happened.tolist(), survived.tolist()
      ([[False, True], [False, False]], [[True, False], [True, False]])
    """
    known = jnp.asarray(ends)[None]
    time, event = jnp.asarray(y)[:, :1], jnp.asarray(y)[:, 1:] > 0
    bins = jnp.arange(known.size)[None]
    place = jnp.minimum((time > known).sum(axis=1, keepdims=True), known.size - 1)
    return event & (bins == place), jnp.where(event, bins < place, time >= known)


@dataclass(frozen=True)
class Minus:
    """A score: an error times -1, equal to that of an equal error, so that programs are shared."""

    error: Callable

    def __call__(
        self, predictions: Any, y: Array, weights: Array | None = None
    ) -> Float[Array, "b"]:
        """The scores of examples [B]."""
        return -of_batch(self.error, predictions, y, weights)


@checked
def ends_of_bins(pairs: np.ndarray, count: int) -> tuple[float, ...]:
    """The ends of bins that hold equally many events each, by quantiles of their times.

    Fewer if events share their times. The last bin ends with the longest time.

    Args:
      pairs: times and events [N, 2].
      count: of the bins.

    Raises:
      InputError: there is no event above time 0.

    Example:
      >>> pairs = np.stack([np.arange(1.0, 9.0), np.ones(8)], axis=1)
      >>> ends_of_bins(pairs, 4)
      (2.75, 4.5, 6.25, 8.0)
    """
    times = pairs[pairs[:, 1] > 0, 0]
    check(bool((times > 0).any()), "no event is seen after time 0: bins need some")
    quantiles = np.quantile(times, np.linspace(0, 1, count + 1)[1:])
    quantiles[-1] = pairs[:, 0].max()
    return tuple(np.unique(quantiles[quantiles > 0]).tolist())
