"""Partitions: functions of labels, a number of clients and a seed that divide the training set.

Each returns one array of row numbers for each client.
"""

from collections.abc import Callable, Sequence

import numpy as np

from jaxfl.core.errors import InputError, check, warn
from jaxfl.core.plain_array import plain_array
from jaxfl.data.data_warnings import left_out
from jaxfl.data.skews import (
    Parts,
    check_clients,
    check_labels,
    dirichlet,
    labels,
    niid_bench_dirichlet,
    quantity,
    shuffled,
    unbalanced_pathological,
)
from jaxfl.data.superclasses import superclasses


def iid(labels: np.ndarray, clients: int, seed: int) -> Parts:
    """A random permutation cut into equal pieces.

    Raises:
      InputError: there are more clients than examples.

    Example:
      >>> [len(rows) for rows in iid(np.zeros(10), clients=4, seed=0)]
      [3, 3, 2, 2]
    """
    check_clients(labels, clients)
    return np.array_split(np.random.default_rng(seed).permutation(len(labels)), clients)


def pathological(labels: np.ndarray, clients: int, seed: int, classes_per_client: int = 2) -> Parts:
    """Every client holds a few labels, and clients of the same group hold the same labels.

    With s = `classes_per_client` there are G = classes / s groups. Client i holds the labels
    s * (i mod G), ..., s * (i mod G) + s - 1, and an equal piece of each. This is `noniid-skew` in
    the code of pFedGraph (section 4.1, https://proceedings.mlr.press/v202/ye23b.html), whose
    "severe" case is 10 clients with 2 of 10 classes.

    Raises:
      InputError: the classes are not a multiple of `classes_per_client`, or the clients not a
        multiple of G.

    Example:
      >>> labels = np.repeat([0, 1, 2, 3], 10)
      >>> [np.unique(labels[rows]).tolist() for rows in pathological(labels, clients=4, seed=0)]
      [[0, 1], [2, 3], [0, 1], [2, 3]]
    """
    check_labels(labels, clients)
    classes = int(labels.max()) + 1
    fits = [s for s in range(1, classes + 1) if classes % s == 0 and clients % (classes // s) == 0]
    check(
        classes_per_client in fits,
        f"{classes_per_client} classes a client do not divide {classes} classes among {clients} "
        "clients: the number of groups, classes / classes_per_client, must be whole and divide the "
        f"clients, so choose from {fits}"
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
    return shuffled(parts, rng)


def shards(labels: np.ndarray, clients: int, seed: int, classes_per_client: int = 2) -> Parts:
    """Examples sorted by label are cut into equal shards; each client draws a few of them.

    A client draws `classes_per_client` shards without replacement and so holds at most about that
    many labels (McMahan et al., 2017, section 3, https://arxiv.org/abs/1602.05629). Rows that do
    not fill a shard are left out. A client's rows alternate between its shards, so that its last
    fifth is a fifth of each shard: with `federate(..., val=0.0, test="own")` this is the split
    of each shard in FedCedar.

    Differs: the code of FedCedar's authors draws shards with replacement for CIFAR-10 and SVHN, so
    that clients overlap.

    Raises:
      InputError: there are more shards than examples.

    Example:
      >>> labels = np.repeat([0, 1, 2, 3], 10)
      >>> [np.unique(labels[rows]).tolist() for rows in shards(labels, clients=2, seed=0)]
      [[1, 2], [0, 3]]
    """
    check_labels(labels, clients)
    count = clients * classes_per_client
    check(
        classes_per_client >= 1 and count <= len(labels),
        f"{clients} clients with {classes_per_client} shards each need {count} examples: "
        f"there are {len(labels)}",
    )
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]
    pieces = order[: len(labels) // count * count].reshape(count, -1)
    hands = rng.permutation(count).reshape(clients, classes_per_client)
    return [pieces[row].T.reshape(-1) for row in hands]


# Labels of each node (FedCedar, figure 2).
NODES = ({0, 1, 2}, {2, 3, 4}, {4, 5, 6}, {3, 7, 8}, {8, 9})


def nodes(labels: np.ndarray, clients: int, seed: int, topology: int = 5) -> Parts:
    """Clients in 3, 4 or 5 nodes of two or three labels; nodes with a common label are neighbours.

    Client i is in node i mod `topology` (`node_of`). The nodes hold the labels {0, 1, 2},
    {2, 3, 4}, {4, 5, 6}, {3, 7, 8} and {8, 9} (FedCedar, section 4.4). The first three nodes form a
    path; the fourth is linked to the second, and the fifth to the fourth. All clients that hold a
    label hold an equal piece of it. Labels that belong to no node are left out.

    Differs: the authors' code gives the clients of two neighbours the same examples.

    Raises:
      InputError: there is no such topology, the data lack a label, or there are fewer clients than
        nodes.

    Example:
      >>> labels = np.arange(70) % 7
      >>> [np.unique(labels[rows]).tolist() for rows in nodes(labels, 3, seed=0, topology=3)]
      [[0, 1, 2], [2, 3, 4], [4, 5, 6]]
    """
    check_labels(labels, clients)
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
    return shuffled(parts, rng)


def node_of(clients: int, topology: int) -> np.ndarray:
    """The node of each client in the partition `nodes` [C].

    Example:
      >>> node_of(5, topology=3).tolist()
      [0, 1, 2, 0, 1]
    """
    return np.arange(clients) % topology


def natural(
    owners: np.ndarray | None,
    clients: int | None = None,
    seed: int = 0,
    smallest: int = 10,
    names: Sequence[str] = (),
) -> Parts:
    """The clients that the data come from: hospitals, roles or users.

    Args:
      owners: the natural client of each training example [N].
      clients: how many clients to keep, those with the most examples; all if None.
      seed: of the order of each client's examples.
      smallest: owners with fewer examples are left out, with a warning where all are asked for.
      names: of the owners 0, 1, ..., for this warning.

    Returns:
      The rows of each client, with the clients in the order of their ids.

    Raises:
      InputError: the data name no owners, or fewer than `clients` owners have enough examples.

    Example:
      >>> owners = np.array([7, 7, 7, 2, 2, 5])
      >>> [sorted(rows.tolist()) for rows in natural(owners, smallest=1)]
      [[3, 4], [5], [0, 1, 2]]
    """
    if owners is None:
        raise InputError("these data name no owners: choose another partition than natural")
    owners = plain_array(owners, "owners")
    check(
        bool((owners == owners).all()), "owners have NaN: name the natural client of each example"
    )
    ids, counts = np.unique(owners, return_counts=True)
    enough = counts >= smallest
    message = left_out(counts, smallest, [names[int(owner)] for owner in ids] if names else ())
    if clients is None and enough.any() and message:
        warn(message)
    ids = ids[enough]
    counts = counts[enough]
    check(
        len(ids) > 0,
        f"no owner has {smallest} examples or more: give a lower number (smallest=1, "
        "--partition natural:least=1), or choose another partition than natural",
    )
    clients = len(ids) if clients is None else clients
    check(
        1 <= clients <= len(ids),
        f"{clients} clients of a natural partition: expected 1 to {len(ids)}, "
        f"the number of owners with {smallest} examples or more (smallest=1 keeps "
        "all owners)",
    )
    largest = np.sort(ids[np.argsort(-counts, kind="stable")[:clients]])
    rng = np.random.default_rng(seed)
    return [rng.permutation(np.flatnonzero(owners == owner)) for owner in largest]


def owner_groups(owners: np.ndarray | None, clients: int, seed: int) -> Parts:
    """The owners of the data, divided at random among the clients; each owner stays whole.

    Every client gets equally many owners, or one more. This is how users become clients where
    there are more users than clients: pFL-Bench's MovieLens, which pFedGraph uses (appendix C.2,
    https://proceedings.mlr.press/v202/ye23b.html), and the writers of FEMNIST in NIID-Bench
    (https://arxiv.org/abs/2102.02079).

    Args:
      owners: the natural client of each training example [N].
      clients: number of clients.
      seed: of the division, and of the order of each client's examples.

    Raises:
      InputError: the data name no owners, or there are more clients than owners.

    Example:
      >>> owners = np.repeat([0, 1, 2, 3], 5)
      >>> [np.unique(owners[rows]).tolist() for rows in owner_groups(owners, clients=2, seed=0)]
      [[0, 2], [1, 3]]
    """
    if owners is None:
        raise InputError("these data name no owners: choose another partition than owner_groups")
    ids, number = np.unique(owners, return_inverse=True)
    check(
        1 <= clients <= len(ids),
        f"{clients} clients for {len(ids)} owners: expected 1 to {len(ids)} clients, "
        "at most one client an owner",
    )
    rng = np.random.default_rng(seed)
    client_of = np.empty(len(ids), int)
    for client, group in enumerate(np.array_split(rng.permutation(len(ids)), clients)):
        client_of[group] = client
    holder = client_of[number]
    return [rng.permutation(np.flatnonzero(holder == client)) for client in range(clients)]


PARTITIONS: dict[str, Callable[..., Parts]] = {
    f.__name__: f
    for f in (
        iid,
        pathological,
        unbalanced_pathological,
        labels,
        dirichlet,
        niid_bench_dirichlet,
        quantity,
        shards,
        nodes,
        superclasses,
        natural,
        owner_groups,
    )
}
OWNED = ("natural", "owner_groups")  # the partitions that take owners in place of labels
