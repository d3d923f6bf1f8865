"""Small federations with known answers."""

from collections.abc import Sequence

import jax
import numpy as np
from jaxtyping import Array

from jaxfl.core.types import Dataset, Federation, Participation
from jaxfl.simulation import participation
from jaxfl.testing.once import once

# The number of examples of each client of `uneven`.
SIZES = [40, 25, 31, 40, 12, 9]
C = len(SIZES)


def stack(
    xs: list[np.ndarray], ys: list[np.ndarray], pad: int = 0, rubbish: float | int = 0.0
) -> Dataset:
    """The clients' x and y as a Dataset [C, n, ...], each with at least `pad` rows of rubbish."""
    longest = max(map(len, xs)) + pad

    def fill(values: list[np.ndarray], value: float | int) -> Array:
        out = np.full((len(values), longest, *values[0].shape[1:]), value, values[0].dtype)
        for row, v in zip(out, values, strict=True):
            row[: len(v)] = v
        # Another way to the device would compile a program for each shape.
        return jax.device_put(out)

    mask = np.arange(longest)[None] < np.array([len(x) for x in xs])[:, None]
    return Dataset(fill(xs, rubbish), fill(ys, 0), jax.device_put(mask))


def federation(
    xs: list[np.ndarray], ys: list[np.ndarray], pad: int = 0, rubbish: float | int = 0.0
) -> Federation:
    """The last fifth of each client's examples is for validation; all examples are the test set."""
    cuts = [len(x) - len(x) // 5 for x in xs]
    train = stack(
        [x[:c] for x, c in zip(xs, cuts, strict=True)],
        [y[:c] for y, c in zip(ys, cuts, strict=True)],
        pad,
        rubbish,
    )
    val = stack(
        [x[c:] for x, c in zip(xs, cuts, strict=True)],
        [y[c:] for y, c in zip(ys, cuts, strict=True)],
        pad + 1,
        rubbish,
    )
    return Federation(train, val, stack(xs, ys, pad, rubbish))


def opposite_groups(
    clients: int = 6,
    examples: int = 40,
    features: int = 8,
    seed: int = 0,
    sizes: Sequence[int] | None = None,
    pad: int = 0,
    rubbish: float | int = 0.0,
) -> Federation:
    """Even clients label examples by the side of a plane, odd clients in the opposite way."""
    rng = np.random.default_rng(seed)
    normal = rng.normal(size=features)
    xs = []
    ys = []
    for client in range(clients):
        x = rng.normal(size=(sizes[client] if sizes else examples, features)).astype(np.float32)
        xs.append(x)
        ys.append(((x @ normal > 0) ^ (client % 2 == 1)).astype(np.int32))
    return federation(xs, ys, pad, rubbish)


def coins(clients: int = 4) -> tuple[Federation, Array, np.ndarray]:
    """Clients with the same examples of two kinds, where only label frequencies can be learned.

    Returns:
      The federation, the two kinds [2, 8], and the frequencies of the labels in each [2, 2].
    """
    kinds = np.array([[1, 0, 1, 0, 1, 0, 1, 0], [0, 1, 0, -1, 0, 1, 0, -1]], np.float32)
    # The labels of four examples of each kind.
    labels = np.array([[1, 1, 1, 0], [1, 0, 1, 0]], np.int32)
    # Each twice in a row, so that every other example has the same labels; and again. The last
    # eight examples are for validation.
    order = np.concatenate([np.arange(8).repeat(2)] * 2 + [np.arange(8)])
    x, y = kinds.repeat(4, axis=0)[order], labels.ravel()[order]
    ones = labels.mean(axis=1)
    frequencies = np.stack([1 - ones, ones], axis=1)
    return federation([x] * clients, [y] * clients), jax.device_put(kinds), frequencies


@once
def uneven() -> Federation:
    """Six clients of different sizes. Most rules use them and so share one compiled program."""
    return opposite_groups(sizes=SIZES)


@once
def padded() -> Federation:
    """The same, each client padded with rubbish, of which nothing may be computed."""
    return opposite_groups(sizes=SIZES, pad=13, rubbish=np.nan)


# Eight clients in two groups, each with the data of the first client of its group. Four of them
# take part at first, others later; clients 2 and 3 never do, and 4 and 5 leave.
TWINS = 8
EARLY = [0, 1, 4, 5]
LATE = [0, 1, 6, 7]


@once
def twins() -> Federation:
    """Eight clients with two sets of examples in turns."""
    return jax.tree.map(lambda x: x[np.arange(TWINS) % 2], opposite_groups(examples=20))


@once
def in_turns() -> Participation:
    """Four of `twins` in a round: `EARLY` in two rounds, `LATE` in four."""
    return participation.schedule(np.array([EARLY] * 2 + [LATE] * 4))
