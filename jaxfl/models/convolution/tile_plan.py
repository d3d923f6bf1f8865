"""Which tiles of outputs a convolution by patches computes at a time."""

import itertools
from typing import NamedTuple

# Multiplications and additions that take as long as one number of 32 bits from memory: by an H100's
# published rates 590 in TF32 and 80 in float32, which small products do not reach.
OPERATIONS_A_NUMBER = 200
# Sides of a tile; a larger one is never best.
SIDES = (1, 2, 4, 6, 8)


Padding = tuple[tuple[int, int], tuple[int, int]]


class Side(NamedTuple):
    """Tiles along one side of an image; tile i starts at pixel i * block of the padded image."""

    size: int  # of the image
    low: int  # padding before the image
    outputs: int
    taps: int  # of the kernel
    stride: int
    dilation: int
    tile: int  # outputs of a tile

    @property
    def tiles(self) -> int:
        """How many there are; the last one may have outputs that are not wanted."""
        return -(-self.outputs // self.tile)

    @property
    def reach(self) -> int:
        """How many pixels the outputs of a tile read."""
        return self.stride * (self.tile - 1) + self.dilation * (self.taps - 1) + 1

    @property
    def length(self) -> int:
        """Pixels of the padded image that are read, at least."""
        return self.block * (self.tiles - 1) + self.reach

    @property
    def block(self) -> int:
        """How many pixels lie between the starts of two tiles."""
        return self.stride * self.tile


class Plan(NamedTuple):
    """Tiles along the height and the width of an image."""

    high: Side
    wide: Side


def plan(
    image: tuple[int, ...],
    kernel: tuple[int, ...],
    stride: tuple[int, int],
    padding: tuple[tuple[int, int], ...],
    dilation: tuple[int, int],
    *,
    pooled: bool = False,
) -> Plan:
    """The cheapest tiles for a convolution.

    Args:
      image: shape [n, h, w, ci].
      kernel: shape [kh, kw, ci, co].
      stride: of the kernel.
      padding: of the image, not negative.
      dilation: of the kernel.
      pooled: whether 2x2 pooling follows, which wants tiles with even sides; an odd last row or
        column of outputs is then not computed.
    """
    sides: list[list[Side]] = []
    for i in range(2):
        low, high = padding[i]
        extent = dilation[i] * (kernel[i] - 1) + 1
        outputs = (image[1 + i] + low + high - extent) // stride[i] + 1
        if pooled:
            outputs = outputs // 2 * 2
        least = 2 if pooled else 1
        lengths = [t for t in SIDES if least <= t <= outputs and t % least == 0] or [least]
        sides.append(
            [
                Side(image[1 + i], low, outputs, kernel[i], stride[i], dilation[i], length)
                for length in lengths
            ]
        )

    def cost(pair: tuple[Side, Side]) -> float:
        high, wide = pair
        rows = image[0] * high.tiles * wide.tiles
        patch = high.reach * wide.reach * kernel[2]
        outputs = high.tile * wide.tile * kernel[3]
        # The patches are written and read twice, and their gradient is written and read. There are
        # three products.
        traffic = 5 * rows * patch + 3 * patch * outputs + 4 * rows * outputs
        return traffic + 6 * rows * patch * outputs / OPERATIONS_A_NUMBER

    highs, wides = sides
    return Plan(*min(itertools.product(highs, wides), key=cost))
