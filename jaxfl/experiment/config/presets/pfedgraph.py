"""The protocols of pFedGraph's tables."""

from jaxfl.experiment.config.presets.definition import Preset

# pFedGraph: section 4.1, appendices C.1.2 and C.1.4, and the authors' code.
PFEDGRAPH = Preset(
    "pFedGraph, sections 4.1 and C.1; the model (section 4.1 says three convolutions), FedRep's "
    "head_steps, when and what is scored: the authors' code; CIFAR-100 has `--local-steps 400` and "
    "20 labels a client",
    {
        "dataset": "cifar10",
        "partition": "pathological",
        "classes_per_client": 2,
        "clients": 10,
        "val": 0.2,
        "test": "reweighted",
        "model": "lenet",
        "local_steps": 200,
        "batch_size": 64,
        "lr": 0.01,
        "momentum": 0.9,
        "weight_decay": 1e-5,
        "participation": 1.0,
        "rounds": 50,
    },
    {
        "cfl": {"eps1": 2.0, "eps2": 2.5},
        "ditto": {"lam": 1.0},
        "fedprox": {"mu": 0.01},
        "fedprox_ft": {"mu": 0.01},
        "fedrep": {"head_steps": 80},
        "heurfedamp": {"lam": 1.0, "sigma": 10.0, "own": 0.3},
        "knn_per": {"lam": 0.5},
        "per_fedavg": {"alpha": 0.001},
        "pfedgraph": {"lam": 0.01},
        "pfedme": {"lam": 15.0, "inner_steps": 5, "inner_rate": 0.01, "beta": 1.0},
    },
    stages={
        "cfl": "trained",
        "fedamp": "trained",
        "fedrep": "trained",
        "fedrod": "trained",
        "heurfedamp": "trained",
        "per_fedavg": "trained",
        "pfedgraph": "both",
        "pfedhn": "trained",
        "pfedme": "trained",
    },
)

# Level of heterogeneity -> what it is, and its options.
LEVELS = {
    "extreme": ("5 clients, 2 labels each", {"clients": 5}),
    "severe": ("10 clients, 2 labels each", {}),
    "modest": ("Dirichlet .1", {"partition": "niid_bench_dirichlet", "beta": 0.1}),
    "homo": ("homogeneous", {"partition": "iid"}),
}
TEXTS = {"dataset": "yahoo_answers", "model": "textcnn"}
# A seed that makes clients 2, 6, 8 and 9 malicious, as in figure 3.
ATTACK_SEED = 126

PRESETS = {
    f"pfedgraph-{level}": PFEDGRAPH.with_options(
        f"pFedGraph, table 1 ({level}): {what}; {PFEDGRAPH.source}", **options
    )
    for level, (what, options) in LEVELS.items()
}
PRESETS |= {
    f"pfedgraph-yahoo-{level}": PFEDGRAPH.with_options(
        f"pFedGraph, table 2 ({level}): {what}; all texts are divided (appendix C.1.3 says 3,072 a "
        f"client); {PFEDGRAPH.source}",
        **TEXTS,
        **options,
    )
    for level, (what, options) in LEVELS.items()
}
PRESETS["pfedgraph-attacks"] = PFEDGRAPH.with_options(
    "pFedGraph, tables 3 and 4, figure 3: four of ten homogeneous clients are malicious; "
    + PFEDGRAPH.source,
    partition="iid",
    attack="shuffle",
    attack_ratio=0.4,
    attack_seed=ATTACK_SEED,
)
# The paper says no more of this protocol than that it follows pFL-Bench.
PRESETS |= {
    f"pfedgraph-movielens-{size}": PFEDGRAPH.with_options(
        f"pFedGraph, table 12 (MovieLens-{size.upper()}); users, model and steps are not said in "
        "the paper",
        dataset=f"movielens/{size}-ratings",
        partition="owner_groups",
        own=0.2,
        test="own",
        model="mf",
    )
    for size in ("1m", "10m")
}
