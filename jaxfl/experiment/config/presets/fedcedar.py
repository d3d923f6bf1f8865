"""The protocols of FedCedar's tables."""

from jaxfl.experiment.config.presets.definition import Preset

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
        "own": 0.2,
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
    {
        "fedcedar": {"clusters": 5, "hops": 2},
        "fedsem": {"clusters": 5},
        "ifca": {"clusters": 5},
    },
    rule="last_ten",
    stage="trained",
    stages={"pfedme": "deployed"},  # its personal model, which is not the one that it sends
)

PRESETS = {
    "fedcedar-mnist-noniid": FEDCEDAR.with_options(
        "FedCedar, tables 1 and 2 (MNIST, non-IID); " + FEDCEDAR.source
    ),
    "fedcedar-mnist-iid": FEDCEDAR.with_options(
        "FedCedar, tables 1 and 2 (MNIST, IID); " + FEDCEDAR.source, partition="iid"
    ),
    "fedcedar-cifar10-noniid": FEDCEDAR.with_options(
        "FedCedar, tables 1 and 2 (CIFAR-10, non-IID); " + FEDCEDAR.source,
        dataset="cifar10",
        model="cedar6",
    ),
    "fedcedar-case-study": FEDCEDAR.with_options(
        "FedCedar, section 4.4: 20 clients in each of 5 nodes (of 3: `--topology 3 --clients 60` "
        "and clusters=3; of 4 likewise); that every fifth round draws as many "
        "clients of each node: experiments/fedcedar_case_study.py; " + FEDCEDAR.source,
        partition="nodes",
        clients=100,
        rounds=200,
    ),
    "fedcedar-cifar10-iid": FEDCEDAR.with_options(
        "FedCedar, tables 1 and 2 (CIFAR-10, IID); " + FEDCEDAR.source,
        dataset="cifar10",
        model="cedar6",
        partition="iid",
    ),
    "fedcedar-svhn-noniid": FEDCEDAR.with_options(
        "FedCedar, tables 1 and 2 (SVHN, non-IID); " + FEDCEDAR.source, dataset="svhn_cropped"
    ),
    "fedcedar-svhn-iid": FEDCEDAR.with_options(
        "FedCedar, tables 1 and 2 (SVHN, IID); " + FEDCEDAR.source,
        dataset="svhn_cropped",
        partition="iid",
    ),
}
