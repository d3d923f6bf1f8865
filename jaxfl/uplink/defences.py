"""Defences on the server, before it looks at the uploads: the last links of a chain of uplinks.

They compose with every method. The last defence, that a client refuses what the server offers it,
is a part of the task: `acceptance`.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from jaxfl.core import tree
from jaxfl.core.errors import check_name
from jaxfl.core.options import FRACTION, check_range
from jaxfl.core.types import Params, PRNGKey, Scalar, Uplink
from jaxfl.kernels.robust import clip_updates, foolsgold
from jaxfl.kernels.similarity import cosine

__all__ = ["DEFENCES", "clip_to_median", "deduplicate", "defence_links", "shorten_sybils"]

DEFENCES = ("clip", "deduplicate", "foolsgold", "accept")
# Benign clients with the same two classes reach .991, see docs/robustness.md.
IDENTICAL = 0.999


def clip_to_median(key: PRNGKey, before: Params, after: Params, ids: Int[Array, "m"]) -> Params:
    """The uplink in which the server cuts updates to the median norm of the cohort's updates.

    Sun et al., "Can You Really Backdoor Federated Learning?", 2019, section 4,
    https://arxiv.org/abs/1911.07963. An upload that is not finite does not count for the median and
    stays what it is, so that its client has not reported. The server has to know `before`.

    Differs: the paper has a fixed bound.

    Example:
      >>> after = jnp.array([[1.0], [2.0], [90.0]])
      >>> clip_to_median(jax.random.key(0), jnp.zeros((3, 1)), after, jnp.arange(3)).tolist()
      [[1.0], [2.0], [2.0]]
    """
    return clip_updates(before, after, None, tree.finite(after, ids.size))


def deduplicate(threshold: Scalar = IDENTICAL) -> Uplink:
    """The uplink in which updates that have a near copy count as no update at all.

    The model `before`, which the server knows, takes the place of every one of the copies. None of
    them stays, because nobody knows which is the original, and a rule such as the smallest id would
    let an attacker take the place of its victim. The clients still report and receive: if they were
    taken for clients that have not reported, whoever copies a client would keep it from ever
    learning anything. A client whose update is copied teaches others nothing for that round.

    Lengths do not matter, so a copy with a factor is a copy. An attacker that adds noise of more
    than sqrt(1 / threshold - 1) times the length of the update to each copy escapes. An update of
    zero has no copies, and an upload that is not finite stays what it is.

    Args:
      threshold: updates whose cosine is above it are copies.

    Raises:
      InputError: the threshold is not in [0, 1].

    Example:
      >>> after = jnp.array([[1.0, 0.0], [5.0, 0.0], [0.0, 3.0]])
      >>> deduplicate()(jax.random.key(0), jnp.zeros((3, 2)), after, jnp.arange(3)).tolist()
      [[0.0, 0.0], [0.0, 0.0], [0.0, 3.0]]
    """
    check_range(FRACTION, threshold=threshold)

    def uplink(key: PRNGKey, before: Params, after: Params, ids: Int[Array, "m"]) -> Params:
        finite = tree.finite(after, ids.size)
        updates = jax.tree.map(jnp.subtract, tree.choose(finite, after, before), before)
        others = ~jnp.eye(ids.size, dtype=bool)
        copies = ((cosine(updates) > threshold) & others).any(axis=1)
        return tree.choose(copies, before, after)

    return uplink


def shorten_sybils(key: PRNGKey, before: Params, after: Params, ids: Int[Array, "m"]) -> Params:
    """The uplink in which updates that are more alike than all others are shortened, down to 0.

    FoolsGold (Fung, Yoon and Beschastnikh, RAID 2020, https://arxiv.org/abs/1808.04866), see
    `kernels.robust.foolsgold`: malicious clients with one aim send updates that are more similar to
    each other than those of benign clients are, whose data differ. So are benign clients with the
    same labels, whose updates are shortened too. An upload that is not finite stays what it is.

    Differs: the cosines are those of the updates of a round, where the paper sums the updates of
    all rounds and weighs the features.

    Example:
      >>> after = jnp.array([[1.0, 0.0, 0.1], [1.0, 0.0, 0.2], [0.0, 3.0, 0.0]])
      >>> received = shorten_sybils(jax.random.key(0), jnp.zeros((3, 3)), after, jnp.arange(3))
      >>> received.tolist()[2], received[:2].any().item()
      ([0.0, 3.0, 0.0], False)
    """
    finite = tree.finite(after, ids.size)
    updates = jax.tree.map(jnp.subtract, tree.choose(finite, after, before), before)
    factors = foolsgold(cosine(updates), finite)
    shortened = jax.tree.map(jnp.add, before, tree.scale(updates, factors))
    return tree.choose(finite & (factors < 1), shortened, after)


def defence_links(names: tuple[str, ...]) -> list[Uplink]:
    """The uplinks among the named defences: clipping first, which makes longer copies equal.

    Raises:
      InputError: there is no such defence.

    Example:
      >>> links = defence_links(("deduplicate", "clip"))
      >>> len(links), links[0] is clip_to_median
      (2, True)
    """
    for name in names:
        check_name("defence", name, DEFENCES)
    links = {
        "clip": clip_to_median,
        "deduplicate": deduplicate(),
        "foolsgold": shorten_sybils,
    }
    return [link for name, link in links.items() if name in names]
