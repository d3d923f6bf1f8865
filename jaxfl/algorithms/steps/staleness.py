"""Clients that arrive late: the model that each has downloaded, and what staleness costs it."""

from typing import Literal, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxfl.core import tree
from jaxfl.core.options import checked
from jaxfl.core.types import Params, Scalar

Discount = Literal["constant", "polynomial", "hinge"]


class Download(NamedTuple):
    """The model that each client has received last, from which it trains, and its version."""

    # [C, ...]
    model: Params
    # [C] how many updates of the server's model it contains
    version: Int[Array, "*c"]


def download(model: Params, version: Int[Array, ""], clients: int) -> Download:
    """What clients hold that have received one model of the server.

    Args:
      model: the server's.
      version: how many updates it contains.
      clients: how many receive it.

    Example:
      >>> result = download(jnp.array([1.0, 2.0]), jnp.array(7), clients=3)
      >>> result.model.shape, result.version.tolist()
      ((3, 2), [7, 7, 7])
    """
    return Download(tree.broadcast(model, clients), tree.broadcast(version, clients))


@checked
def discount(
    staleness: Int[Array, "*m"], form: Discount, a: Scalar, b: Scalar
) -> Float[Array, "*m"]:
    """What an update counts whose start is stale, s(d) in (0, 1], with s(0) = 1.

    The forms are those of Xie et al., "Asynchronous Federated Optimization", 2019, section 5.2,
    https://arxiv.org/abs/1903.03934:

    - constant: s(d) = 1.
    - polynomial: s(d) = (d + 1)^-a. FedBuff's 1 / sqrt(1 + d) is that of a = 1/2.
    - hinge: s(d) = 1 up to d = b, then 1 / (a (d - b) + 1).

    Args:
      staleness: d, how many updates the server's model has had since the start was downloaded.
      form: constant, polynomial or hinge.
      a: the exponent, or the slope of the hinge; unused if constant.
      b: staleness that the hinge does not count.

    Example:
      >>> discount(jnp.array([0, 3]), "polynomial", a=0.5, b=0.0).tolist()
      [1.0, 0.5]
      >>> discount(jnp.array([4, 6]), "hinge", a=0.5, b=4.0).tolist()
      [1.0, 0.5]
    """
    d = staleness.astype(jnp.float32)
    if form == "polynomial":
        return (d + 1) ** (-a)
    if form == "hinge":
        return 1 / (a * jnp.maximum(d - b, 0) + 1)
    return jnp.ones_like(d)


def staleness_metrics(
    staleness: Int[Array, "m"], reported: Bool[Array, "m"]
) -> dict[str, Float[Array, ""]]:
    """The mean and the largest staleness of the clients that reported; 0 if there are none.

    Args:
      staleness: of each client of a round [M].
      reported: which of them count [M].

    Example:
      >>> metrics = staleness_metrics(jnp.array([0, 4, 9]), jnp.array([True, True, False]))
      >>> {name: float(value) for name, value in metrics.items()}
      {'staleness': 2.0, 'largest_staleness': 4.0}
    """
    delays = jnp.where(reported, staleness, 0).astype(jnp.float32)
    mean = delays.sum() / jnp.maximum(reported.sum(), 1)
    return {"staleness": mean, "largest_staleness": delays.max()}


def shares(counts: Float[Array, "m"]) -> Float[Array, "m"]:
    """What each client counts, in proportion to the sum; 1 / M if nobody counts.

    Example:
      >>> shares(jnp.array([0.25, 0.25, 0.0])).tolist()
      [0.5, 0.5, 0.0]
    """
    total = counts.sum()
    return jnp.where(total > 0, counts / jnp.where(total > 0, total, 1.0), 1 / counts.size)
