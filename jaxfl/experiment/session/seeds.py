"""One seed or several: the only place that asks.

A run of several seeds has an axis of seeds in front of every array [S, ...]; a run of one seed has
none on the devices and in its files, so that it is the program that it would be alone. On the host
all records have the axis.

The folds of a seed are taken for seeds: S is their number, those of the first seed first. They have
the seed's random numbers, and each its own federation.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import PyTree

from jaxfl.core.errors import check
from jaxfl.core.ragged import is_ragged, join_shared, split_shared
from jaxfl.experiment.config.fields import DataOptions


def seeds_of(data: DataOptions, seeds: int) -> "Seeds":
    """The seeds and folds of a run.

    Args:
      data: with the first seed and the number of folds.
      seeds: how many there are.
    """
    return Seeds(data.seed, seeds * data.folds, data.folds)


class Seeds(NamedTuple):
    """The seeds `first`, `first + 1`, ... of a run, each of them once for each of its folds."""

    first: int
    # S, the number of seeds times that of the folds
    count: int
    folds: int = 1

    @property
    def client_axis(self) -> int:
        """The place of the client axis in the arrays of the run."""
        return 1 if self.count > 1 else 0

    @property
    def numbers(self) -> list[int]:
        """The seed of each place of the axis [S]."""
        return [self.first + place // self.folds for place in range(self.count)]

    def place(self, seed: int | None, fold: int | None) -> int:
        """The place on the axis of one of the seeds and one of its folds; the first where None.

        Raises:
          InputError: there is no such seed or fold.

        Example:
          >>> Seeds(first=5, count=6, folds=3).place(seed=6, fold=1)
          4
        """
        number = self.first if seed is None else seed
        numbers = list(dict.fromkeys(self.numbers))
        check(
            number in numbers,
            f"seed is {number}: expected one of {', '.join(map(str, numbers))}",
        )
        folds = range(self.folds)
        check(
            fold is None or fold in folds,
            f"fold is {fold}: expected one of {', '.join(map(str, folds))}",
        )
        return numbers.index(number) * self.folds + (fold or 0)

    def argument(self) -> np.ndarray | np.uint32:
        """The seeds as the argument of what `each` made: [S], or the one number."""
        numbers = np.array(self.numbers, np.uint32)
        return numbers if self.count > 1 else numbers[0]

    def shape(self, *shape: int) -> tuple[int, ...]:
        """The shape of an array of the run that has this shape for one seed."""
        return (self.count, *shape) if self.count > 1 else shape

    def each(self, function: Callable, axes: tuple[int | None, ...]) -> Callable:
        """A function of one seed as one of the run: its `vmap`, or itself.

        All seeds share the examples of `Ragged` arrays.

        Args:
          function: of arrays of one seed.
          axes: 0 for every argument that has the axis of seeds, None for the others.
        """
        if self.count == 1:
            return function

        def mapped(*arguments: PyTree) -> PyTree:
            own, shared = split_shared(arguments)

            def of_one_seed(*own: PyTree) -> PyTree:
                return function(*join_shared(own, shared))

            return jax.vmap(of_one_seed, in_axes=axes)(*own)

        return mapped

    def one(self, tree: PyTree) -> PyTree:
        """Of a tree of the run, that of the first seed."""
        if self.count == 1:
            return tree
        return jax.tree.map(lambda x: x[0], tree, is_leaf=is_ragged)

    def with_axis(self, tree: PyTree) -> PyTree:
        """A tree of the run with the axis of seeds in any case [S, ...]."""
        return tree if self.count > 1 else jax.tree.map(lambda x: x[None], tree)

    def without_axis(self, tree: PyTree) -> PyTree:
        """What `with_axis` made, as it is in the run and in its files."""
        return tree if self.count > 1 else jax.tree.map(lambda x: x[0], tree)
