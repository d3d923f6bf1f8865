"""The algorithms, by name. A new one is a file beside these and a line here."""

from jaxfl.algorithms.fedavg import fedavg
from jaxfl.algorithms.fedavg_ft import fedavg_ft
from jaxfl.algorithms.fedcedar import fedcedar
from jaxfl.algorithms.gfed import gfed
from jaxfl.algorithms.gfedmtl import gfedmtl
from jaxfl.algorithms.local import local
from jaxfl.algorithms.pfedgat import pfedgat
from jaxfl.algorithms.pfedgraph import pfedgraph
from jaxfl.hints import checked
from jaxfl.types import AlgorithmFactory

ALGORITHMS: dict[str, AlgorithmFactory] = {
    f.__name__: checked(f) for f in (local, fedavg, fedavg_ft, fedcedar, gfed, gfedmtl, pfedgat, pfedgraph)
}
globals().update(ALGORITHMS)  # whoever imports one by its name has it checked too

__all__ = ["ALGORITHMS", "fedavg", "fedavg_ft", "fedcedar", "gfed", "gfedmtl", "local", "pfedgat", "pfedgraph"]
