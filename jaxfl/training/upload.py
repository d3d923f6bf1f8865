"""What the server receives of the models that clients send, and who has reported."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from jaxfl.core import tree
from jaxfl.core.types import Params, PRNGKey, Uplink, Upload


def faithful(key: PRNGKey, before: Params, after: Params, ids: Int[Array, "m"]) -> Params:
    """The uplink that changes nothing: the server receives what the clients trained.

    Example:
      >>> faithful(jax.random.key(0), jnp.zeros((2, 1)), jnp.ones((2, 1)), jnp.arange(2)).tolist()
      [[1.0], [1.0]]
    """
    return after


def upload_through(uplink: Uplink, defence: Uplink = faithful) -> Upload:
    """The upload through an uplink; a client whose upload has a NaN or an inf has not reported.

    What is lost is lost after the uplink, and the server's defence sees only what arrives.

    Args:
      uplink: what happens to an upload until it is sent.
      defence: what the server does before it looks at the uploads.

    Example:
      >>> upload = upload_through(faithful)
      >>> after = jnp.array([[1.0], [jnp.nan]])
      >>> received, reported = upload(jax.random.key(0), jnp.zeros((2, 1)), after, jnp.arange(2))
      >>> received.tolist(), reported.tolist()
      ([[1.0], [0.0]], [True, False])
    """

    def upload(
        key: PRNGKey,
        before: Params,
        after: Params,
        ids: Int[Array, "m"],
        lost: Bool[Array, "m"] | None = None,
    ) -> tuple[Params, Bool[Array, "m"]]:
        uploads = uplink(key, before, after, ids)
        if lost is not None:
            nothing = jax.tree.map(lambda x: jnp.full_like(x, jnp.nan), uploads)
            uploads = tree.choose(lost, nothing, uploads)
        received = defence(key, before, uploads, ids)
        reported = tree.finite(received, ids.size)
        return tree.choose(reported, received, before), reported

    return upload
