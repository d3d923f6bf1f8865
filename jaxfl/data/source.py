"""A data set as it is before any client exists."""

from typing import NamedTuple

import numpy as np

Shift = float | tuple[float, ...]  # of all features, or of each channel (the last axis)


class Source(NamedTuple):
    """A data set with its targets as it is on disk, before any client exists."""

    # [N, *feature] uint8, float32, or int32 where features are ids (of words, users, items)
    x_train: np.ndarray
    y_train: np.ndarray  # [N] int32 in 0 .. classes - 1, or float32 numbers
    x_test: np.ndarray  # [N', *feature]; N' is 0 for a set without a test part
    y_test: np.ndarray  # [N']
    classes: int  # 0 if the targets are numbers
    scale: Shift = 1.0  # models see (x - shift) / scale
    shift: Shift = 0.0
    vocabulary: tuple[int, ...] = ()  # number of ids in x: (words,) or (users, items)
    mirrors: bool = False  # whether a mirrored image keeps its meaning: a cat does, a digit not
    owners: np.ndarray | None = None  # [N] the natural client of each training example

    @property
    def white(self) -> float:
        """The largest value of a pixel: 16 for digits, 255 for other bytes, 1 for real numbers."""
        return self.scale if isinstance(self.scale, float) else 255.0
