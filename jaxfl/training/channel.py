"""What the server receives of the models that clients send, and who has reported."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from jaxfl.core import tree
from jaxfl.core.types import Params, PRNGKey, Uplink


def faithful(key: PRNGKey, before: Params, after: Params, ids: Int[Array, "m"]) -> Params:
    """The uplink that changes nothing: the server receives what the clients trained.

    Example:
      >>> faithful(jax.random.key(0), jnp.zeros((2, 1)), jnp.ones((2, 1)), jnp.arange(2)).tolist()
      [[1.0], [1.0]]
    """
    return after


class Channel(NamedTuple):
    """An `Upload` in two halves: what a client does before it sends, and what the server does then.

    An upload counts as not finite if a number in it is NaN, infinite or beyond 1e15: one client
    that sends 3e38 would make a server infinite that sums or squares what it receives.

    What is lost is lost after the uplink, and the server's defence sees only what arrives. In
    simulation it is called as an `Upload`, which applies both; `jaxfl.serve` gives each side its
    half.

    Example:
      >>> channel = Channel(faithful)
      >>> channel.arrive(jax.random.key(0), jnp.zeros((1, 1)), jnp.ones((1, 1)), jnp.arange(1))[1]
      Array([ True], dtype=bool)
    """

    # what happens to an upload until it is sent
    uplink: Uplink
    # what the server does before it looks at the uploads
    defence: Uplink = faithful

    def __call__(
        self,
        key: PRNGKey,
        before: Params,
        after: Params,
        ids: Int[Array, "m"],
        lost: Bool[Array, "m"] | None = None,
    ) -> tuple[Params, Bool[Array, "m"]]:
        """(received [M], reported [M]), see `Upload`."""
        uploads = self.uplink(key, before, after, ids)
        if lost is not None:
            uploads = tree.choose(lost, nothing_of(uploads), uploads)
        return self.arrive(key, before, uploads, ids)

    def arrive(
        self, key: PRNGKey, before: Params, uploads: Params, ids: Int[Array, "m"]
    ) -> tuple[Params, Bool[Array, "m"]]:
        """The server's half: (received [M], reported [M]); what is lost is NaN in the uploads."""
        received, reported = self.defended(key, before, uploads, ids)
        return tree.choose(reported, received, before), reported

    def defended(
        self, key: PRNGKey, before: Params, uploads: Params, ids: Int[Array, "m"]
    ) -> tuple[Params, Bool[Array, "m"]]:
        """The uploads after the server's defence [M], and who has reported [M]."""
        if self.defence is not faithful:
            # A defence sees no number that its sums cannot hold.
            arrived = tree.finite_squares(uploads, ids.size)
            uploads = tree.choose(arrived, uploads, nothing_of(uploads))
        received = self.defence(key, before, uploads, ids)
        return received, tree.finite_squares(received, ids.size)


def nothing_of(uploads: Params) -> Params:
    """What stands in the place of uploads that are lost: NaN.

    Example:
      >>> nothing_of(jnp.zeros(2)).tolist()
      [nan, nan]
    """
    return jax.tree.map(lambda x: jnp.full_like(x, jnp.nan), uploads)
