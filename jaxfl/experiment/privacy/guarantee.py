"""The privacy budget of a run: what noise guarantees, by dp-accounting (the extra `privacy`)."""

from typing import Literal, NamedTuple, TypedDict

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Int

from jaxfl.core.errors import InputError
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
    batch_size: int,
    amount: dict[str, int],
) -> Exposure:
    """Counts uploads of a client, or the batches that one of its examples is in.

    Args:
      protection: by noise on uploads, or on gradients.
      audit: of the method.
      mask: of the training examples [C, n], with several seeds [S, C, n].
      batch_size: of local training.
      amount: of local training: its `steps` or its `epochs`.

    Raises:
      InputError: there is noise, and dp-accounting is not installed.
    """
    if protection.noise:
        # So that a missing package is known before anything is run.
        epsilon(1.0, 0, protection.delta)

    def count(work: Work) -> np.ndarray:
        if protection.unit == "client":
            return np.full(mask.shape[:-1], len(work.uploads))
        return count_releases(work, mask, batch_size, amount)

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


def claim(exposure: Exposure, ids: list[np.ndarray], clients: int) -> Privacy:
    """What may be said of a run: `privacy` of `summary.json`.

    Args:
      exposure: of its clients.
      ids: of the clients of each round, in pieces [S, L, M].
      clients: C.
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


def epsilon(noise: float, releases: int, delta: float) -> float:
    """Epsilon of so many Gaussian mechanisms, one upon the other, by Rényi differential privacy.

    Data are replaced by other data, so a clipped vector moves by twice the clipping norm: the
    mechanism has half the noise multiplier that the noise has in units of that norm.

    Args:
      noise: standard deviation in units of the clipping norm.
      releases: how many.
      delta: probability that the bound fails.

    Raises:
      InputError: dp-accounting is not installed.
    """
    try:
        from dp_accounting import GaussianDpEvent, SelfComposedDpEvent
        from dp_accounting.rdp import RdpAccountant
    except ImportError as error:
        raise InputError(
            f"the privacy budget needs dp-accounting ({error}): install the extra, pip install "
            "'jaxfl[privacy]'"
        ) from error
    if releases == 0:
        return 0.0
    accountant = RdpAccountant()
    accountant.compose(SelfComposedDpEvent(GaussianDpEvent(noise / 2), releases))
    return float(accountant.get_epsilon(delta))
