"""The protocols of pFedGAT's tables."""

from jaxfl.experiment.config.presets.definition import Preset
from jaxfl.experiment.config.presets.pfedgraph import PFEDGRAPH

# pFedGAT: section 4.1. The paper does not say when it scores; its numbers for local training are
# those of pFedGraph's tables.
PFEDGAT = Preset(
    "pFedGAT, section 4.1; what it leaves open (momentum, decay, number of clients, scores), and "
    "the model (it says three convolutions): as pFedGraph; the attention learns from validation "
    "data, in the paper from test data; CIFAR-100 has 20 labels a client",
    PFEDGRAPH.options | {"local_steps": None, "local_epochs": 5},
    PFEDGRAPH.hyper | {"pfedgat": {"heads": 8, "slope": 0.2, "eta": 0.01}},
    stages={**PFEDGRAPH.stages, "pfedgat": "both", "fedah": "trained"},
)

PRESETS = {
    "pfedgat-pathological": PFEDGAT.with_options(
        "pFedGAT, table 1 (pathological); " + PFEDGAT.source
    ),
    "pfedgat-dirichlet": PFEDGAT.with_options(
        "pFedGAT, tables 1 to 4 (Dirichlet .1); " + PFEDGAT.source,
        partition="niid_bench_dirichlet",
        beta=0.1,
    ),
    "pfedgat-iid": PFEDGAT.with_options(
        "pFedGAT, table 1 (IID); " + PFEDGAT.source, partition="iid"
    ),
}
PRESETS |= {
    f"pfedgat-dirichlet-{beta}": PFEDGAT.with_options(
        f"pFedGAT, tables 1, 2 and 4 (Dirichlet {beta}); " + PFEDGAT.source,
        partition="niid_bench_dirichlet",
        beta=beta,
    )
    for beta in (0.3, 0.5)
}
