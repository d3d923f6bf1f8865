"""What a partition returns, and the checks and steps that partitions share."""

import numpy as np

from jaxfl.errors import check

Parts = list[np.ndarray]  # C disjoint arrays of row numbers, each shuffled


def check_labels(labels: np.ndarray, clients: int) -> None:
    """Raises an `InputError` unless the targets are labels, at least one example a client."""
    check(
        labels.dtype.kind in "ui",
        "the targets are numbers, not labels: choose partition iid or natural",
    )
    check_clients(labels, clients)


def check_clients(labels: np.ndarray, clients: int) -> None:
    """Raises an `InputError` unless there are 1 to N clients for N examples."""
    check(clients >= 1, f"{clients} clients: expected 1 or more")
    check(
        clients <= len(labels),
        f"{clients} clients for {len(labels)} examples: expected at most one client an example",
    )


def shuffled(
    parts: list[list[np.ndarray]], rng: np.random.Generator | np.random.RandomState
) -> Parts:
    """The pieces of each client joined and shuffled."""
    return [rng.permutation(np.concatenate(pieces)) for pieces in parts]
