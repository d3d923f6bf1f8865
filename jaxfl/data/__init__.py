"""From a data set to a federation: load, partition, federate.

May import `core` and `graphs`. A new partition goes to `skews`, a difference between clients to
`concept`, a published data set to `published`.
"""

from jaxfl.data import augment
from jaxfl.data.arrays import from_arrays, merge_test_set
from jaxfl.data.concept import CONCEPTS, concept_of, label_permutations
from jaxfl.data.describe import describe_groups, describe_partition
from jaxfl.data.federate import federate
from jaxfl.data.partition import (
    PARTITIONS,
    iid,
    natural,
    node_of,
    nodes,
    owner_groups,
    pathological,
    shards,
)
from jaxfl.data.ridge import Ridge, mse_db, ridge
from jaxfl.data.skews import (
    dirichlet,
    labels,
    niid_bench_dirichlet,
    quantity,
    unbalanced_pathological,
)
from jaxfl.data.source import Source
from jaxfl.data.sources import SOURCES, list_data_sets, load
from jaxfl.data.superclasses import superclasses
from jaxfl.data.table.by_site import from_table, table_schema, table_summary
from jaxfl.data.table.prepare import from_frames
from jaxfl.data.tokens import text_ids
from jaxfl.data.weights import balance_classes

__all__ = [
    "CONCEPTS",
    "PARTITIONS",
    "SOURCES",
    "Ridge",
    "Source",
    "augment",
    "balance_classes",
    "concept_of",
    "describe_groups",
    "describe_partition",
    "dirichlet",
    "federate",
    "from_arrays",
    "from_frames",
    "from_table",
    "iid",
    "label_permutations",
    "labels",
    "list_data_sets",
    "load",
    "merge_test_set",
    "mse_db",
    "natural",
    "niid_bench_dirichlet",
    "node_of",
    "nodes",
    "owner_groups",
    "pathological",
    "quantity",
    "ridge",
    "shards",
    "superclasses",
    "table_schema",
    "table_summary",
    "text_ids",
    "unbalanced_pathological",
]
