"""From a data set to a federation: load, partition, federate."""

from jaxfl.data.federate import federate
from jaxfl.data.partition import PARTITIONS, dirichlet, iid, node_of, nodes, pathological, shards
from jaxfl.data.sources import SOURCES, Source, load

__all__ = [
    "PARTITIONS",
    "SOURCES",
    "Source",
    "dirichlet",
    "federate",
    "iid",
    "load",
    "node_of",
    "nodes",
    "pathological",
    "shards",
]
