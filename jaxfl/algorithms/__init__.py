"""The algorithms, by name. A new one is a file beside these and a line here."""

from jaxfl.algorithms.cfl import cfl
from jaxfl.algorithms.fedadam import fedadam
from jaxfl.algorithms.fedamp import fedamp
from jaxfl.algorithms.fedavg import fedavg
from jaxfl.algorithms.fedavg_ft import fedavg_ft
from jaxfl.algorithms.fedavgm import fedavgm
from jaxfl.algorithms.fedcedar import fedcedar
from jaxfl.algorithms.fedfomo import fedfomo
from jaxfl.algorithms.fedsem import fedsem
from jaxfl.algorithms.fedyogi import fedyogi
from jaxfl.algorithms.gfed import gfed
from jaxfl.algorithms.gfedmtl import gfedmtl
from jaxfl.algorithms.heurfedamp import heurfedamp
from jaxfl.algorithms.ifca import ifca
from jaxfl.algorithms.knn_per import knn_per
from jaxfl.algorithms.local import local
from jaxfl.algorithms.pfedbayes import pfedbayes
from jaxfl.algorithms.pfedgat import pfedgat
from jaxfl.algorithms.pfedgraph import pfedgraph
from jaxfl.algorithms.pfedhn import pfedhn
from jaxfl.algorithms.sfl import sfl
from jaxfl.types import AlgorithmFactory

ALGORITHMS: dict[str, AlgorithmFactory] = {
    f.__name__: f
    for f in (
        *(local, fedavg, fedavg_ft, fedavgm, fedadam, fedyogi),
        *(ifca, fedsem, cfl, fedamp, heurfedamp, sfl, fedfomo, knn_per, pfedhn, pfedbayes),
        *(fedcedar, gfed, gfedmtl, pfedgat, pfedgraph),
    )
}

__all__ = ["ALGORITHMS", *ALGORITHMS]
