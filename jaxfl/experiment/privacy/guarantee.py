"""The privacy budget of a run: what noise guarantees."""

import math
from typing import Literal, NamedTuple, TypedDict

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Int

from jaxfl.experiment.config.hints import value_of
from jaxfl.experiment.config.training_fields import TrainingOptions
from jaxfl.experiment.privacy.audit import Audit, Work
from jaxfl.training.gradients import count_batches

SAID = (
    "numbers of examples and who takes part are known to all; the seed, from which the noise is "
    "drawn, to nobody"
)
CLIENT = (
    "epsilon bounds what the uploads of one client tell of its data, whatever other data it might "
    "have in place"
)
EXAMPLE = (
    "epsilon bounds what the uploads of one client tell of one of its training examples, another "
    "one in its place"
)
PLAIN = (
    "no amplification: neither the sampling of clients nor the shuffling of batches is taken to "
    "hide anything"
)


class Protection(NamedTuple):
    """What clipping and noise are to protect."""

    unit: Literal["client", "example"]
    clip: float  # largest L2 norm of the update that a client sends, or of an example's gradient
    noise: float  # standard deviation in units of `clip`; 0 for none
    delta: float  # of the guarantee (epsilon, delta)


class Exposure(NamedTuple):
    """How often noise alone protects a client, or its worst example, from the server."""

    protection: Protection
    joining: Int[np.ndarray, "*c"]  # before the first round [C], with several seeds [S, C]
    round: Int[np.ndarray, "*c"]  # in a round that the client takes part in
    sealed: bool  # the server learns of it in no other way


def expose(
    protection: Protection,
    audit: Audit,
    mask: Bool[np.ndarray, "*c n"],
    training: TrainingOptions,
) -> Exposure:
    """Counts uploads of a client, or the batches that one of its examples is in.

    Args:
      protection: by noise on uploads, or on gradients.
      audit: of the method.
      mask: of the training examples [C, n], with several seeds [S, C, n].
      training: the options of local training.
    """
    steps, epochs = training.local_steps, training.local_epochs
    amount = {"steps": value_of(steps)} if epochs is None else {"epochs": epochs}

    def count(work: Work) -> np.ndarray:
        if protection.unit == "client":
            return np.full(mask.shape[:-1], len(work.uploads))
        return count_releases(work, mask, training.batch_size, amount)

    return Exposure(protection, count(audit.joining), count(audit.round), audit.sealed)


def count_releases(
    work: Work, mask: Bool[np.ndarray, "*c n"], batch_size: int, amount: dict[str, int]
) -> Int[np.ndarray, "*c"]:
    """The batches of all trainings that an example is in, one of each epoch that is begun.

    Args:
      work: what a client does.
      mask: of the training examples [C, n], with several seeds [S, C, n].
      batch_size: of local training.
      amount: of a training that has none of its own: its `steps` or its `epochs`.
    """
    flat = mask.reshape(-1, mask.shape[-1])
    epoch = np.maximum(-(-np.count_nonzero(flat, axis=1) // batch_size), 1)
    total = np.zeros(len(flat), int)
    for changes in work.fits:
        length = {name: changes[name] for name in ("steps", "epochs") if name in changes}
        batches = np.asarray(count_batches(jnp.asarray(flat), batch_size, **(length or amount)))
        total += -(-batches // epoch)
    return total.reshape(mask.shape[:-1])


class Privacy(TypedDict):
    """What may be said of a run."""

    unit: Literal["client", "example"]  # that is protected
    clip: float
    noise: float
    delta: float
    epsilon: float | None  # None: there is no bound
    releases: int
    assumes: list[str]


def claim(
    exposure: Exposure, ids: list[np.ndarray], clients: int, *, stops: bool = False
) -> Privacy:
    """What may be said of a run: `privacy` of `summary.json`.

    Args:
      exposure: of its clients.
      ids: of the clients of each round, in pieces [S, L, M].
      clients: C.
      stops: whether scores on validation data, which nothing hides, end the run (`--stop-after`).
    """
    unit, clip, noise, delta = exposure.protection
    example = unit == "example"
    together = np.concatenate(ids, axis=1)
    # [S, C]
    rounds = np.stack([np.bincount(seed.ravel(), minlength=clients) for seed in together])
    worst = int((np.atleast_2d(exposure.joining) + np.atleast_2d(exposure.round) * rounds).max())
    bound, assumes = None, [EXAMPLE if example else CLIENT, PLAIN, SAID]
    if noise == 0:
        assumes = ["no guarantee: clipping without noise hides nothing"]
    elif stops:
        assumes = [
            "no guarantee: when the run ends depends on scores on validation data, to which no "
            "noise is added"
        ]
    elif not exposure.sealed:
        channel = (
            "its noised training"
            if example
            else "noised uploads, or measures an update from what it keeps back"
        )
        assumes = [
            f"no guarantee: the server learns of a client's data in another way than by {channel}"
        ]
    else:
        bound = epsilon(noise, worst, delta)
    return {
        "unit": unit,
        "clip": clip,
        "noise": noise,
        "delta": delta,
        "epsilon": bound,
        "releases": worst,
        "assumes": assumes,
    }


# At this argument the density of a normal variable is the smallest that a float holds.
FARTHEST = 38.0


def epsilon(noise: float, releases: int, delta: float) -> float:
    """The smallest epsilon of so many Gaussian mechanisms, one upon the other, for this delta.

    Data are replaced by other data, so a clipped vector moves by twice the clipping norm S, and the
    noise has standard deviation `noise` times S. Together the T releases are one Gaussian mechanism
    whose means lie mu = 2 sqrt(T) / noise standard deviations apart (Dong, Roth and Su, 2022,
    corollary 3.3, https://arxiv.org/abs/1905.02383). It is (epsilon, delta)-private if and only if
    Phi(mu / 2 - epsilon / mu) - exp(epsilon) Phi(-mu / 2 - epsilon / mu) <= delta (Balle and Wang,
    2018, theorem 8, https://arxiv.org/abs/1805.06530).

    Args:
      noise: standard deviation in units of the clipping norm, above 0.
      releases: how many, T.
      delta: probability that the bound fails, in (0, 1).

    Example:
      >>> round(epsilon(4.0, 1, 1e-5), 2)
      1.99
    """
    from scipy.special import erfcx, ndtr

    if releases == 0:
        return 0.0
    mu = 2 * math.sqrt(releases) / noise

    def ratio(x: float) -> float:
        """Phi(-x) over the density at x, which neither overflows nor vanishes for x >= 0."""
        return math.sqrt(math.pi / 2) * float(erfcx(x / math.sqrt(2)))

    def failure(x: float) -> float:
        """The left side of the theorem at x = epsilon / mu - mu / 2.

        exp(epsilon) times the density at x + mu is the density at x, so that epsilon, whose
        exponential may overflow, drops out.
        """
        density = math.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
        if x < 0:
            return float(ndtr(-x)) - density * ratio(x + mu)
        return density * (ratio(x) - ratio(x + mu))

    # The failure falls in x. At the least x epsilon is 0.
    low, high = -mu / 2, FARTHEST
    if failure(low) <= delta:
        return 0.0
    while low < (middle := (low + high) / 2) < high:
        if failure(middle) > delta:
            low = middle
        else:
            high = middle
    return mu * (high + mu / 2)
