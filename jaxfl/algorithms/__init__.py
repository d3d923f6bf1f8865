"""The algorithms, by name. A new algorithm is a file in this folder and two lines in this file.

May import `core`, `graphs`, `kernels` and `training`, and no method imports another: what two files
share goes to `steps`. A file opens with the pseudo-code of a round, in which F_i is the loss of
client i on its training examples, and "local training of F_i from w" the task's own training.

In the examples of the docstrings, `task` is a model with a body of eight features and a head for
two classes. `initial_state(algorithm)` gives the shapes of a state of four clients, and
`one_round(algorithm)` those of the state and the info after a round
(`tests/examples.py`).
"""

from jaxfl.algorithms.afl import afl
from jaxfl.algorithms.apfl import apfl
from jaxfl.algorithms.apple import apple
from jaxfl.algorithms.cfl import cfl
from jaxfl.algorithms.cobo import cobo
from jaxfl.algorithms.ditto import ditto
from jaxfl.algorithms.dpfl import dpfl
from jaxfl.algorithms.epidemic import epidemic
from jaxfl.algorithms.fedadam import fedadam, fedyogi
from jaxfl.algorithms.fedaghn import fedaghn
from jaxfl.algorithms.fedala import fedah, fedala
from jaxfl.algorithms.fedamp import fedamp, heurfedamp
from jaxfl.algorithms.fedapa import fedapa
from jaxfl.algorithms.fedasync import fedasync
from jaxfl.algorithms.fedavg import fedavg, fedavg_ft
from jaxfl.algorithms.fedavgm import fedavgm
from jaxfl.algorithms.fedbabu import fedbabu
from jaxfl.algorithms.fedbn import fedbn
from jaxfl.algorithms.fedbuff import fedbuff
from jaxfl.algorithms.fedcedar import fedcedar
from jaxfl.algorithms.fedcollab import fedcollab
from jaxfl.algorithms.feddbe import feddbe
from jaxfl.algorithms.feddistill import feddistill
from jaxfl.algorithms.feddyn import feddyn
from jaxfl.algorithms.fedfomo import fedfomo
from jaxfl.algorithms.fedgh import fedgh
from jaxfl.algorithms.fednova import fednova
from jaxfl.algorithms.fedpac import fedpac
from jaxfl.algorithms.fedper import fedper
from jaxfl.algorithms.fedproto import fedproto
from jaxfl.algorithms.fedprox import fedprox, fedprox_ft
from jaxfl.algorithms.fedrep import fedrep
from jaxfl.algorithms.fedrod import fedrod
from jaxfl.algorithms.fedsem import fedsem
from jaxfl.algorithms.fedtgp import fedtgp
from jaxfl.algorithms.fml import fml
from jaxfl.algorithms.general_graph import general_graph
from jaxfl.algorithms.geometric_median import geometric_median
from jaxfl.algorithms.gfed import gfed
from jaxfl.algorithms.gfedmtl import gfedmtl
from jaxfl.algorithms.gossip import gossip
from jaxfl.algorithms.heterofl import heterofl
from jaxfl.algorithms.hetlora import hetlora
from jaxfl.algorithms.ifca import ifca
from jaxfl.algorithms.knn_per import knn_per
from jaxfl.algorithms.krum import krum, multi_krum
from jaxfl.algorithms.layer_tree import layer_tree
from jaxfl.algorithms.learned_graph import learned_graph
from jaxfl.algorithms.lg_fedavg import lg_fedavg
from jaxfl.algorithms.local import local
from jaxfl.algorithms.measured_graph import measured_graph
from jaxfl.algorithms.median import median, trimmed_mean
from jaxfl.algorithms.meritfed import meritfed
from jaxfl.algorithms.moon import moon
from jaxfl.algorithms.mutual_graph import mutual_graph
from jaxfl.algorithms.norm_clipping import norm_clipping
from jaxfl.algorithms.per_fedavg import per_fedavg
from jaxfl.algorithms.pfedbayes import pfedbayes
from jaxfl.algorithms.pfedccg import pfedccg
from jaxfl.algorithms.pfedgat import pfedgat
from jaxfl.algorithms.pfedgraph import pfedgraph
from jaxfl.algorithms.pfedhn import pfedhn
from jaxfl.algorithms.pfedla import pfedla
from jaxfl.algorithms.pfedme import pfedme
from jaxfl.algorithms.pfedsim import pfedsim
from jaxfl.algorithms.pooled import pooled
from jaxfl.algorithms.push_sum import push_sum
from jaxfl.algorithms.qffl import qffl
from jaxfl.algorithms.safe_graph import safe_graph
from jaxfl.algorithms.scaffold import scaffold
from jaxfl.algorithms.sfl import sfl
from jaxfl.algorithms.term import term
from jaxfl.algorithms.trust import trust
from jaxfl.core.types import AlgorithmFactory

ALGORITHMS: dict[str, AlgorithmFactory] = {
    f.__name__: f
    for f in (
        local,
        fedavg,
        fedavg_ft,
        afl,
        apfl,
        apple,
        cfl,
        cobo,
        ditto,
        dpfl,
        epidemic,
        fedadam,
        fedaghn,
        fedah,
        fedala,
        fedamp,
        fedasync,
        fedavgm,
        fedbabu,
        fedbn,
        fedbuff,
        fedcedar,
        fedcollab,
        feddbe,
        feddistill,
        feddyn,
        fedfomo,
        fedgh,
        fednova,
        fedpac,
        fedper,
        fedproto,
        fedprox,
        fedprox_ft,
        fedrep,
        fedrod,
        fedsem,
        fedtgp,
        fedyogi,
        fml,
        general_graph,
        geometric_median,
        gfed,
        gfedmtl,
        gossip,
        heterofl,
        hetlora,
        heurfedamp,
        ifca,
        knn_per,
        krum,
        layer_tree,
        learned_graph,
        lg_fedavg,
        measured_graph,
        median,
        meritfed,
        moon,
        multi_krum,
        mutual_graph,
        norm_clipping,
        per_fedavg,
        pfedbayes,
        pfedccg,
        pfedgat,
        pfedgraph,
        pfedhn,
        pfedla,
        fedapa,
        pfedme,
        pfedsim,
        pooled,
        push_sum,
        qffl,
        safe_graph,
        scaffold,
        sfl,
        term,
        trimmed_mean,
        trust,
    )
}

__all__ = ["ALGORITHMS", *ALGORITHMS]
