"""The points of a search: a value for each name that is searched."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from jaxfl.core.errors import check

Point = dict[str, Any]  # a value for each name


def grid_points(space: dict[str, list]) -> list[Point]:
    """Every combination of the values."""
    return [dict(zip(space, values, strict=True)) for values in itertools.product(*space.values())]


def random_points(
    space: dict[str, list | tuple[float, float, str]], trials: int, seed: int
) -> list[Point]:
    """Random combinations: one of each list, or a number from (low, high, "linear" or "log")."""
    rng = np.random.default_rng(seed)

    def draw(choice: list | tuple) -> Any:
        if isinstance(choice, list):
            return choice[rng.integers(len(choice))]
        low, high, scale = choice
        return float(
            np.exp(rng.uniform(*np.log([low, high]))) if scale == "log" else rng.uniform(low, high)
        )

    return [{name: draw(choice) for name, choice in space.items()} for _ in range(trials)]


def parse_space(
    pairs: tuple[str, ...], parse: Callable[[str], Any]
) -> dict[str, list | tuple[float, float, str]]:
    """`("a=0.2,0.8", "lam=0.001:1:log")` -> `{"a": [0.2, 0.8], "lam": (0.001, 1.0, "log")}`."""
    space: dict[str, list | tuple] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        check(
            bool(name and equals and text),
            f"{pair!r}: expected NAME=VALUE,VALUE,... or NAME=LOW:HIGH[:log]",
        )
        check(name not in space, f"{name!r} is given twice: give it once, with all its values")
        if ":" not in text:
            space[name] = [parse(value) for value in text.split(",")]
            continue
        low, high, *scale = text.split(":")
        try:
            space[name] = (float(low), float(high), *(scale or ["linear"]))
            ends = space[name][:2]
            good = (
                -np.inf < ends[0] < ends[1] < np.inf
                and scale in ([], ["log"])
                and (not scale or ends[0] > 0)
            )
        except ValueError:
            good = False
        check(good, f"{pair!r} is no range: expected LOW:HIGH, or LOW:HIGH:log with a positive LOW")
    return space
