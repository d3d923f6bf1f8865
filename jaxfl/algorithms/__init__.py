"""The algorithms, by name. A new one is a file beside these and a line here."""

from jaxfl.algorithms.ditto import ditto
from jaxfl.algorithms.fedavg import fedavg
from jaxfl.algorithms.fedavg_ft import fedavg_ft
from jaxfl.algorithms.fedcedar import fedcedar
from jaxfl.algorithms.fedprox import fedprox
from jaxfl.algorithms.fedprox_ft import fedprox_ft
from jaxfl.algorithms.gfed import gfed
from jaxfl.algorithms.gfedmtl import gfedmtl
from jaxfl.algorithms.local import local
from jaxfl.algorithms.pfedgat import pfedgat
from jaxfl.algorithms.pfedgraph import pfedgraph
from jaxfl.types import AlgorithmFactory

ALGORITHMS: dict[str, AlgorithmFactory] = {
    f.__name__: f
    for f in (local, fedavg, fedavg_ft, ditto, fedcedar, fedprox, fedprox_ft, gfed, gfedmtl, pfedgat, pfedgraph)
}

__all__ = [
    "ALGORITHMS",
    "ditto",
    "fedavg",
    "fedavg_ft",
    "fedcedar",
    "fedprox",
    "fedprox_ft",
    "gfed",
    "gfedmtl",
    "local",
    "pfedgat",
    "pfedgraph",
]
