"""What may happen to a model on its way to the server: functions `(key, before, after, ids) -> received`."""

import jax
from jaxtyping import Array, Int

from jaxfl.types import Params, PRNGKey, Uplink
from jaxfl.uplink.attacks import ATTACKS, FLIPPED, attack, malicious_clients
from jaxfl.uplink.compression import Compression, quantise, top_k
from jaxfl.uplink.privacy import gaussian

__all__ = [
    "ATTACKS",
    "FLIPPED",
    "Compression",
    "attack",
    "chain",
    "gaussian",
    "malicious_clients",
    "quantise",
    "top_k",
]

FURTHER = (
    2**31
)  # beyond every client's id: keys of the links of a chain are not those of its clients


def chain(*uplinks: Uplink) -> Uplink:
    """The uplinks one after the other, each on what the one before made of the models; honest without any.

    In the order of the world: an attack is what a client has in place of its model, so it comes
    first; then clipping and noise; compression is last. The first link draws what it would draw
    alone.
    """

    def uplink(key: PRNGKey, before: Params, after: Params, ids: Int[Array, "m"]) -> Params:
        for place, link in enumerate(uplinks):
            after = link(
                jax.random.fold_in(key, FURTHER + place) if place else key, before, after, ids
            )
        return after

    return uplink
