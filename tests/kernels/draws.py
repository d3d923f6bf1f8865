"""Models of clients that hypothesis draws: moderate, general and extreme ones."""

import numpy as np
from claims import Clients
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

SHAPES = [(1, 1), (2, 3), (5, 12)]  # few, since a kernel is compiled for each
draws = settings(
    max_examples=15, deadline=None, derandomize=True, phases=[Phase.generate, Phase.shrink]
)


seeds = st.integers(0, 2**32 - 1)  # of what need not be drawn entry by entry


@st.composite
def clients(draw, models):
    """Clients with the given models, ids in any order; some have no examples or did not report."""
    x = models(draw, draw(st.sampled_from(SHAPES)))
    rng = np.random.default_rng(draw(seeds))
    number = len(x)
    sizes = rng.integers(0, 2**30, number, np.int32) * (rng.random(number) < 0.7)
    return Clients(
        x, rng.permutation(number).astype(np.int32) * 3 + 1, sizes, rng.random(number) < 0.7
    )


def moderate(draw, shape):
    """Hundredths up to 10, with zero models and copies of others."""
    entries = draw(arrays(np.int16, shape, elements=st.integers(-1000, 1000)))
    of = draw(arrays(np.int8, shape[0], elements=st.integers(-1, shape[0] - 1)))  # -1: a zero model
    return np.where(of[:, None] < 0, 0, entries[of] / 100).astype(np.float32)


def general(draw, shape):
    """Random models, no two of which are equal or near."""
    return np.random.default_rng(draw(seeds)).normal(size=shape).astype(np.float32)


def extreme(decades):
    """Models of all claimed sizes, zero models and copies among them."""

    def models(draw, shape):
        entries = draw(
            arrays(np.float32, shape, elements=st.floats(-1, 1, width=32, allow_subnormal=False))
        )
        powers = draw(arrays(np.int8, shape[0], elements=st.integers(-decades, decades)))
        return (entries * 10.0 ** powers[:, None]).astype(np.float32)

    return models
