"""Partitions by skews of labels and sizes, of two benchmarks: NIID-Bench and PFLlib.

NIID-Bench: Li et al., 2022, https://arxiv.org/abs/2102.02079. PFLlib: Zhang et al., 2025,
https://github.com/TsingZ0/PFLlib.
"""

import numpy as np

from jaxfl.core.errors import InputError, check
from jaxfl.data.source import many_labels

Parts = list[np.ndarray]  # C disjoint arrays of row numbers, each shuffled


def check_labels(labels: np.ndarray, clients: int) -> None:
    """Raises an `InputError` unless each example has one label, and each client may have one."""
    check(
        labels.dtype.kind in "uib",
        "the targets are numbers, not labels: choose partition iid or natural",
    )
    check(
        labels.ndim == 1,
        f"{many_labels(labels)}, not one that says whose it is: choose partition iid or natural",
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


TRIES = 1000  # draws until every client has enough examples
Generator = np.random.Generator | np.random.RandomState


def labels(targets: np.ndarray, clients: int, seed: int, classes_per_client: int = 2) -> Parts:
    """Client i holds label i mod L and random others; its holders share a label equally.

    This is "#C = k" of NIID-Bench (`noniid-#labelk` in its code) with k = `classes_per_client`:
    each client draws its k - 1 other labels uniformly, without replacement. With fewer clients than
    labels some labels may have no holder; their examples are left out.

    Raises:
      InputError: k is larger than L, or a label has fewer examples than holders.

    Example:
      >>> targets = np.repeat([0, 1, 2], 10)
      >>> [np.unique(targets[rows]).tolist() for rows in labels(targets, clients=3, seed=0)]
      [[0, 2], [1, 2], [1, 2]]
    """
    classes = _count_classes(targets, clients, classes_per_client)
    rng = np.random.default_rng(seed)
    label_sets = []
    for client in range(clients):
        first = client % classes
        others = np.delete(np.arange(classes), first)
        label_sets.append(
            {first, *rng.choice(others, classes_per_client - 1, replace=False).tolist()}
        )
    parts: list[list[np.ndarray]] = [[] for _ in range(clients)]
    for label in range(classes):
        holders = [client for client in range(clients) if label in label_sets[client]]
        if not holders:
            continue
        rows = rows_of(label, targets, len(holders), rng)
        for client, piece in zip(holders, np.array_split(rows, len(holders)), strict=True):
            parts[client].append(piece)
    return shuffled(parts, rng)


def unbalanced_pathological(
    labels: np.ndarray, clients: int, seed: int, classes_per_client: int = 2
) -> Parts:
    """Every client holds a few labels, and unequally many examples of each.

    With s = `classes_per_client`, each of the L labels in turn goes to the first ceil(C s / L)
    clients that hold fewer than s labels yet. Of the n examples of a label with h holders, all
    holders but the last get a number of examples drawn uniformly from n / (10 h) to n / h, and the
    last one gets the rest. This is the partition `pat` of PFLlib (`balance=False`), with which its
    published results are made.

    Differs: the examples of a label are shuffled first; PFLlib takes them in their order.

    Raises:
      InputError: the clients cannot hold all labels, or a label has fewer examples than holders.

    Example:
      >>> labels = np.repeat([0, 1], 50)
      >>> parts = unbalanced_pathological(labels, clients=2, seed=0)
      >>> [np.bincount(labels[rows]).tolist() for rows in parts]
      [[17, 23], [33, 27]]
    """
    classes = _count_classes(labels, clients, classes_per_client)
    rng = np.random.default_rng(seed)
    most = -(-clients * classes_per_client // classes)  # holders of a label, rounded up
    missing = np.full(clients, classes_per_client)
    parts: list[list[np.ndarray]] = [[] for _ in range(clients)]
    for label in range(classes):
        holders = np.flatnonzero(missing > 0)[:most]
        check(
            len(holders) > 0,
            f"{clients} clients with {classes_per_client} labels each leave no client for label "
            f"{label}: choose a multiple of {classes} clients, or more labels a client",
        )
        missing[holders] -= 1
        rows = rows_of(label, labels, len(holders), rng)
        share = len(rows) // len(holders)
        low = max(1, len(rows) // (10 * len(holders)))
        sizes = rng.integers(low, max(share, low + 1), size=len(holders) - 1)
        for client, piece in zip(holders, np.split(rows, np.cumsum(sizes)), strict=True):
            parts[client].append(piece)
    return shuffled(parts, rng)


def dirichlet(
    labels: np.ndarray, clients: int, seed: int, beta: float = 0.5, smallest: int = 10
) -> Parts:
    """Each class is cut by proportions drawn from Dir(beta); a smaller beta is a stronger skew.

    As in pFedGraph's code (after Yurochkin et al., 2019, https://arxiv.org/abs/1905.12022): a
    client that already holds its fair share N / C gets nothing of later classes, and everything is
    drawn again until every client holds `smallest` examples (or half the fair share, if less).

    Raises:
      InputError: beta is not positive, or a client has too few examples in each of 1,000 draws.

    Example:
      >>> labels = np.repeat([0, 1], 50)
      >>> [np.bincount(labels[rows]).tolist() for rows in dirichlet(labels, 2, seed=0)]
      [[23, 9], [27, 41]]
    """
    return _by_proportions(labels, clients, np.random.default_rng(seed), beta, smallest)


def niid_bench_dirichlet(
    labels: np.ndarray, clients: int, seed: int, beta: float = 0.5, smallest: int = 10
) -> Parts:
    """`dirichlet` with the random numbers of NIID-Bench's code, whose clients it gives row by row.

    pFedGraph's code draws in the same way: NumPy's global generator with the seed 0 by default,
    and nothing is drawn before the partition. How far ten clients of a Dirichlet distribution are
    apart depends much on the draw. For new experiments take `dirichlet` with several seeds; this
    one is for scores to put beside published ones, from data in the order of the original files.

    Raises:
      InputError: beta is not positive, or a client has too few examples in each of 1,000 draws.

    Example:
      >>> labels = np.repeat([0, 1], 50)
      >>> [np.bincount(labels[rows]).tolist() for rows in niid_bench_dirichlet(labels, 2, seed=0)]
      [[22, 47], [28, 3]]
    """
    # This generator is what the code uses, and NumPy has frozen what it draws.
    rng = np.random.RandomState(seed)
    return _by_proportions(labels, clients, rng, beta, smallest)


def quantity(
    labels: np.ndarray, clients: int, seed: int, beta: float = 0.5, smallest: int = 10
) -> Parts:
    """Clients differ in their numbers of examples alone, by proportions drawn from Dir(beta).

    This is the quantity skew of NIID-Bench (`iid-diff-quantity` in its code): a random permutation
    of all examples is cut by the proportions, which are drawn again until every client holds
    `smallest` examples (or half the fair share, if less). The targets may be numbers.

    Raises:
      InputError: beta is not positive, or a client has too few examples in each of 1,000 draws.

    Example:
      >>> [len(rows) for rows in quantity(np.zeros(100), clients=3, seed=0, beta=0.5)]
      [14, 17, 69]
    """
    check_clients(labels, clients)
    check(
        0 < beta < np.inf,
        f"beta is {beta}: expected a positive number, 0.1 for strong skew, 100 for almost none",
    )
    smallest = max(1, min(smallest, len(labels) // clients // 2))
    rng = np.random.default_rng(seed)
    rows = rng.permutation(len(labels))
    for _ in range(TRIES):
        proportions = rng.dirichlet(np.full(clients, beta))
        cuts = (np.cumsum(proportions)[:-1] * len(rows)).astype(int)
        parts = np.split(rows, cuts)
        if min(map(len, parts)) >= smallest:
            return parts
    raise InputError(
        f"no quantity skew with beta {beta} gives each of {clients} clients {smallest} of "
        f"{len(labels)} examples: raise beta or lower the number of clients"
    )


def _by_proportions(
    labels: np.ndarray, clients: int, rng: Generator, beta: float, smallest: int
) -> Parts:
    """Each class cut by proportions from Dir(beta), drawn again until every client has enough."""
    check_labels(labels, clients)
    check(
        0 < beta < np.inf,
        f"beta is {beta}: expected a positive number, 0.1 for strong skew, 100 for almost none",
    )
    fair = len(labels) / clients
    smallest = max(1, min(smallest, int(fair) // 2))
    for _ in range(TRIES):
        parts: list[list[np.ndarray]] = [[] for _ in range(clients)]
        sizes = np.zeros(clients, int)
        for label in range(int(labels.max()) + 1):
            rows = rng.permutation(np.flatnonzero(labels == label))
            proportions = rng.dirichlet(np.full(clients, beta)) * (sizes < fair)
            # With a tiny beta NumPy's old generator divides 0 by 0.
            proportions = np.nan_to_num(proportions, nan=0.0)
            if proportions.sum() == 0:
                # Beside the numbers of clients with a full share, all were too small for a float.
                # As beta goes to 0, one of the other clients gets the whole class.
                proportions[rng.choice(np.flatnonzero(sizes < fair))] = 1.0
            cuts = (np.cumsum(proportions / proportions.sum())[:-1] * len(rows)).astype(int)
            for client, piece in enumerate(np.split(rows, cuts)):
                parts[client].append(piece)
                sizes[client] += len(piece)
        if sizes.min() >= smallest:
            return shuffled(parts, rng)
    raise InputError(
        f"no Dirichlet partition with beta {beta} gives each of {clients} clients {smallest} of "
        f"{len(labels)} examples: raise beta or lower the number of clients"
    )


def _count_classes(labels: np.ndarray, clients: int, classes_per_client: int) -> int:
    """The number of labels of the data, of which a client can hold so many."""
    check_labels(labels, clients)
    classes = int(labels.max()) + 1
    check(
        1 <= classes_per_client <= classes,
        f"{classes_per_client} labels a client: expected 1 to {classes}, the labels of the data",
    )
    return classes


def rows_of(label: int, labels: np.ndarray, holders: int, rng: np.random.Generator) -> np.ndarray:
    """The rows of a label, shuffled; there is one or more for each holder."""
    rows = rng.permutation(np.flatnonzero(labels == label))
    check(
        len(rows) >= holders,
        f"label {label} has {len(rows)} examples for {holders} clients: expected one or more a "
        "client, choose fewer clients",
    )
    return rows
