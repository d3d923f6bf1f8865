"""Who holds what: each function takes labels, a number of clients and a seed, and returns an index list a client."""

from collections.abc import Callable

import numpy as np

from jaxfl.errors import InputError, check

Parts = list[np.ndarray]  # C arrays of row numbers, disjoint, each shuffled


def iid(labels: np.ndarray, clients: int, seed: int) -> Parts:
    """A random permutation cut into equal pieces.

    Raises:
      InputError: more clients than examples.
    """
    _check_clients(labels, clients)
    return np.array_split(np.random.default_rng(seed).permutation(len(labels)), clients)


def pathological(labels: np.ndarray, clients: int, seed: int, classes_per_client: int = 2) -> Parts:
    """Every client holds a few labels; G = classes / classes_per_client groups of clients hold the same ones.

    Client i holds the labels s * (i mod G), ..., s * (i mod G) + s - 1, and of each label an equal
    piece (pFedGraph, section 4.1 and the reference code's `noniid-skew`; K = 10 with 2 of 10
    classes is its "severe" case).

    Raises:
      InputError: the classes are no multiple of `classes_per_client`, or the clients no multiple of
        G.
    """
    _check_labels(labels, clients)
    classes = int(labels.max()) + 1
    fits = [s for s in range(1, classes + 1) if classes % s == 0 and clients % (classes // s) == 0]
    check(
        classes_per_client in fits,
        f"{classes_per_client} classes a client do not divide {classes} classes among {clients} clients: the groups "
        f"classes / classes_per_client must be whole and divide the clients, so choose from {fits}"
        + ("" if fits else " (none: change the number of clients)"),
    )
    groups = classes // classes_per_client
    rng = np.random.default_rng(seed)
    parts: list[list[np.ndarray]] = [[] for _ in range(clients)]
    for label in range(classes):
        holders = range(label // classes_per_client, clients, groups)
        rows = rng.permutation(np.flatnonzero(labels == label))
        for client, piece in zip(holders, np.array_split(rows, len(holders)), strict=True):
            parts[client].append(piece)
    return _shuffled(parts, rng)


def dirichlet(
    labels: np.ndarray, clients: int, seed: int, beta: float = 0.5, smallest: int = 10
) -> Parts:
    """Each class is cut by proportions drawn from Dir(beta); a smaller beta is a stronger skew.

    As pFedGraph's reference code (after Yurochkin et al., 2019), with its guard: a client that
    already holds its fair share N / C gets nothing of further classes, and the whole is drawn again
    until every client holds `smallest` examples (half the fair share, if that is less).

    Raises:
      InputError: beta is not positive, or 1,000 draws leave a client with too few examples.
    """
    _check_labels(labels, clients)
    check(
        0 < beta < np.inf,
        f"beta is {beta}: expected a positive number, .1 for strong skew, 100 for nearly none",
    )
    fair = len(labels) / clients
    smallest = max(1, min(smallest, int(fair) // 2))
    rng = np.random.default_rng(seed)
    for _ in range(1000):
        parts: list[list[np.ndarray]] = [[] for _ in range(clients)]
        sizes = np.zeros(clients, int)
        for label in range(int(labels.max()) + 1):
            rows = rng.permutation(np.flatnonzero(labels == label))
            share = rng.dirichlet(np.full(clients, beta)) * (sizes < fair)
            if share.sum() == 0:  # the draw fell on full clients alone
                share = (sizes < fair).astype(float)
            cuts = (np.cumsum(share / share.sum())[:-1] * len(rows)).astype(int)
            for client, piece in enumerate(np.split(rows, cuts)):
                parts[client].append(piece)
                sizes[client] += len(piece)
        if sizes.min() >= smallest:
            return _shuffled(parts, rng)
    raise InputError(
        f"no Dirichlet split with beta {beta} gives each of {clients} clients {smallest} of {len(labels)} examples: "
        "raise beta or lower the number of clients"
    )


def shards(labels: np.ndarray, clients: int, seed: int, classes_per_client: int = 2) -> Parts:
    """Sorted by label and cut into equal shards; each client draws `classes_per_client` of them without replacement.

    A client holds at most about that many labels (McMahan et al., 2017, section 3). Rows that do
    not fill a shard are left out. A client's list takes turns between its shards, so that its last
    fifth is a fifth of each: FedCedar's split of each shard is `federate(..., val=0, test="own")`.

    Differs: FedCedar's authors' code draws shards with replacement for CIFAR-10 and SVHN, so that
    clients overlap.

    Raises:
      InputError: more shards than examples.
    """
    _check_labels(labels, clients)
    count = clients * classes_per_client
    check(
        classes_per_client >= 1 and count <= len(labels),
        f"{clients} clients with {classes_per_client} shards each need {count} examples: there are {len(labels)}",
    )
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]
    pieces = order[: len(labels) // count * count].reshape(count, -1)
    drawn = rng.permutation(count).reshape(clients, classes_per_client)
    return [pieces[row].T.reshape(-1) for row in drawn]


NODES = ({0, 1, 2}, {2, 3, 4}, {4, 5, 6}, {3, 7, 8}, {8, 9})  # labels of each: FedCedar, figure 2


def nodes(labels: np.ndarray, clients: int, seed: int, topology: int = 5) -> Parts:
    """Clients in 3, 4 or 5 nodes of two or three labels each; nodes with a label in common are neighbours.

    Client i is in node i mod `topology` (`node_of`). The nodes hold {0, 1, 2}, {2, 3, 4}, {4, 5,
    6}, then {3, 7, 8}, then {8, 9} (FedCedar, section 4.4): the first three are a path, the fourth
    hangs on the second, the fifth on the fourth. All clients that hold a label hold an equal piece
    of it. Labels of no node are left out.

    Differs: the authors' code gives the clients of two neighbours the same examples.

    Raises:
      InputError: no such topology, a label that the data lack, or fewer clients than nodes.
    """
    _check_labels(labels, clients)
    check(topology in (3, 4, 5), f"a topology of {topology} nodes: expected 3, 4 or 5")
    check(
        clients >= topology, f"{clients} clients for {topology} nodes: expected at least one a node"
    )
    missing = set().union(*NODES[:topology]) - set(np.unique(labels).tolist())
    check(
        not missing,
        f"{topology} nodes need the labels {missing}, which the data lack: choose another data set",
    )
    rng = np.random.default_rng(seed)
    parts: list[list[np.ndarray]] = [[] for _ in range(clients)]
    for label in sorted(set().union(*NODES[:topology])):
        holders = [
            client for client, node in enumerate(node_of(clients, topology)) if label in NODES[node]
        ]
        rows = rng.permutation(np.flatnonzero(labels == label))
        for client, piece in zip(holders, np.array_split(rows, len(holders)), strict=True):
            parts[client].append(piece)
    return _shuffled(parts, rng)


def node_of(clients: int, topology: int) -> np.ndarray:
    """The node of each client in the partition `nodes` [C]."""
    return np.arange(clients) % topology


def natural(
    owners: np.ndarray | None, clients: int | None = None, seed: int = 0, smallest: int = 10
) -> Parts:
    """The clients that the data come from: hospitals, roles, users; those with fewer than `smallest` examples left out.

    Args:
      owners: whose each training example is [N].
      clients: how many of them, those with the most examples; all if None.
      seed: shuffles each client's examples.
      smallest: fewest examples of a client.

    Returns:
      The rows of each client, clients in the order of the owners' numbers.

    Raises:
      InputError: the data name no owners, or fewer than that many with enough examples.
    """
    check(owners is not None, "these data name no owners: choose another partition than natural")
    found, counts = np.unique(owners, return_counts=True)
    found, counts = found[counts >= smallest], counts[counts >= smallest]
    check(
        len(found) > 0,
        f"no owner has {smallest} examples or more: choose another partition than natural",
    )
    clients = len(found) if clients is None else clients
    check(
        1 <= clients <= len(found),
        f"{clients} clients of a natural partition: expected 1 to {len(found)}, the owners of {smallest} examples or "
        "more",
    )
    largest = np.sort(found[np.argsort(-counts, kind="stable")[:clients]])
    rng = np.random.default_rng(seed)
    return [rng.permutation(np.flatnonzero(owners == owner)) for owner in largest]


PARTITIONS: dict[str, Callable[..., Parts]] = {
    f.__name__: f for f in (iid, pathological, dirichlet, shards, nodes, natural)
}


def _check_labels(labels: np.ndarray, clients: int) -> None:
    check(
        labels.dtype.kind in "ui",
        "the targets are numbers, not labels: choose partition iid or natural",
    )
    _check_clients(labels, clients)


def _check_clients(labels: np.ndarray, clients: int) -> None:
    check(clients >= 1, f"{clients} clients: expected 1 or more")
    check(
        clients <= len(labels),
        f"{clients} clients for {len(labels)} examples: expected at most one client an example",
    )


def _shuffled(parts: list[list[np.ndarray]], rng: np.random.Generator) -> Parts:
    return [rng.permutation(np.concatenate(pieces)) for pieces in parts]
