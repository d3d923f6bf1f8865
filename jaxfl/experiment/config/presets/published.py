"""The protocols of published tables."""

import dataclasses

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
    f"pfedgraph-{level}": PFEDGRAPH.with_options(f"pFedGraph, table 1 ({level}): {what}", **options)
    for level, (what, options) in LEVELS.items()
}
PRESETS |= {
    f"pfedgraph-yahoo-{level}": PFEDGRAPH.with_options(
        f"pFedGraph, table 2 ({level}): {what}; all texts are divided (appendix C.1.3 says 3,072 a "
        "client)",
        **TEXTS,
        **options,
    )
    for level, (what, options) in LEVELS.items()
}
PRESETS["pfedgraph-attacks"] = PFEDGRAPH.with_options(
    "pFedGraph, tables 3 and 4, figure 3: four of ten homogeneous clients are malicious",
    partition="iid",
    attack="shuffle",
    attack_ratio=0.4,
    attack_seed=ATTACK_SEED,
)
# The paper says no more of this protocol than that it follows pFL-Bench.
PRESETS |= {
    f"pfedgraph-movielens-{size}": dataclasses.replace(
        PFEDGRAPH,
        source=f"pFedGraph, table 12 (MovieLens-{size.upper()}); users, model and steps are not "
        "said in the paper",
        options=PFEDGRAPH.options
        | {
            "dataset": f"movielens/{size}-ratings",
            "partition": "owner_groups",
            "test_fraction": 0.2,
            "test": "own",
            "model": "mf",
        },
    )
    for size in ("1m", "10m")
}

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

PRESETS |= {
    "pfedgat-pathological": PFEDGAT.with_options("pFedGAT, table 1 (pathological)"),
    "pfedgat-dirichlet": PFEDGAT.with_options(
        "pFedGAT, tables 1 to 4 (Dirichlet .1)", partition="niid_bench_dirichlet", beta=0.1
    ),
    "pfedgat-iid": PFEDGAT.with_options("pFedGAT, table 1 (IID)", partition="iid"),
}
PRESETS |= {
    f"pfedgat-dirichlet-{beta}": PFEDGAT.with_options(
        f"pFedGAT, tables 1, 2 and 4 (Dirichlet {beta})",
        partition="niid_bench_dirichlet",
        beta=beta,
    )
    for beta in (0.3, 0.5)
}

# FedCedar: section 4.1. What it does not say is that of the authors' code: Adam with decay 1e-4,
# pixels in [-1, 1], a fifth of each shard to test, and a fifth of the rest left unused. Batches and
# steps of propagation are the paper's (the code's defaults are 10 and 1).
FEDCEDAR = Preset(
    "FedCedar, section 4.1; the optimiser (Adam), the pixels, the split of each shard and the "
    "score (participants after local training, the mean of the last ten rounds): the authors' code",
    {
        "dataset": "mnist",
        "partition": "shards",
        "classes_per_client": 2,
        "clients": 100,
        "val": 0.16,
        "test_fraction": 0.2,
        "test": "own",
        "model": "cedar3",
        "local_epochs": 5,
        "batch_size": 16,
        "lr": 0.01,
        "optimizer": "adam",
        "weight_decay": 1e-4,
        "augment": "none",
        "pixels": "centred",
        "participation": 0.3,
        "rounds": 100,
        "eval_on": "participants",
    },
    {"fedcedar": {"clusters": 5, "hops": 2}, "fedsem": {"clusters": 5}, "ifca": {"clusters": 5}},
    rule="last_ten",
    stage="trained",
    stages={"pfedme": "deployed"},  # its personal model, which is not the one that it sends
)

IMAGES = {
    "mnist": ("MNIST", {}),
    "cifar10": ("CIFAR-10", {"dataset": "cifar10", "model": "cedar6"}),
    "svhn": ("SVHN", {"dataset": "svhn_cropped"}),
}

PRESETS |= {
    f"fedcedar-{images}-{kind.lower().replace('-', '')}": FEDCEDAR.with_options(
        f"FedCedar, tables 1 and 2 ({title}, {kind})", **options, partition=partition
    )
    for images, (title, options) in IMAGES.items()
    for kind, partition in (("non-IID", "shards"), ("IID", "iid"))
}
PRESETS["fedcedar-case-study"] = FEDCEDAR.with_options(
    "FedCedar, section 4.4: 20 clients in each of 5 nodes (of 3: `--partition nodes:nodes=3 "
    "--clients 60` and clusters=3; of 4 likewise); that every fifth round draws as many clients of "
    "each node: experiments/fedcedar_case_study.py",
    partition="nodes",
    clients=100,
    rounds=200,
)

