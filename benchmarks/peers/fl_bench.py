"""One round of federated averaging by FL-bench: `python -m benchmarks.peers.fl_bench 100 16 20`.

Environment: `pip install torch==2.13.0 torchvision hydra-core pandas pynvml ray rich scikit-learn`
(CPU builds; Python 3.11), and in its folder, as `FL-bench`, a clone of
https://github.com/KarhouTam/FL-bench at commit 06e658b.

FL-bench's main program runs with its defaults: clients in turn, each with a data loader. An option
turns off the clients' evaluation; the server's is off by default. Random images stand for CINIC-10,
which FL-bench reads like CIFAR-10 but without a checksum, and LeNet for its own, which has batch
normalization. Clients train whole epochs, about as many as make the steps. A round is what FL-bench
itself times: training and aggregation.
"""

import json
import os
import pickle
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(sys.prefix) / "FL-bench"))
# Without it the last line of an error would not name the error.
os.environ["HYDRA_FULL_ERROR"] = "1"

import numpy as np
import torch
from src.server import fedavg
from src.utils import models

from benchmarks.peers.cloned import print_rounds, run_program, whole_epochs
from benchmarks.peers.torch_loop import lenet, tensors
from benchmarks.peers.work import (
    DECAY,
    LEARNING_RATE,
    MOMENTUM,
    ROUNDS,
    timed,
    work_from_arguments,
)

FOLDER = Path(sys.prefix) / "FL-bench"


class LeNet(models.DecoupledModel):
    """The model in FL-bench's two parts."""

    def __init__(self, dataset: str, pretrained: bool):
        super().__init__()
        net = lenet(32, 3)
        self.base, self.classifier = net[:-1], net[-1]


def store(root: Path, data: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
    """Writes the clients' images and their partition as FL-bench's CINIC-10."""
    place = root / "data" / "cinic10"
    (place / "raw").mkdir(parents=True)
    torch.save(torch.cat([x for x, _ in data]), place / "data.pt")
    torch.save(torch.cat([y for _, y in data]), place / "targets.pt")
    ends = np.cumsum([len(y) for _, y in data])
    none = np.zeros(0, np.int64)
    clients = list(range(len(data)))
    partition = {
        "separation": {"train": clients, "val": clients, "test": clients, "total": len(data)},
        "data_indices": [
            {"train": np.arange(end - len(y), end), "val": none, "test": none}
            for end, (_, y) in zip(ends, data, strict=True)
        ],
    }
    (place / "partition.pkl").write_bytes(pickle.dumps(partition))
    (place / "args.json").write_text(json.dumps({"split": "sample"}))


def options(epochs: int, batch: int) -> list[str]:
    """The command line of FL-bench's main program."""
    common = {
        "join_ratio": 1,
        "global_epoch": ROUNDS,
        "local_epoch": epochs,
        "batch_size": batch,
        "client_side_evaluation": False,
        "use_cuda": False,
        "save_learning_curve_plot": False,
        "save_metrics": False,
    }
    return [
        "method=fedavg",
        "dataset.name=cinic10",
        "model.name=custom",
        f"optimizer.lr={LEARNING_RATE}",
        f"optimizer.momentum={MOMENTUM}",
        f"optimizer.weight_decay={DECAY}",
        *(f"common.{name}={value}" for name, value in common.items()),
    ]


def main() -> None:
    """Runs rounds and prints the best."""
    work = work_from_arguments()
    data = [tensors(number, "cpu") for number in range(work.clients)]
    epochs, steps = whole_epochs([len(y) for _, y in data], work)
    seconds = []
    one_round = fedavg.FedAvgServer.train_one_round

    def watched(server: fedavg.FedAvgServer) -> None:
        seconds.extend(timed(lambda: one_round(server), 1))

    fedavg.FedAvgServer.train_one_round = watched
    models.MODELS["custom"] = LeNet
    with tempfile.TemporaryDirectory() as folder:
        fedavg.FLBENCH_ROOT = Path(folder)
        store(fedavg.FLBENCH_ROOT, data)
        run_program(FOLDER / "main.py", Path(folder), options(epochs, work.batch))
    print_rounds(seconds, steps, FOLDER, torch.__version__)


if __name__ == "__main__":
    main()
