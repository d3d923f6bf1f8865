"""Convolutions of others with the batch normalisation behind them folded in.

A trained normalisation multiplies each channel by a number and adds one, which the kernel and the
bias of the convolution before it can do (Ioffe & Szegedy, 2015, section 3.1, algorithm 2,
https://arxiv.org/abs/1502.03167).
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from jaxfl.core.errors import InputError, check


class Layer(NamedTuple):
    """A convolution, and what others call it and its normalisation."""

    # of the layer in our module
    path: str
    convolution: str
    norm: str
    # whether it is a dense layer of each pixel in our module
    dense: bool = False


class Original(NamedTuple):
    """The models whose weights are read."""

    # what we call it
    model: str
    # in whose names its arrays are
    names: str
    # what its dense head is called
    head: str
    # what is added to a variance
    epsilon: float


def without_norm(
    arrays: Mapping[str, np.ndarray], layers: Iterable[Layer], original: Original
) -> dict[str, np.ndarray]:
    """The weights by the paths of our module, normalisation folded into the layers.

    With a scale g, a shift b, a mean m and a variance v of the normalisation, W becomes
    W g / sqrt(v + e), and the layer adds b - m g / sqrt(v + e).

    Args:
      arrays: kernels [out, in, h, w], the arrays of normalisation [out] and, if it is there, the
        head [outputs, in], by their names.
      layers: all convolutions of the model.
      original: the model.

    Returns:
      Kernels [h, w, in, out], or [in, out] of dense layers, and biases [out].

    Raises:
      InputError: an array is missing, is of no part of the model, or has another shape.

    Example:
      >>> arrays = {"conv.weight": np.full((1, 1, 1, 1), 5.0), "bn.weight": np.ones(1)}
      >>> arrays |= {"bn.bias": np.ones(1), "bn.running_mean": np.full(1, 3.0)}
      >>> arrays |= {"bn.running_var": np.full(1, 4.0)}
      >>> original = Original("net", "nobody", "fc", 0.0)
      >>> weights = without_norm(arrays, [Layer("stem", "conv", "bn")], original)
      >>> weights["params/stem/kernel"].item(), weights["params/stem/bias"].item()
      (2.5, -0.5)
    """
    left = set(arrays)

    def take(name: str) -> np.ndarray:
        if name not in arrays:
            raise InputError(f"the weights lack {name} of {original.model}")
        left.remove(name)
        # Numbers of 16 bits are too coarse for what is computed here.
        return arrays[name].astype(np.promote_types(arrays[name].dtype, np.float32))

    weights = {}
    for path, convolution, norm, dense in layers:
        kernel = take(f"{convolution}.weight")
        statistics = {
            kind: take(f"{norm}.{kind}")
            for kind in ("weight", "bias", "running_mean", "running_var")
        }
        for kind, array in statistics.items():
            check(
                kernel.ndim == 4 and array.shape == kernel.shape[:1],
                f"{convolution}.weight has shape {kernel.shape} and {norm}.{kind} {array.shape}: "
                "expected (out, in, height, width) and (out,)",
            )
        scale, shift, mean, variance = statistics.values()
        factor = scale / np.sqrt(variance + original.epsilon)
        kernel = (kernel * factor[:, None, None, None]).transpose(2, 3, 1, 0)
        # A dense layer of each pixel has no sides.
        weights[f"params/{path}/kernel"] = kernel[0, 0] if dense else kernel
        weights[f"params/{path}/bias"] = shift - mean * factor
    if {f"{original.head}.weight", f"{original.head}.bias"} & left:
        weights["params/head/kernel"] = take(f"{original.head}.weight").T
        weights["params/head/bias"] = take(f"{original.head}.bias")
    others = sorted(name for name in left if not name.endswith("num_batches_tracked"))
    check(
        not others,
        f"the weight {', '.join(others)[:80]!r} is of no part of {original.model}: expected the "
        f"names of {original.names}",
    )
    return weights
