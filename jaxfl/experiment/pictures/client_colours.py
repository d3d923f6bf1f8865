"""What the pictures of graphs show of the clients: their order, colours and groups."""

from dataclasses import dataclass

import numpy as np

from jaxfl.data import Source
from jaxfl.data.federate import group_order, label_counts
from jaxfl.data.skews import Parts
from jaxfl.data.source import client_names
from jaxfl.experiment.pictures.drawing import LABELS, shorten


@dataclass(frozen=True)
class Clients:
    """What the pictures of graphs show of the clients."""

    order: np.ndarray  # ids as they are drawn [C]: groups side by side, malicious clients last
    colours: np.ndarray  # [C, 4], of each id
    meaning: str  # of the colours
    groups: np.ndarray | None  # the true group of each id [C]; None where there are no groups
    malicious: np.ndarray  # [C], of each id
    names: tuple[str, ...] = ()  # of each id [C]; empty where the clients have no names

    def name(self, client: int, longest: int = 1000) -> str:
        """How pictures call a client: by its name, or by its id."""
        return shorten(self.names[client], longest) if self.names else str(client)

    def sort(self, ids: np.ndarray) -> np.ndarray:
        """The places in `ids` in the order in which the clients are drawn."""
        place = np.argsort(self.order)
        return np.argsort(place[ids])


@dataclass(frozen=True)
class Holdings:
    """Who holds what."""

    clients: Clients
    counts: np.ndarray | None  # examples of each label [C, L]; None where the data are not there
    labels: list[str]  # names of the labels, or of the tenths of numbers as targets [L]


def clients_of(
    source: Source,
    parts: Parts,
    groups: np.ndarray | None = None,
    malicious: np.ndarray | None = None,
) -> Clients:
    """The order and the colours of the clients.

    Args:
      source: the data set.
      parts: rows of each of the C clients.
      groups: of `session.gather.true_groups` [C].
      malicious: which clients attack [C].
    """
    malicious = np.zeros(len(parts), bool) if malicious is None else malicious
    names = client_names(source, parts)
    counts = label_counts(source, parts)
    place = np.argsort(group_order(counts))
    if groups is None:
        shade = counts @ np.arange(counts.shape[1]) / np.maximum(counts.sum(axis=1), 1)
        shade = shade / max(counts.shape[1] - 1, 1)
        order = np.lexsort((place, malicious))
        colours = LABELS(0.05 + 0.9 * shade)
        return Clients(order, colours, "labels held", None, malicious, names)
    # A group stands where the first of its clients stands.
    first = np.array([place[groups == group].min() for group in range(groups.max() + 1)])
    rank = np.argsort(np.argsort(first))[groups]
    order = np.lexsort((place, rank, malicious))
    colours = LABELS(0.08 + 0.84 * rank / max(rank.max(), 1))
    return Clients(order, colours, "group of clients", groups, malicious, names)
