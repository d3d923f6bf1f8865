"""The protocols of NIID-Bench's tables."""

from jaxfl.experiment.config.presets.definition import Preset

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

PRESETS = {
    "niid-bench-iid": NIID_BENCH.with_options("Homogeneous; " + NIID_BENCH.source, partition="iid"),
    "niid-bench-dirichlet": NIID_BENCH.with_options("Dirichlet .5; " + NIID_BENCH.source),
}
PRESETS |= {
    f"niid-bench-labels-{count}": NIID_BENCH.with_options(
        f"#C = {count}: clients hold {count} of ten labels; {NIID_BENCH.source}",
        partition="labels",
        classes_per_client=count,
    )
    for count in (1, 2, 3)
}