# NIID-Bench, section V, as Flower ran it again.
NIID_BENCH = Preset(
    "NIID-Bench (ICDE 2022), section V, and Flower's rerun of it; MNIST and Fashion-MNIST have "
    "`--augment none`; the best of all rounds is chosen on the test set, as in the rerun",
    {
        "dataset": "cifar10",
        "partition": "niid_bench_dirichlet",
        "beta": 0.5,
        "clients": 10,
        "val": 0.0,
        "test": "global",
        "model": "lenet",
        "augment": "reflect_crop_flip",
        "pixels": "unit",
        "local_epochs": 10,
        "batch_size": 64,
        "lr": 0.01,
        "momentum": 0.9,
        "weight_decay": 1e-5,
        "participation": 1.0,
        "rounds": 50,
    },
    {"scaffold": {"option": "II"}, "fedprox": {"mu": 0.01}},
    rule="best_round",
)

PRESETS |= {
    "niid-bench-iid": NIID_BENCH.with_options("Homogeneous", partition="iid"),
    "niid-bench-dirichlet": NIID_BENCH.with_options("Dirichlet .5"),
}
PRESETS |= {
    f"niid-bench-labels-{count}": NIID_BENCH.with_options(
        f"#C = {count}: clients hold {count} of ten labels",
        partition="labels",
        classes_per_client=count,
    )
    for count in (1, 2, 3)
}

# PFLlib: docs/benchmark.html and the code that divides its data.
PFLLIB = Preset(
    "PFLlib's benchmark, columns of Fashion-MNIST: training and test set together, a quarter of "
    "each client's examples tests it; the best of all rounds is chosen on the test set, as "
    "published",
    {
        "dataset": "fashion_mnist",
        "partition": "unbalanced_pathological",
        "classes_per_client": 2,
        "clients": 20,
        "merge_test": True,
        "val": 0.0,
        "test_fraction": 0.25,
        "test": "own",
        "model": "fedavg_cnn",
        "augment": "none",
        "pixels": "centred",
        "local_epochs": 1,
        "batch_size": 10,
        "lr": 0.005,
        "momentum": 0.0,
        "weight_decay": 0.0,
        "participation": 1.0,
        "rounds": 2000,
    },
    rule="best_round",
)

PRESETS |= {
    "pfllib-pathological": PFLLIB.with_options("2 of ten labels, unequally many examples of each"),
    "pfllib-dirichlet": PFLLIB.with_options(
        "Dirichlet .1, drawn again until each client has 10 examples (there 40)",
        partition="dirichlet",
        beta=0.1,
    ),
}

# FLamby: section 4, and its code, whose servers with Adam and Yogi correct no bias.
ADAPTIVE = {"beta2": 0.999, "tau": 1e-8, "correct_bias": False}
FLAMBY = Preset(
    "FLamby (NeurIPS 2022), section 4, and the authors' code; models start at zero, there at "
    "random",
    {
        "partition": "natural",
        "data_seed": 0,
        "val": 0.0,
        "test": "own",
        "model": "linear",
        "local_steps": 100,
        "momentum": 0.0,
        "weight_decay": 0.0,
        "seeds": 5,
    },
    rule="last",
    by_client=True,
)

PRESETS["flamby-tcga"] = dataclasses.replace(
    FLAMBY.with_options(
        "Fed-TCGA-BRCA, six regions, whose files say which rows test and go through `jaxfl prepare "
        "csv --name tcga --time T --event E --split split --no-scale`; local and pooled training "
        "have `--optimizer adam --rounds 1 --local-epochs 30`, and SCAFFOLD, FedAdam and FedYogi "
        "`--lr 0.01`",
        dataset="tcga",
        loss="cox",
        metric=("concordance",),
        batch_size=8,
        lr=0.1,
        rounds=5,
    ),
    hyper={
        "fedprox": {"mu": 0.1},
        "fedadam": {"rate": 0.1, **ADAPTIVE},
        "fedyogi": {"rate": 0.1, **ADAPTIVE},
        "fedcedar": {"clusters": 3},
    },
)
# Two outputs with a softmax move apart twice as fast as the one logit of FLamby's model goes, so
# that rates are half of FLamby's, and mu, which counts for each output, is twice as large.
PRESETS["flamby-heart"] = dataclasses.replace(
    FLAMBY.with_options(
        "Fed-Heart-Disease, four hospitals, whose files experiments/flamby.py makes; rates are "
        "half of FLamby's and mu is twice as large, for a softmax of two outputs in place of one "
        "logit; local and pooled training have `--optimizer adam --rounds 1 --local-epochs 50`, "
        "FedAdam `--lr 0.005` and FedYogi `--lr 0.00158`",
        dataset="heart",
        metric=("accuracy", "auc"),
        batch_size=4,
        lr=0.0005,
        rounds=15,
    ),
    hyper={
        "fedprox": {"mu": 0.02},
        "fedadam": {"rate": 0.005, **ADAPTIVE},
        "fedyogi": {"rate": 0.005, **ADAPTIVE},
        "fedcedar": {"clusters": 3},
    },
)
