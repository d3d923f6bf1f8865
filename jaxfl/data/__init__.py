"""From a data set to a federation: load, partition, federate."""

from jaxfl.data.federate import federate
from jaxfl.data.partition import PARTITIONS, dirichlet, iid, node_of, nodes, pathological, shards
from jaxfl.data.ridge import Ridge, mse_db, ridge
from jaxfl.data.sources import SOURCES, Source, load
from jaxfl.data.topology import erdos_renyi, ring

__all__ = [
    "PARTITIONS",
    "SOURCES",
    "Ridge",
    "Source",
    "dirichlet",
    "erdos_renyi",
    "federate",
    "iid",
    "load",
    "mse_db",
    "node_of",
    "nodes",
    "pathological",
    "ridge",
    "ring",
    "shards",
]
