"""The protocols of PFLlib's table of methods."""

from jaxfl.experiment.config.presets.definition import Preset

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
        "own": 0.25,
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

PRESETS = {
    "pfllib-pathological": PFLLIB.with_options(
        "2 of ten labels, unequally many examples of each; " + PFLLIB.source
    ),
    "pfllib-dirichlet": PFLLIB.with_options(
        "Dirichlet .1, drawn again until each client has 10 examples (there 40); " + PFLLIB.source,
        partition="dirichlet",
        beta=0.1,
    ),
}
