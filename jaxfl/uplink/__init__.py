"""What may happen to models on their way to the server: `(key, before, after, ids) -> received`.

May import `core` and `kernels`. A new attack goes to `alone`, or to `together` if
the malicious clients know of each other; a defence to `defences`, a compression to `compression`.
"""

import jax
from jaxtyping import Array, Int

from jaxfl.core.types import Params, PRNGKey, Uplink
from jaxfl.uplink.attacks import ATTACKS, FLIPPED, SCALED, attack, check_scale, malicious_clients
from jaxfl.uplink.compression import Compression, quantise, top_k
from jaxfl.uplink.defences import (
    DEFENCES,
    clip_to_median,
    deduplicate,
    defence_links,
    shorten_sybils,
)
from jaxfl.uplink.privacy import gaussian

__all__ = [
    "ATTACKS",
    "DEFENCES",
    "FLIPPED",
    "SCALED",
    "Compression",
    "attack",
    "chain",
    "check_scale",
    "clip_to_median",
    "deduplicate",
    "defence_links",
    "gaussian",
    "malicious_clients",
    "quantise",
    "shorten_sybils",
    "top_k",
]

# Beyond the id of every client: the key of a link of a chain is not the key of a client.
FIRST_LINK = 2**31


def chain(*uplinks: Uplink) -> Uplink:
    """The uplinks one after the other, each applied to what the one before made of the models.

    The order is that of the world: an attack replaces a client's model, so it comes first; then
    clipping and noise, then compression; what the server does before it looks at the models, its
    defences, comes last. The first uplink draws the random numbers that it would draw alone.
    Without any uplink, models arrive as they were sent.

    Example:
      >>> uplink = chain(attack("reverse", np.array([True, False])), gaussian(clip=1.0, noise=0.0))
      >>> after = jnp.array([[3.0], [3.0]])
      >>> uplink(jax.random.key(0), jnp.zeros((2, 1)), after, jnp.arange(2)).tolist()
      [[-1.0], [1.0]]
    """

    def uplink(key: PRNGKey, before: Params, after: Params, ids: Int[Array, "m"]) -> Params:
        for place, link in enumerate(uplinks):
            link_key = jax.random.fold_in(key, FIRST_LINK + place) if place else key
            after = link(link_key, before, after, ids)
        return after

    return uplink
